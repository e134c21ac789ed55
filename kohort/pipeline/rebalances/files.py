"""Reads history records from files in a Spark task, so that they do not pass through the driver."""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kohort.insight.event_rows import has_row
from kohort.insight.history_files import STDIN, check, histories
from kohort.insight.parsing import Read, Record
from kohort.insight.parsing import read as read_record
from kohort.pipeline.executors import Batches, items, objects
from kohort.pipeline.memory import cut
from kohort.pipeline.rebalances.ingest import COLUMNS, DDL

__all__ = ["are_small", "check", "events", "named", "read", "records"]

_EVENTS: Final = pa.schema(
    [
        ("file", pa.int32()),
        ("offset", pa.int64()),
        *((name, pa.string()) for name in ("cluster_id", "group", "key", "event")),
    ]
)
SMALL_BYTES: Final = 1 << 20
_LINES: Final = 500
_BYTES: Final = 4 << 20
"""Maximum size of the lines held in memory at a time; _LINES is their maximum number."""


@contextmanager
def named(paths: Sequence[str]) -> Iterator[list[str]]:
    """Yield the absolute paths of the files; standard input is copied to a temporary file, which
    exists until the context ends.
    """
    with tempfile.TemporaryDirectory(prefix="kohort-") as directory:
        spooled = Path(directory, STDIN)
        if STDIN in paths:
            with spooled.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
        yield [str(spooled if path == STDIN else Path(path).absolute()) for path in paths]


def are_small(paths: Sequence[str]) -> bool:
    """Whether reading the files in the driver takes less time than planning a query for them."""
    files = [Path(path) for path in paths]
    return all(path.is_file() and path.suffix != ".gz" for path in files) and (
        sum(path.stat().st_size for path in files) <= SMALL_BYTES
    )


def records(paths: Sequence[str], zone: tzinfo, cluster_id: str) -> Iterator[Record]:
    for name, lines in histories(paths, zone):
        for at, line in lines:
            yield Record(cluster_id, name, 0, at, None, None, line)


def read(spark: SparkSession, paths: Sequence[str], zone: tzinfo) -> DataFrame:
    """Return the records of all files, which executors must be able to read."""
    return items(spark, [list(paths)]).mapInArrow(partial(_records, zone), DDL)


def events(records: DataFrame, cluster_id: str) -> DataFrame:
    """Convert records to events in the columns of EVENTS, each event once. Invalid records become
    rows of nulls; unfinished rebalances are left out.
    """
    found = records.mapInArrow(
        partial(_events, cluster_id),
        "file int, offset bigint, cluster_id string, group string, key string, event string",
    )
    first = f.min_by("event", f.struct("file", "offset")).alias("event")
    return found.groupBy("cluster_id", "group", "key").agg(first).drop("key")


def _events(cluster_id: str, batches: Batches) -> Batches:
    for batch in batches:
        rows: list[tuple[object, ...]] = []
        for file, offset, value in zip(
            *(batch[name].to_pylist() for name in ("file", "offset", "value")), strict=True
        ):
            parsed = read_record(Record(cluster_id, "", 0, offset, None, None, value))
            # Events of unfinished rebalances have no row: they are reported again when finished.
            if isinstance(parsed, Read) and has_row(parsed.event):
                rows.append((file, offset, *parsed.key[:2], str(parsed.key[2]), parsed.text))
            elif not isinstance(parsed, Read):
                rows.append((file, offset, None, None, f"{file}/{offset}", None))
        if rows:
            yield pa.record_batch(list(map(list, zip(*rows, strict=True))), schema=_EVENTS)


def _records(zone: tzinfo, batches: Batches) -> Batches:
    for paths in objects(batches):
        for number, (name, lines) in enumerate(histories(paths, zone)):
            for chunk in cut(lines, lambda line: len(line[1]), _LINES, _BYTES):
                rows = [(number, name, 0, at, None, None, line) for at, line in chunk]
                yield pa.record_batch(list(map(list, zip(*rows, strict=True))), schema=COLUMNS)

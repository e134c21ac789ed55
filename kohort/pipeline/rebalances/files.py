"""Histories from files: exported ones as JSON lines, and the logs of brokers that keep none.

Goes through files piece by piece, so that they may be larger than memory.
"""

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import tzinfo
from itertools import chain
from pathlib import Path
from typing import IO, Final, TypeAlias, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kohort.pipeline.broker_log.convert import Converter
from kohort.pipeline.errors import UsageError
from kohort.pipeline.transformations.parsing import RAW

STDIN: Final = "-"
BATCH_LINES: Final = 20_000
BATCH_BYTES: Final = 48 << 20
"""What fits into a driver of two gigabytes, with all that is made of it. Each piece
costs ten seconds of processor that its size has no part in.
"""

LINE_BYTES_MAX: Final = 16 << 20
"""The rest of a longer line is not read; what is left is no JSON and goes into quarantine."""

Line: TypeAlias = tuple[int, bytes]
"""Its number from 0, and what it says."""


@dataclass(frozen=True, slots=True)
class Piece:
    """So many lines of a file as fit into a batch."""

    name: str
    lines: list[Line]

    def frame(self, spark: SparkSession, cluster_id: str) -> DataFrame:
        """The lines as RAW records."""
        numbers, values = zip(*self.lines, strict=True)
        count = len(numbers)
        table = pa.table(
            {
                "cluster_id": pa.array([cluster_id] * count, pa.string()),
                "topic": pa.array([self.name] * count, pa.string()),
                "partition": pa.array([0] * count, pa.int32()),
                "offset": pa.array(numbers, pa.int64()),
                "timestamp": pa.nulls(count, pa.timestamp("us", "UTC")),
                "key": pa.nulls(count, pa.binary()),
                "value": pa.array(values, pa.binary()),
            }
        )
        return spark.createDataFrame(table, RAW)


def check(paths: Sequence[str]) -> None:
    """Raises UsageError for a file that cannot be read, before anything is started."""
    for path in paths:
        if path != STDIN:
            with _opened(path):
                pass


def pieces(paths: Sequence[str], zone: tzinfo) -> Iterator[Piece]:
    """All files, in the order given. Logs that follow each other are one log.

    A file that begins with ``{`` is a history, any other one a log, whose times are of `zone`
    where they do not say. Empty lines are passed over. Those that end in .gz are unpacked.

    Raises:
        UsageError: a file cannot be read.
    """
    converter = Converter(zone)
    name = ""
    for path in paths:
        with _opened(path) as file:
            first = next(_lines(file), None)
            if first is None:
                continue
            lines = chain([first], ((number + first[0] + 1, line) for number, line in _lines(file)))
            name = Path(path).name
            if first[1].lstrip().startswith(b"{"):
                yield from _cut(name, lines)
            else:
                texts = (line.decode(errors="replace") for _, line in lines)
                yield from _cut(name, _told(converter, texts))
    yield from _cut(name, _numbered(converter, converter.end()))


def _told(converter: Converter, texts: Iterator[str]) -> Iterator[Line]:
    yield from _numbered(converter, converter.records(texts))


def _numbered(converter: Converter, records: Iterator[dict[str, object]]) -> Iterator[Line]:
    for record in records:
        yield converter.record_count - 1, json.dumps(record, separators=(",", ":")).encode()


def _cut(name: str, lines: Iterator[Line]) -> Iterator[Piece]:
    held: list[Line] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line[1])
        if len(held) >= BATCH_LINES or size >= BATCH_BYTES:
            yield Piece(name, held)
            held, size = [], 0
    if held:
        yield Piece(name, held)


def _lines(file: IO[bytes]) -> Iterator[Line]:
    """The lines that are not empty; numbers count all."""
    number = -1
    while line := file.readline(LINE_BYTES_MAX):
        number += 1
        if not line.endswith(b"\n"):
            while (rest := file.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                pass
        if stripped := line.strip():
            yield number, stripped


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    try:
        if path == STDIN:
            yield sys.stdin.buffer
        elif path.endswith(".gz"):
            with gzip.open(path, "rb") as packed:
                yield cast("IO[bytes]", packed)
        else:
            with Path(path).open("rb") as file:
                yield file
    except (OSError, EOFError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error

"""Histories from files as records for Spark, piece by piece, so that they may be larger than
memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kohort.pipeline.history_files import Line, check, histories
from kohort.pipeline.transformations.parsing import RAW

__all__ = ["Piece", "check", "pieces"]

BATCH_LINES: Final = 20_000
BATCH_BYTES: Final = 48 << 20
"""What fits into a driver of two gigabytes, with all that is made of it. Each piece
costs ten seconds of processor that its size has no part in.
"""


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


def pieces(paths: Sequence[str], zone: tzinfo) -> Iterator[Piece]:
    """All files, in the order given. Raises what `histories` raises."""
    for name, lines in histories(paths, zone):
        yield from _cut(name, lines)


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

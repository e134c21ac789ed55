"""Records whose timestamps Spark cannot represent: its connector fails on them, and names one.

Spark counts microseconds in 64 bits; a producer that writes nanoseconds where Kafka has
milliseconds exceeds them. The connector converts before anything else sees a record, so the offsets
around such a record are read by a consumer of the driver, and the rest by the connector as usual.
Each failure in a batch doubles how many records the driver reads, so few attempts are enough even
if all of them are so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructField, StructType

from kohort.pipeline.faults import causes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kohort.pipeline.kafka import Kafka, Offsets

BEYOND: Final = "beyond"
"""Column with the reason why a record has no timestamp; null for most."""

_MILLIS_MAX: Final = (2**63 - 1) // 1000
_AT_FIRST: Final = 100
"""Records that the driver reads for the first failure of a batch."""

_FAILED: Final = re.compile(
    r"Record at topic (?P<topic>\S+) partition (?P<partition>\d+) offset (?P<offset>\d+) has "
    r"timestamp value (?P<millis>-?\d+) that overflows"
)
_MILLIS: Final = "millis"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets of a partition that the driver reads: from `first` up to, and without, `end`."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads records of a topic, for one batch."""

    spark: SparkSession
    kafka: Kafka
    topic: str
    read: Callable[[Offsets, Offsets], DataFrame]
    """Reads by the connector, from the one up to, and without, the other."""
    stretches: tuple[Stretch, ...] = ()

    def past(self, error: BaseException, ends: Offsets) -> Reader | None:
        """A reader that does not fail so again; None if the failure is another one."""
        failed = _FAILED.search("\n".join(causes(error)))
        if failed is None or failed["topic"] != self.topic:
            return None
        partition, first = int(failed["partition"]), int(failed["offset"])
        end = min(ends[partition], first + (_AT_FIRST << len(self.stretches)))
        for stretch in self.stretches:
            if stretch.partition == partition:
                if stretch.first <= first < stretch.end:
                    return None
                if first < stretch.first:
                    end = min(end, stretch.first)
        return replace(self, stretches=(*self.stretches, Stretch(partition, first, end)))

    def between(self, begins: Offsets, ends: Offsets) -> DataFrame:
        """The records between, in the connector's columns and BEYOND if any is read otherwise."""
        if not self.stretches:
            return self.read(begins, ends)
        frames = [
            self.read(first, end).withColumn(BEYOND, f.lit(None).cast("string"))
            for first, end in pieces(begins, ends, self.stretches)
        ]
        schema = self.read(begins, begins).schema
        rows = [
            row
            for stretch in self.stretches
            for row in self.kafka.records(
                self.spark,
                self.topic,
                stretch.partition,
                max(stretch.first, begins.get(stretch.partition, 0)),
                min(stretch.end, ends.get(stretch.partition, 0)),
            )
        ]
        return reduce(DataFrame.union, frames, _as_read(self.spark, rows, schema))


def pieces(
    begins: Offsets, ends: Offsets, stretches: Iterable[Stretch]
) -> list[tuple[Offsets, Offsets]]:
    """What lies between the two, outside of the stretches; each piece has all partitions."""
    gaps: dict[int, list[tuple[int, int]]] = {partition: [] for partition in ends}
    at = {partition: begins.get(partition, 0) for partition in ends}
    for stretch in sorted(stretches, key=lambda one: (one.partition, one.first)):
        partition = stretch.partition
        gaps[partition].append((at[partition], min(stretch.first, ends[partition])))
        at[partition] = max(at[partition], stretch.end)
    for partition, end in ends.items():
        gaps[partition].append((at[partition], end))
    found = []
    for number in range(max(map(len, gaps.values()), default=0)):
        chosen = {
            partition: ranges[number] if number < len(ranges) else (end, end)
            for partition, ranges in gaps.items()
            for end in [ends[partition]]
        }
        firsts = {partition: first for partition, (first, _) in chosen.items()}
        lasts = {partition: max(first, end) for partition, (first, end) in chosen.items()}
        if firsts != lasts:
            found.append((firsts, lasts))
    return found


def _as_read(spark: SparkSession, rows: list[tuple[Any, ...]], schema: StructType) -> DataFrame:
    """Rows with the milliseconds of their timestamps as the connector would give them."""
    raw = StructType(
        [
            StructField(_MILLIS, LongType()) if field.name == "timestamp" else field
            for field in schema.fields
        ]
    )
    millis = f.col(_MILLIS)
    is_good = millis.between(-_MILLIS_MAX, _MILLIS_MAX)
    reason = f.concat(f.lit("its timestamp is beyond what Spark has: "), millis.cast("string"))
    return (
        spark.createDataFrame(rows, raw)
        .withColumn("timestamp", f.timestamp_millis(f.when(is_good, millis)))
        .withColumn(BEYOND, f.when(~is_good, reason))
        .select(*schema.names, BEYOND)
    )

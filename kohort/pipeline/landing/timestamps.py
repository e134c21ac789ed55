"""Reads records whose timestamps Spark cannot represent, and on which its connector fails.

Spark's timestamps are microseconds in 64 bits. If a producer writes nanoseconds instead of
milliseconds, the connector fails to convert them, and its error names the first such record. So a
consumer in the driver reads the offsets around that record, and the connector reads
the remaining offsets. Each failure in a batch doubles the number of records that the driver reads,
so a few attempts suffice even if all records of a batch have such timestamps.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructField, StructType

from kohort.pipeline.faults import causes
from kohort.pipeline.kafka import Admin, Offsets

BEYOND: Final = "beyond"
"""Column with the reason why a record has no timestamp; null if it has one."""

_MILLIS_MAX: Final = (2**63 - 1) // 1000
_AT_FIRST: Final = 100
"""Number of records that the driver reads after the first failure of a batch."""

_FAILED: Final = re.compile(
    r"Record at topic (?P<topic>\S+) partition (?P<partition>\d+) offset (?P<offset>\d+) has "
    r"timestamp value (?P<millis>-?\d+) that overflows"
)
_MILLIS: Final = "millis"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of a partition that the driver reads, from `first` to before `end`."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Reader:
    spark: SparkSession
    admin: Admin
    topic: str
    read: Callable[[Offsets, Offsets], DataFrame]
    """Reads the records between two offsets with the connector."""
    by_driver: tuple[OffsetRange, ...] = ()

    def past(self, error: BaseException, ends: Offsets) -> "Reader | None":
        """Return a reader with which the driver reads the record that `error` names; None if that
        is no record of the topic, or one that the driver reads already.
        """
        failed = _FAILED.search("\n".join(causes(error)))
        if failed is None or failed["topic"] != self.topic:
            return None
        partition, first = int(failed["partition"]), int(failed["offset"])
        end = min(ends[partition], first + (_AT_FIRST << len(self.by_driver)))
        for known in self.by_driver:
            if known.partition == partition:
                if known.first <= first < known.end:
                    return None
                if first < known.first:
                    end = min(end, known.first)
        return replace(self, by_driver=(*self.by_driver, OffsetRange(partition, first, end)))

    def between(self, begins: Offsets, ends: Offsets) -> DataFrame:
        """Read the records from `begins` to before `ends`, with the connector's columns, and with
        BEYOND too if the driver reads some of the offsets.
        """
        if not self.by_driver:
            return self.read(begins, ends)
        frames = [
            self.read(first, end).withColumn(BEYOND, f.lit(None).cast("string"))
            for first, end in outside(begins, ends, self.by_driver)
        ]
        schema = self.read(begins, begins).schema
        rows = [
            row
            for known in self.by_driver
            for row in self.admin.records(
                self.topic,
                known.partition,
                max(known.first, begins.get(known.partition, 0)),
                min(known.end, ends.get(known.partition, 0)),
            )
        ]
        return reduce(DataFrame.union, frames, _as_read(self.spark, rows, schema))


def outside(
    begins: Offsets, ends: Offsets, by_driver: Iterable[OffsetRange]
) -> list[tuple[Offsets, Offsets]]:
    """Return the offsets between `begins` and `ends` that the driver does not read, as pairs of
    first and end offsets; each pair covers all partitions.
    """
    gaps: dict[int, list[tuple[int, int]]] = {partition: [] for partition in ends}
    at = {partition: begins.get(partition, 0) for partition in ends}
    for known in sorted(by_driver, key=lambda known: (known.partition, known.first)):
        partition = known.partition
        gaps[partition].append((at[partition], min(known.first, ends[partition])))
        at[partition] = max(at[partition], known.end)
    for partition, end in ends.items():
        gaps[partition].append((at[partition], end))
    pairs = []
    for number in range(max(map(len, gaps.values()), default=0)):
        chosen = {
            partition: ranges[number] if number < len(ranges) else (end, end)
            for partition, ranges in gaps.items()
            for end in [ends[partition]]
        }
        firsts = {partition: first for partition, (first, _) in chosen.items()}
        lasts = {partition: max(first, end) for partition, (first, end) in chosen.items()}
        if firsts != lasts:
            pairs.append((firsts, lasts))
    return pairs


def _as_read(spark: SparkSession, rows: list[tuple[Any, ...]], schema: StructType) -> DataFrame:
    """Convert rows with timestamps in milliseconds to the connector's columns plus BEYOND."""
    raw = StructType(
        [
            StructField(_MILLIS, LongType()) if field.name == "timestamp" else field
            for field in schema.fields
        ]
    )
    millis = f.col(_MILLIS)
    is_good = millis.between(-_MILLIS_MAX, _MILLIS_MAX)
    reason = f.concat(f.lit("its timestamp exceeds Spark's range: "), millis.cast("string"))
    return (
        spark.createDataFrame(rows, raw)
        .withColumn("timestamp", f.timestamp_millis(f.when(is_good, millis)))
        .withColumn(BEYOND, f.when(~is_good, reason))
        .select(*schema.names, BEYOND)
    )

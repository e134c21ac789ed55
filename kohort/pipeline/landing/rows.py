"""The columns of landed topics and of the table `gaps`."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kohort.pipeline.landing.decoding import DECODED, UNDECODABLE, Decoding
from kohort.pipeline.landing.timestamps import BEYOND

HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

LANDED: Final = StructType(
    [
        # Offsets are unique only together with these two columns.
        StructField("topic_id", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        # 0: the producer's time. 1: the broker's.
        StructField("timestampType", IntegerType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
        # Landing time of the batch; null in rows of earlier versions.
        StructField("landed_at", TimestampType()),
    ]
)
"""One row per record, with the column names of Spark's connector."""

DAY: Final = "day"
"""The column by which tables are partitioned with --partition-by-day: the UTC day of
`timestamp`."""

GAPS: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("topic_id", StringType()),
        StructField("partition", IntegerType()),
        # Offset of the first lost record, and the offset after the last one; null if unknown.
        StructField("from_offset", LongType()),
        StructField("to_offset", LongType()),
        StructField("reason", StringType()),
        StructField("noticed_at", TimestampType()),
    ]
)
"""One row per range of records that were lost before they could be landed."""

GAPS_KEY: Final = ("topic", "topic_id", "partition", "from_offset")


PLACE: Final = ("partition", "offset")
"""The columns that identify a record among those of one topic id."""

QUARANTINED: Final = StructType([*LANDED.fields, StructField(UNDECODABLE, StringType())])
"""One row per record whose value could not be decoded, or whose timestamp Spark cannot represent,
with the reason. Such a timestamp is null."""


@dataclass(frozen=True, slots=True)
class Shape:
    by_day: bool = False
    decoding: Decoding | None = None

    @property
    def schema(self) -> StructType:
        day = [StructField(DAY, DateType())] if self.by_day else []
        decoded = [StructField(DECODED, StringType())] if self.decoding is not None else []
        return StructType([*LANDED.fields, *decoded, *day])

    @property
    def partition_by(self) -> tuple[str, ...]:
        return (DAY,) if self.by_day else ()

    def landed(self, frame: DataFrame, topic_id: str) -> DataFrame:
        """Convert rows of the connector, with headers, to rows of the table. If some may have to be
        quarantined, add the column UNDECODABLE: the reason for quarantine, null in good rows.
        """
        rows = frame.withColumn("topic_id", f.lit(topic_id)).withColumn(
            "landed_at", f.current_timestamp()
        )
        reasons = [f.col(BEYOND)] if BEYOND in frame.columns else []
        if self.decoding is not None:
            rows = self.decoding.decoded(rows)
            reasons.append(f.col(UNDECODABLE))
        if reasons:
            rows = rows.withColumn(UNDECODABLE, f.coalesce(*reasons))
        if self.by_day:
            rows = rows.withColumn(DAY, f.to_date("timestamp"))
        reason = [UNDECODABLE] if reasons else []
        return rows.select(*self.schema.names, *reason)

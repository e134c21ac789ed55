"""The columns of landed topics, and of the gaps in them."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

LANDED: Final = StructType(
    [
        # An offset means something only together with these two.
        StructField("topic_id", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        # 0: the producer's time. 1: the broker's.
        StructField("timestampType", IntegerType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
    ]
)
"""One row for each record, named as Spark's connector names them."""

GAPS: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("topic_id", StringType()),
        StructField("partition", IntegerType()),
        # The first record that is missing, and the first that is there again. Null: not known.
        StructField("from_offset", LongType()),
        StructField("to_offset", LongType()),
        StructField("reason", StringType()),
        StructField("noticed_at", TimestampType()),
    ]
)
"""One row for each stretch of records that were gone before they could be landed."""

GAPS_KEY: Final = ("topic", "topic_id", "partition", "from_offset")


def landed(frame: DataFrame, topic_id: str) -> DataFrame:
    """Rows of the connector, with headers, as LANDED."""
    return frame.withColumn("topic_id", f.lit(topic_id)).select(LANDED.names)

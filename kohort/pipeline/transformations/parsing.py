"""From records as they lie in the topic, or lines of a file, to events or reasons against them."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from kohort.pipeline.schema_version import SCHEMA_VERSION
from kohort.pipeline.schemas import QUARANTINE
from kohort.pipeline.schemas.columns import BYTES, MOMENT, SMALL, TEXT, WHOLE
from kohort.pipeline.schemas.event import AVOIDED, CORRUPT, EVENT, REBALANCE, RUNNING
from kohort.pipeline.transformations.common import EVENT as IDENTITY
from kohort.pipeline.transformations.common import MOMENT_MAX_MS, conform

RAW: Final = StructType(
    [
        StructField("cluster_id", TEXT),
        StructField("topic", TEXT),
        StructField("partition", SMALL),
        StructField("offset", WHOLE),
        StructField("timestamp", MOMENT),
        StructField("key", BYTES),
        StructField("value", BYTES),
    ]
)
"""What comes in."""

SEQUENCE_MAX: Final = 2**53
"""Whole numbers that every reader of JSON understands."""

_READ: Final = StructType([*EVENT.fields, StructField(CORRUPT, TEXT)])


def parsed(raw: DataFrame) -> DataFrame:
    """RAW with `event`, the struct EVENT, and `reason` and `detail`, null where it is one."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    text = f.col("value").cast("string")
    return (
        raw.withColumn("text", text)
        .withColumn("event", f.from_json("text", _READ, options))
        .withColumn("reason", _reason())
        .withColumn("detail", _detail())
        .withColumn("event", f.col("event").dropFields(CORRUPT))
    )


def good(frame: DataFrame) -> DataFrame:
    """The rows of `parsed` that are events."""
    return frame.where(f.col("reason").isNull())


def complete(frame: DataFrame) -> DataFrame:
    """The rows of `good` without those that were told before their end."""
    return frame.where(~_is_running())


def unfinished(frame: DataFrame) -> DataFrame:
    """The rows of `good` that were told before their end."""
    return frame.where(_is_running())


def quarantined(frame: DataFrame) -> DataFrame:
    """The rows of `parsed` that are no events, as the table `quarantine` has them."""
    bad = frame.where(f.col("reason").isNotNull())
    return conform(bad.withColumn("key", f.col("key").cast("string")), QUARANTINE)


def keyed(frame: DataFrame) -> DataFrame:
    """With the identity of the event as columns."""
    return frame.select(
        "*",
        f.col("event.group").alias("group"),
        f.col("event.sequence").alias("sequence"),
    )


def identified(frame: DataFrame) -> DataFrame:
    """`keyed`, and a hash of what it says as `fingerprint`."""
    return keyed(frame).withColumn("fingerprint", fingerprint(f.col("event")))


def fingerprint(event: Column) -> Column:
    """The same for the same event, however its JSON was written."""
    return f.xxhash64(f.to_json(event))


def fingerprint_of_text(text: Column) -> Column:
    """The fingerprint of the JSON that a table has kept of an event."""
    return fingerprint(f.from_json(text, EVENT))


def without_repetitions(frame: DataFrame) -> DataFrame:
    """The rows of `identified` without repetitions: of each event the first, and whatever
    contradicts it.
    """
    return (
        frame.groupBy(*IDENTITY, "fingerprint")
        .agg(f.min_by(f.struct(*RAW.names, "text", "event"), "offset").alias("first"))
        .select("fingerprint", "first.*", "group", "sequence")
    )


def refused(frame: DataFrame) -> DataFrame:
    """The rows of `identified` as quarantined, since another event has their sequence number."""
    said = frame.select(
        *RAW.names,
        f.lit("sequence_taken").alias("reason"),
        f.concat(
            f.lit("another event of the group "),
            f.col("group"),
            f.lit(" has the sequence number "),
            f.col("sequence").cast("string"),
        ).alias("detail"),
    )
    return quarantined(said)


def _is_running() -> Column:
    is_running = (f.col("event.kind") == REBALANCE) & (f.col("event.outcome") == RUNNING)
    return f.coalesce(is_running, f.lit(False))


def _reason() -> Column:
    """The first thing that is wrong with it."""
    text, kind, version = f.col("text"), f.col("event.kind"), f.col("event.schema")
    is_corrupt = f.col("event").isNull() | f.col(f"event.{CORRUPT}").isNotNull()
    is_object = f.ltrim(text).startswith("{")
    return (
        f.when(text.isNull(), "no_value")
        .when(~is_object, "not_json")
        .when(is_corrupt & f.try_parse_json(text).isNull(), "not_json")
        .when(version != SCHEMA_VERSION, "schema_version")
        .when(is_corrupt, "not_of_the_schema")
        .when(version.isNull(), "missing_field")
        .when(kind.isNull(), "missing_field")
        .when(~kind.isin(REBALANCE, AVOIDED), "unknown_kind")
        .when(_missing().isNotNull(), "missing_field")
        .when(~_started_at_ms().between(0, MOMENT_MAX_MS), "not_of_the_schema")
        .when(~f.col("event.sequence").between(1, SEQUENCE_MAX), "not_of_the_schema")
    )


def _detail() -> Column:
    reason, event = f.col("reason"), "event."
    return (
        f.when(reason == "no_value", "the record has no value")
        .when(reason == "not_json", "no object of JSON")
        .when(
            reason == "schema_version",
            f.concat(
                f.lit("schema "),
                f.col(f"{event}schema").cast("string"),
                f.lit(f", and only {SCHEMA_VERSION} is understood"),
            ),
        )
        .when(reason == "not_of_the_schema", "a field's value is of another type, or out of range")
        .when(reason == "unknown_kind", f.concat(f.lit("kind "), f.col(f"{event}kind")))
        .when(reason == "missing_field", f.coalesce(_missing(), f.lit("schema or kind")))
    )


def _missing() -> Column:
    """The name of a field that every event has, and this one has not."""
    event = f.col("event")
    return (
        f.when(event["group"].isNull(), "group")
        .when(event["sequence"].isNull(), "sequence")
        .when(event["trigger"]["kind"].isNull(), "trigger.kind")
        .when(_started_at_ms().isNull(), "started_at_ms or at_ms")
        .when((event["kind"] == REBALANCE) & event["outcome"].isNull(), "outcome")
    )


def _started_at_ms() -> Column:
    event = f.col("event")
    return f.when(event["kind"] == REBALANCE, event["started_at_ms"]).otherwise(event["at_ms"])

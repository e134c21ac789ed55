"""What groups come to: causes, needless rebalances, what is missing, and a row for each group."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kohort.pipeline.schemas import CAUSES, GROUPS, NEEDLESS, SEQUENCE_GAPS
from kohort.pipeline.transformations.common import EVENT, GROUP, conform, count_of, total

_CAUSE = (*GROUP, "trigger_kind")


def needless(rebalances: DataFrame) -> DataFrame:
    """The table `needless`."""
    return conform(rebalances.where("needless"), NEEDLESS)


def causes(rebalances: DataFrame, avoided: DataFrame) -> DataFrame:
    """The table `causes`."""
    happened = rebalances.groupBy(*_CAUSE).agg(
        f.count("*").alias("rebalance_count"),
        count_of(f.col("needless")).alias("needless_count"),
        total(f.col("stopped_total_ms")).alias("stopped_total_ms"),
        f.max("stopped_longest_ms").alias("stopped_longest_ms"),
        f.percentile_approx("duration_ms", 0.5).alias("duration_p50_ms"),
        f.max("started_at").alias("last_rebalance_at"),
    )
    not_happened = avoided.groupBy(*_CAUSE).agg(
        f.count("*").alias("avoided_count"), f.max("at").alias("last_avoided_at")
    )
    counts = [
        "rebalance_count",
        "avoided_count",
        "needless_count",
        "stopped_total_ms",
        "stopped_longest_ms",
    ]
    frame = (
        happened.join(not_happened, list(_CAUSE), "full")
        .fillna(0, counts)
        .withColumn("last_at", f.greatest("last_rebalance_at", "last_avoided_at"))
    )
    return conform(frame, CAUSES)


def numbers(rebalances: DataFrame, avoided: DataFrame) -> DataFrame:
    """Sequence number and moment of each event."""
    return rebalances.select(*EVENT, f.col("started_at").alias("at")).unionByName(
        avoided.select(*EVENT, "at")
    )


def sequence_gaps(numbers: DataFrame, running: DataFrame) -> DataFrame:
    """The table `sequence_gaps`, of `numbers` and the table `running`."""
    in_order = Window.partitionBy(*GROUP).orderBy("sequence")
    gaps = (
        numbers.withColumn("next", f.lead("sequence").over(in_order))
        .withColumn("before_at", f.lead("at").over(in_order))
        .where(f.col("next") > f.col("sequence") + 1)
        .select(
            *GROUP,
            (f.col("sequence") + 1).alias("from_sequence"),
            (f.col("next") - 1).alias("to_sequence"),
            (f.col("next") - f.col("sequence") - 1).alias("missing_count"),
            f.col("at").alias("after_at"),
            "before_at",
        )
    )
    known = running.select(*EVENT)
    found = (
        gaps.join(known, list(GROUP))
        .where(f.col("sequence").between(f.col("from_sequence"), f.col("to_sequence")))
        .groupBy(*GROUP, "from_sequence")
        .agg(f.count("*").alias("running_count"))
    )
    frame = gaps.join(found, [*GROUP, "from_sequence"], "left").fillna(0, ["running_count"])
    return conform(frame, SEQUENCE_GAPS)


def groups(
    rebalances: DataFrame, avoided: DataFrame, unavailability: DataFrame, storms: DataFrame
) -> DataFrame:
    """The table `groups`."""
    seen = (
        numbers(rebalances, avoided)
        .groupBy(*GROUP)
        .agg(
            f.min("sequence").alias("first_sequence"),
            f.max("sequence").alias("last_sequence"),
            f.count("*").alias("event_count"),
            f.min("at").alias("first_at"),
            f.max("at").alias("last_at"),
        )
        .withColumn(
            "missing_count",
            f.col("last_sequence") - f.col("first_sequence") + 1 - f.col("event_count"),
        )
    )
    happened = rebalances.groupBy(*GROUP).agg(
        f.count("*").alias("rebalance_count"),
        count_of(f.col("needless")).alias("needless_count"),
        total(f.col("stopped_total_ms")).alias("stopped_total_ms"),
        f.coalesce(f.max("stopped_longest_ms"), f.lit(0)).alias("stopped_longest_ms"),
    )
    idle = unavailability.groupBy(*GROUP).agg(
        total(f.col("total_ms")).alias("unavailable_total_ms")
    )
    frame = (
        seen.join(happened, list(GROUP), "left")
        .join(avoided.groupBy(*GROUP).agg(f.count("*").alias("avoided_count")), list(GROUP), "left")
        .join(idle, list(GROUP), "left")
        .join(storms.groupBy(*GROUP).agg(f.count("*").alias("storm_count")), list(GROUP), "left")
        .fillna(0)
    )
    return conform(frame, GROUPS)

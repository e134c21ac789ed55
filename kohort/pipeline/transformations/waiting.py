"""The members that groups wait for, and how long it takes until members are heard of."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kohort.pipeline.schemas import HEARTBEAT_GAPS, SLOW_MEMBERS
from kohort.pipeline.transformations.common import EVENT, GROUP, conform, count_of, process, total

_PROCESS = (*GROUP, "process")


def slow_members(rebalances: DataFrame, members: DataFrame) -> DataFrame:
    """The table `slow_members`: members that were waited for, or missed the rebalance timeout."""
    named = members.withColumn("process", process())
    frame = (
        _joins(named)
        .join(_waits(rebalances, named), list(_PROCESS), "full")
        .fillna(0)
        .where((f.col("waited_for_count") > 0) | (f.col("missed_count") > 0))
    )
    return conform(frame, SLOW_MEMBERS)


def heartbeat_gaps(rebalances: DataFrame, members: DataFrame) -> DataFrame:
    """The table `heartbeat_gaps`: of members that were told of a rebalance, or fell silent."""
    timeouts = rebalances.where(f.col("trigger_kind") == "session_expired").select(
        *EVENT,
        f.col("trigger_member_id").alias("member_id"),
        "trigger_session_timeout_ms",
    )
    frame = (
        members.withColumn("process", process())
        .join(timeouts, [*EVENT, "member_id"], "left")
        .groupBy(*_PROCESS)
        .agg(
            f.count("told_ms").alias("told_count"),
            *(
                f.percentile_approx("told_ms", share).alias(f"told_p{percent}_ms")
                for percent, share in ((50, 0.5), (90, 0.9), (99, 0.99))
            ),
            f.max("told_ms").alias("told_longest_ms"),
            count_of(f.col("fate") == "session_expired").alias("expired_count"),
            f.max("trigger_session_timeout_ms").alias("expired_timeout_ms"),
        )
        .where((f.col("told_count") > 0) | (f.col("expired_count") > 0))
    )
    return conform(frame, HEARTBEAT_GAPS)


def _waits(rebalances: DataFrame, named: DataFrame) -> DataFrame:
    """One row for each process and each wait for it; several may be waited for at once."""
    waits = rebalances.where(f.col("waited_phase").isin("join", "sync")).select(
        *EVENT,
        "waited_phase",
        "waited_ms",
        f.explode("waited_member_ids").alias("member_id"),
    )
    known = named.select(*EVENT, "member_id", "process").dropDuplicates([*EVENT, "member_id"])
    return (
        waits.join(known, [*EVENT, "member_id"], "left")
        # Members that the event does not list are only known by their id.
        .withColumn("process", f.coalesce("process", "member_id"))
        .groupBy(*_PROCESS)
        .agg(
            f.count("*").alias("waited_for_count"),
            total(f.col("waited_ms")).alias("waited_for_total_ms"),
            f.max("waited_ms").alias("waited_for_longest_ms"),
            count_of(f.col("waited_phase") == "join").alias("for_join_count"),
            count_of(f.col("waited_phase") == "sync").alias("for_assignment_count"),
        )
    )


def _joins(named: DataFrame) -> DataFrame:
    return named.groupBy(*_PROCESS).agg(
        f.max_by("client_id", "sequence").alias("client_id"),
        f.max_by("host", "sequence").alias("host"),
        f.count("join_delay_ms").alias("join_count"),
        f.percentile_approx("join_delay_ms", 0.5).alias("join_delay_p50_ms"),
        f.percentile_approx("join_delay_ms", 0.99).alias("join_delay_p99_ms"),
        f.max("join_delay_ms").alias("join_delay_longest_ms"),
        count_of(f.col("fate") == "rebalance_timeout").alias("missed_count"),
        f.max("started_at").alias("last_at"),
    )

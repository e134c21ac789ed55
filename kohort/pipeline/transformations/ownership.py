"""The owners of partitions over time, and for how long each was not read.

Events name the partitions that a member gained and gave up, not those that it kept. So what a
member holds is put together from one event to the next, per partition: a span of rebalances, from
the one that gave it to the one that took it away. Within its span a partition stops and starts
with its owner: an eager member stops at each rebalance that it joins, for all that it holds.

Partitions of a topic that always moved together have the same times throughout. They are worked out
once, and are one row with all their numbers: in a group of eight members with 24 partitions, an
eager rebalance makes 16 rows and not 48.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from kohort.pipeline.schemas import PARTITIONS, UNAVAILABILITY
from kohort.pipeline.transformations.common import (
    EVENT,
    GONE,
    GROUP,
    PARTITION,
    between_ms,
    conform,
    count_of,
    later,
    total,
)

_LOSS: Final = 0
_GAIN: Final = 1
_STOP: Final = 0
_START: Final = 1
"""In this order within one rebalance: a partition is taken before it is given."""

_WHO: Final = ("member_id", "owner", "client_id")
_SET: Final = (*GROUP, "topic", "first_partition")
"""Partitions that moved together are known by the smallest of their numbers."""


def partitions(members: DataFrame, rebalances: DataFrame, recent: DataFrame) -> DataFrame:
    """The table `partitions`, of groups of which all of `members` and `rebalances` is given.

    `recent` are the members of the rebalances in which an owner's stop is looked for. There are as
    many stops as partitions times rebalances, while spans, found over the whole of the history,
    are as many as moves.
    """
    named = _together(_named(members))
    ordered = _transitions(named, _stops(_spans(named), recent))
    return conform(_with_causes(_intervals(ordered), rebalances), PARTITIONS)


def by_partition(partitions: DataFrame) -> DataFrame:
    """The table `partitions` with a row, and its number as `partition`, for each partition."""
    return partitions.select("*", f.explode("partitions").alias("partition")).drop("partitions")


def unavailability(partitions: DataFrame) -> DataFrame:
    """The table `unavailability`, of the table `partitions`."""
    cause = f.coalesce("cause", f.lit("unknown")).alias("cause")
    frame = (
        partitions.where(f.col("state") == "unavailable")
        .groupBy(*GROUP, "topic", "partitions", cause)
        .agg(
            f.count("*").alias("times"),
            total(f.col("duration_ms")).alias("total_ms"),
            f.coalesce(f.max("duration_ms"), f.lit(0)).alias("longest_ms"),
            count_of(f.col("duration_ms").isNull()).alias("open_count"),
            f.max("from_at").alias("last_at"),
        )
    )
    return conform(by_partition(frame), UNAVAILABILITY)


def _named(members: DataFrame) -> DataFrame:
    """One row for each partition that a member gained or gave up, with its times there."""
    moved = members.where((f.size("gained") > 0) | (f.size("given_up") > 0))
    rows = moved.select(
        *EVENT,
        *_WHO,
        _stop_at().alias("stop_at"),
        _start_at().alias("start_at"),
        _how().alias("how"),
        f.explode(
            f.concat(_tagged("given_up", _LOSS), _tagged("gained", _GAIN)),
        ).alias("moved"),
    )
    pattern = f.lit(r"^(.+)-(\d+)$")
    name = f.col("moved.name")
    return (
        rows.withColumn("topic", f.regexp_extract(name, r"^(.+)-(\d+)$", 1))
        .withColumn(
            "partition", f.expr(r"try_cast(regexp_extract(moved.name, '-(\\d+)$', 1) AS INT)")
        )
        .withColumn("move", f.col("moved.move"))
        .where(f.regexp_like(name, pattern) & f.col("partition").isNotNull())
        .drop("moved")
    )


def _together(named: DataFrame) -> DataFrame:
    """The rows of `named` once for each set of partitions of which they say the same."""
    columns = ("sequence", "move", *_WHO, "stop_at", "start_at", "how")
    return (
        named.groupBy(*PARTITION)
        .agg(f.sort_array(f.collect_list(f.struct(*columns))).alias("moves"))
        .groupBy(*GROUP, "topic", "moves")
        .agg(f.sort_array(f.collect_list("partition")).alias("partitions"))
        .select(
            *GROUP,
            "topic",
            f.array_min("partitions").alias("first_partition"),
            "partitions",
            f.inline("moves"),
        )
    )


def _tagged(name: str, move: int) -> Column:
    pairs = f.transform(name, lambda item: f.struct(item.alias("name"), f.lit(move).alias("move")))
    return f.coalesce(pairs, f.array().cast("array<struct<name:string,move:int>>"))


def _spans(named: DataFrame) -> DataFrame:
    """From each gain to the next time that a member is named for the partition."""
    following = Window.partitionBy(*_SET).orderBy("sequence", "move")
    return (
        named.withColumn("until_sequence", f.lead("sequence").over(following))
        .where(f.col("move") == _GAIN)
        .select(*_SET, "partitions", "sequence", "until_sequence", "owner")
    )


def _stops(spans: DataFrame, recent: DataFrame) -> DataFrame:
    """Where owners stop and start again with what they hold: (partitions, rebalance, owner)."""
    is_eager = (f.col("mode") == "eager") & f.col("join_received_ms").isNotNull()
    stopping = recent.where(is_eager | f.col("fate").isin(*GONE)).select(
        *GROUP,
        "owner",
        *(f.col(name).alias(f"stop_{name}") for name in ("sequence", "member_id", "client_id")),
        _stop_at().alias("stop_at"),
        f.when(is_eager & f.col("fate").isin("kept", "new"), _start_at()).alias("start_at"),
        _how().alias("how"),
    )
    until = f.col("until_sequence")
    joined = spans.join(stopping, [*GROUP, "owner"]).where(
        (f.col("stop_sequence") > f.col("sequence"))
        & (until.isNull() | (f.col("stop_sequence") <= until))
    )
    return joined.select(
        *_SET,
        "partitions",
        f.col("stop_sequence").alias("sequence"),
        f.col("stop_member_id").alias("member_id"),
        "owner",
        f.col("stop_client_id").alias("client_id"),
        "stop_at",
        f.when(until.isNull() | (f.col("stop_sequence") < until), f.col("start_at")).alias(
            "start_at"
        ),
        "how",
    )


def _transitions(named: DataFrame, stops: DataFrame) -> DataFrame:
    """Stops and starts of each partition, one of each at most per rebalance."""
    losses, gains = named.where(f.col("move") == _LOSS), named.where(f.col("move") == _GAIN)
    rows = (
        _as_transition(losses, _STOP, "stop_at")
        .unionByName(_as_transition(stops, _STOP, "stop_at"))
        .unionByName(_as_transition(stops, _START, "start_at"))
        .unionByName(_as_transition(gains, _START, "start_at"))
        .where(f.col("at").isNotNull())
    )
    # In the order that all that follows needs: one shuffle and one sort for this and for intervals.
    same = Window.partitionBy(*_SET, "sequence", "turn").orderBy("at", "how", *_WHO)
    return (
        rows.repartition(*_SET)
        .withColumn("rank", f.row_number().over(same))
        .where(f.col("rank") == 1)
        .drop("rank")
    )


def _as_transition(frame: DataFrame, turn: int, at: str) -> DataFrame:
    return frame.select(
        *_SET,
        "partitions",
        "sequence",
        *_WHO,
        "how",
        f.lit(turn).alias("turn"),
        f.col(at).alias("at"),
    )


def _intervals(transitions: DataFrame) -> DataFrame:
    """From each transition to the next; a stop behind a stop changes nothing."""
    in_order = Window.partitionBy(*_SET).orderBy("sequence", "turn")
    is_again = (f.col("turn") == _STOP) & (f.lag("turn").over(in_order) == _STOP)
    kept = transitions.withColumn("again", f.coalesce(is_again, f.lit(False))).where(
        ~f.col("again")
    )
    then = {name: f.lead(name).over(in_order) for name in ("at", "turn", "sequence", "how")}
    is_owned = f.col("turn") == _START
    # A start behind a start: what took the partition away in between is not known.
    is_lost = is_owned & (f.col("then_turn") == _START)
    return (
        kept.select("*", *(column.alias(f"then_{name}") for name, column in then.items()))
        .withColumn("state", f.when(is_owned, "owned").otherwise("unavailable"))
        .withColumn("until_at", f.when(~f.coalesce(is_lost, f.lit(False)), f.col("then_at")))
        .withColumn("until_sequence", f.when(f.col("until_at").isNotNull(), f.col("then_sequence")))
        .withColumn(
            "ended_by",
            f.when(is_lost, "unknown")
            .when(f.col("then_at").isNull(), None)
            .when(is_owned, f.col("then_how"))
            .otherwise("assigned"),
        )
        .withColumnRenamed("at", "from_at")
        .withColumn("duration_ms", between_ms(f.col("from_at"), f.col("until_at")))
        .withColumn("duration_ms", f.when(f.col("until_at").isNotNull(), f.col("duration_ms")))
    )


def _with_causes(intervals: DataFrame, rebalances: DataFrame) -> DataFrame:
    causes = rebalances.select(
        *EVENT, "trigger_kind", "trigger_member_id", "trigger_session_timeout_ms"
    )
    is_stop = f.col("state") == "unavailable"
    expired = is_stop & (f.col("how") == "session_expired")
    return (
        intervals.join(causes, list(EVENT), "left")
        .withColumn("cause", f.when(is_stop, f.col("trigger_kind")))
        .withColumn("cause_member_id", f.when(is_stop, f.col("trigger_member_id")))
        .withColumn("unnoticed_ms_max", f.when(expired, f.col("trigger_session_timeout_ms")))
    )


def _stop_at() -> Column:
    """When a member stopped in a rebalance: at its join if eager, at the answer that took what it
    has to give up if cooperative, and when it was removed at the latest.
    """
    is_gone = f.col("fate").isin(*GONE)
    ms = f.least(
        f.when(f.col("mode") == "eager", f.col("join_received_ms")),
        f.when(is_gone, f.col("fate_ms")),
        f.when((f.col("mode") == "cooperative") & ~is_gone, f.col("sync_answered_ms")),
    )
    return later(f.col("started_at"), f.coalesce(ms, f.lit(0)))


def _start_at() -> Column:
    return later(f.col("started_at"), f.col("sync_answered_ms"))


def _how() -> Column:
    return (
        f.when(f.col("fate").isin(*GONE), f.col("fate"))
        .when(f.col("mode") == "eager", "stopped")
        .otherwise("given_up")
    )

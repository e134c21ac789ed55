"""Bursts of rebalances, and who began them."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from kohort.pipeline.schemas import STORMS
from kohort.pipeline.transformations.common import (
    EVENT,
    GONE,
    GROUP,
    between_ms,
    conform,
    count_of,
    total,
)

_STORM: Final = (*GROUP, "first_sequence")
_FEW: Final = 2
"""Processes, at least, that go and that come when a new version is rolled out."""


def storms(rebalances: DataFrame, members: DataFrame, *, quiet_ms: int, size: int) -> DataFrame:
    """The table `storms`: runs of `size` rebalances or more without `quiet_ms` between two."""
    numbered = _numbered(rebalances, quiet_ms)
    whole = Window.partitionBy(*_STORM)
    stormy = numbered.withColumn("burst_size", f.count("*").over(whole)).where(
        f.col("burst_size") >= size
    )
    frame = (
        _summed(stormy)
        .join(_main_clients(stormy), list(_STORM), "left")
        .join(_comings(stormy, members), list(_STORM), "left")
        .withColumn("started_by", _started_by())
    )
    return conform(frame.fillna(0, ["left_count", "new_count", "member_count"]), STORMS)


def _numbered(rebalances: DataFrame, quiet_ms: int) -> DataFrame:
    """With the sequence of the first rebalance of the burst that each one belongs to."""
    in_order = Window.partitionBy(*GROUP).orderBy("sequence")
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    ended_at = f.coalesce("ended_at", "started_at")
    silence_ms = between_ms(f.max(ended_at).over(earlier), f.col("started_at"))
    has_earlier = f.lag("sequence").over(in_order).isNotNull()
    goes_on = has_earlier & ((silence_ms <= quiet_ms) | f.col("follows").isNotNull())
    begins = f.when(~f.coalesce(goes_on, f.lit(False)), f.col("sequence"))
    return rebalances.withColumn("begins", begins).withColumn(
        "first_sequence", f.last("begins", ignorenulls=True).over(in_order)
    )


def _summed(stormy: DataFrame) -> DataFrame:
    first = f.min_by(
        f.struct(
            f.col("trigger_kind").alias("first_cause"),
            f.col("trigger_member_id").alias("first_member_id"),
            f.col("trigger_client_id").alias("first_client_id"),
            f.col("trigger_host").alias("first_host"),
        ),
        "sequence",
    )
    stated = (f.col("trigger_reason") == "RESTART") & (f.col("trigger_reason_source") == "tag")
    frame = stormy.groupBy(*_STORM).agg(
        f.max("sequence").alias("last_sequence"),
        f.min("started_at").alias("started_at"),
        f.when(f.count("ended_at") == f.count("*"), f.max("ended_at")).alias("ended_at"),
        f.count("*").alias("rebalance_count"),
        f.count("follows").alias("follow_up_count"),
        count_of(f.col("needless")).alias("needless_count"),
        f.sort_array(f.collect_set("trigger_kind")).alias("causes"),
        total(f.col("stopped_total_ms")).alias("stopped_total_ms"),
        f.coalesce(f.max("stopped_longest_ms"), f.lit(0)).alias("stopped_longest_ms"),
        count_of(stated).alias("stated_restarts"),
        first.alias("first"),
    )
    return frame.select("*", "first.*").withColumn(
        "duration_ms",
        f.when(f.col("ended_at").isNotNull(), between_ms(f.col("started_at"), f.col("ended_at"))),
    )


def _main_clients(stormy: DataFrame) -> DataFrame:
    """Which client ids began how many of a storm's rebalances."""
    by_client = (
        stormy.where(f.col("trigger_client_id").isNotNull())
        .groupBy(*_STORM, "trigger_client_id", "trigger_host")
        .agg(f.count("*").alias("caused"))
    )
    return by_client.groupBy(*_STORM).agg(
        f.count_distinct("trigger_client_id").alias("member_count"),
        f.max_by("trigger_client_id", f.struct("caused", "trigger_client_id")).alias(
            "main_client_id"
        ),
        f.max("caused").alias("main_client_count"),
    )


def _comings(stormy: DataFrame, members: DataFrame) -> DataFrame:
    """Processes that went and that came during a storm: by instance id, or client id and host."""
    name = f.coalesce("instance_id", f.concat_ws("@", "client_id", "host"))
    went, came = f.col("fate").isin(*GONE, "replaced"), f.col("fate") == "new"
    return (
        stormy.select(*EVENT, "first_sequence")
        .join(members.where(went | came | (f.col("fate") == "replaced")), list(EVENT))
        .groupBy(*_STORM)
        .agg(
            count_of(went).alias("left_count"),
            count_of(came | (f.col("fate") == "replaced")).alias("new_count"),
            f.count_distinct(f.when(went, name)).alias("processes_left"),
            f.count_distinct(f.when(came | (f.col("fate") == "replaced"), name)).alias(
                "processes_new"
            ),
        )
    )


def _started_by() -> Column:
    left, new = f.col("processes_left"), f.col("processes_new")
    return (
        f.when((left >= _FEW) & (new >= _FEW), "deploy")
        .when(f.col("stated_restarts") >= _FEW, "deploy")
        .when(f.col("main_client_count") * 2 >= f.col("rebalance_count"), "member")
        .when((new > 0) & (left == 0), "scale_out")
        .when((left > 0) & (new == 0), "scale_in")
        .otherwise("several")
    )

"""Events as rows: one for each rebalance, each avoided one, each member of a rebalance."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from kohort.pipeline.schemas import AVOIDED, MEMBERS, REBALANCES, RUNNING
from kohort.pipeline.schemas.event import AVOIDED as AVOIDED_KIND
from kohort.pipeline.schemas.event import REBALANCE
from kohort.pipeline.transformations.common import conform, later, moment

_SOURCE: Final = ("cluster_id", "topic", "partition", "offset")
_AS_THEY_ARE: Final = (
    "group",
    "sequence",
    "previous_generation",
    "generation",
    "previous_state",
    "initial",
    "follows",
    "superseded_by",
    "protocol_type",
    "protocol",
    "further_causes_dropped",
    "outcome",
    "error",
    "leader",
    "leader_changed",
    "leader_change",
    "members_before",
    "members_after",
    "members_dropped",
    "pending_transactions",
    "fenced_commits",
)
_OF_TRIGGER: Final = (
    "kind",
    "member_id",
    "instance_id",
    "client_id",
    "host",
    "was_leader",
    "reason",
    "reason_source",
    "reason_text",
    "row",
    "removed_count",
    "session_timeout_ms",
    "rebalance_timeout_ms",
    "error",
    "detail",
    "silent_ms",
    "unfetched_ms",
    "grown_topics",
    "grown_ms",
)
ENFORCED: Final = "ENFORCED"
"""The JoinReason of Consumer.enforceRebalance."""
_OF_FURTHER_CAUSE: Final = (
    "kind",
    "after_ms",
    "member_id",
    "instance_id",
    "client_id",
    "reason",
)


def rebalances(events: DataFrame) -> DataFrame:
    """The table `rebalances`, of parsed events of any kind."""
    event = f.col("event")
    timeline, waited, stopped = event["timeline"], event["waited_for"], event["stopped"]
    started_at = moment(event["started_at_ms"])
    frame = events.where(event["kind"] == REBALANCE).select(
        *_SOURCE,
        *(event[name].alias(name) for name in _AS_THEY_ARE),
        started_at.alias("started_at"),
        later(started_at, timeline["finished_ms"]).alias("ended_at"),
        *_trigger(event["trigger"]),
        f.transform(event["further_causes"], _further_cause).alias("further_causes"),
        f.size(timeline["extensions_ms"]).alias("extension_count"),
        f.size(timeline["stalled_ms"]).alias("stall_count"),
        timeline["join_phase_ms"].alias("join_phase_ms"),
        timeline["join_phase_end"].alias("join_phase_end"),
        _step(timeline["join_phase_ms"], timeline["leader_synced_ms"]).alias("assignment_ms"),
        _step(timeline["leader_synced_ms"], timeline["durable_ms"]).alias("store_ms"),
        timeline["finished_ms"].alias("duration_ms"),
        waited["phase"].alias("waited_phase"),
        waited["ms"].alias("waited_ms"),
        waited["member_ids"].alias("waited_member_ids"),
        waited["pending_ids"].alias("waited_pending_ids"),
        f.coalesce(event["partitions"]["known"], f.lit(False)).alias("partitions_known"),
        *(
            _known(event["partitions"], name).alias(f"partitions_{name}")
            for name in ("kept", "moved", "gained", "given_up")
        ),
        stopped["member_count"].alias("stopped_member_count"),
        stopped["longest_ms"].alias("stopped_longest_ms"),
        stopped["total_ms"].alias("stopped_total_ms"),
        stopped["open_count"].alias("stopped_open_count"),
        _needless(event).alias("needless"),
        f.col("text").alias("event"),
    )
    return conform(frame, REBALANCES)


def avoided(events: DataFrame) -> DataFrame:
    """The table `avoided`, of parsed events of any kind."""
    event = f.col("event")
    frame = events.where(event["kind"] == AVOIDED_KIND).select(
        *_SOURCE,
        event["group"].alias("group"),
        event["sequence"].alias("sequence"),
        event["generation"].alias("generation"),
        moment(event["at_ms"]).alias("at"),
        *_trigger(event["trigger"]),
        f.col("text").alias("event"),
    )
    return conform(frame, AVOIDED)


def running(events: DataFrame) -> DataFrame:
    """The table `running`, of parsed events that are only that."""
    event = f.col("event")
    frame = events.select(
        *_SOURCE,
        event["group"].alias("group"),
        event["sequence"].alias("sequence"),
        moment(event["started_at_ms"]).alias("started_at"),
        event["trigger"]["kind"].alias("trigger_kind"),
        f.col("text").alias("event"),
    )
    return conform(frame, RUNNING)


def members(events: DataFrame) -> DataFrame:
    """The table `members`, of parsed events of any kind."""
    event, member = f.col("event"), f.col("member")
    partitions = member["partitions"]
    exploded = events.where(event["kind"] == REBALANCE).select(
        "cluster_id",
        event["group"].alias("group"),
        event["sequence"].alias("sequence"),
        moment(event["started_at_ms"]).alias("started_at"),
        f.posexplode(event["members"]).alias("ordinal", "member"),
    )
    frame = exploded.select(
        "*",
        "member.*",
        f.coalesce(member["instance_id"], member["member_id"]).alias("owner"),
        _step(member["told_ms"], member["join_received_ms"]).alias("join_delay_ms"),
        f.coalesce(partitions["known"], f.lit(False)).alias("partitions_known"),
        _known(partitions, "kept").alias("partitions_kept"),
        _known(partitions, "given_up_count").alias("partitions_given_up"),
        _known(partitions, "gained_count").alias("partitions_gained"),
        _known(partitions, "given_up").alias("given_up"),
        _known(partitions, "gained").alias("gained"),
    )
    return conform(frame, MEMBERS)


def _trigger(trigger: Column) -> list[Column]:
    named = [trigger[name].alias(f"trigger_{name}") for name in _OF_TRIGGER]
    return [*named, moment(trigger["at_ms"]).alias("trigger_at")]


def _further_cause(cause: Column) -> Column:
    return f.struct(*(cause[name].alias(name) for name in _OF_FURTHER_CAUSE))


def _step(start: Column, end: Column) -> Column:
    """From one moment to another one; null if one of them never came."""
    return f.try_subtract(end, start)


def _known(partitions: Column, name: str) -> Column:
    return f.when(partitions["known"], partitions[name])


def _needless(event: Column) -> Column:
    partitions = event["partitions"]
    is_enforced = f.coalesce(event["trigger"]["reason"] == ENFORCED, f.lit(False))
    moved_nothing = (partitions["gained"] == 0) & (partitions["given_up"] == 0)
    return f.when(event["outcome"] == "empty", f.lit(False)).when(
        (event["outcome"] == "stable") & partitions["known"],
        (event["members_before"] > 0) & moved_nothing & ~is_enforced,
    )

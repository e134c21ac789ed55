"""Tables computed from several events of a group, from `rebalances`, `avoided` and `members`.

They are renewed for each group that has new events, and may be deleted at any time.
"""

from typing import Final

from kohort.insight.tables.columns import (
    MOMENT,
    SMALL,
    SMALLS,
    TEXT,
    TEXTS,
    WHOLE,
    WHOLES,
    Column,
    Table,
)
from kohort.insight.tables.history import CLUSTER, EVENT_KEY, GROUP, IDENTITY

_GROUP_KEY: Final = (CLUSTER.name, GROUP.name)
_TOPIC_PARTITION: Final = (
    Column("topic", TEXT, "Topic."),
    Column("partition", SMALL, "Partition of the topic."),
)
_PARTITION_KEY: Final = (*_GROUP_KEY, "topic", "partition")

GROUPS: Final = Table(
    "groups",
    "One row per group: totals, and how much is missing.",
    _GROUP_KEY,
    (
        CLUSTER,
        GROUP,
        Column("first_sequence", WHOLE, "First event in the tables."),
        Column("last_sequence", WHOLE, "Last event."),
        Column("event_count", WHOLE, "Events, including avoided rebalances."),
        Column("missing_count", WHOLE, "Missing events between the first and the last."),
        Column("first_at", MOMENT, "Time of the first event."),
        Column("last_at", MOMENT, "Time of the last event."),
        Column("rebalance_count", WHOLE, "Rebalances."),
        Column("avoided_count", WHOLE, "Avoided rebalances."),
        Column("needless_count", WHOLE, "Needless rebalances."),
        Column("stopped_total_ms", WHOLE, "Stopped time of all members."),
        Column("stopped_longest_ms", WHOLE, "Longest stop of a member."),
        Column("unavailable_total_ms", WHOLE, "Ended times without an owner, of all partitions."),
        Column("storm_count", WHOLE, "Storms."),
    ),
)

SEQUENCE_GAPS: Final = Table(
    "sequence_gaps",
    "One row per range of missing sequence numbers: because of retention, records "
    "that the broker could not write, or records in `quarantine`. Totals over this "
    "time are too low; an ownership that ends in a gap has `ended_by` = `unknown`.",
    (*_GROUP_KEY, "from_sequence"),
    (
        CLUSTER,
        GROUP,
        Column("from_sequence", WHOLE, "First missing number."),
        Column("to_sequence", WHOLE, "Last missing number."),
        Column("missing_count", WHOLE, "Missing numbers."),
        Column("after_at", MOMENT, "Time of the event before the gap."),
        Column("before_at", MOMENT, "Time of the event after the gap."),
        Column("running_count", WHOLE, "How many of them are in `running`."),
    ),
)

PARTITIONS: Final = Table(
    "partitions",
    "One row per period in which one member owned partitions without a stop, or in "
    "which they had no owner. Partitions of a topic that always moved together share "
    "rows: `explode(partitions)` separates them. An eager member's stop begins a "
    "period without an owner, also for partitions that it gets back. A partition "
    "appears when an event first names it; events name at most 50 per member.",
    (*_GROUP_KEY, "topic", "partitions", "sequence", "state"),
    (
        CLUSTER,
        GROUP,
        Column("topic", TEXT, "Topic."),
        Column("partitions", SMALLS, "Partitions of the topic, in ascending order."),
        Column("sequence", WHOLE, "The rebalance in which the period began."),
        Column("state", TEXT, "`owned`, or `unavailable` (without an owner)."),
        Column("member_id", TEXT, "Present or last owner."),
        Column("owner", TEXT, "Its instance_id, or member_id without one."),
        Column("client_id", TEXT, "Its client.id."),
        Column("from_at", MOMENT, "Start."),
        Column("until_at", MOMENT, "End; null if it has not ended or is unknown."),
        Column("duration_ms", WHOLE, "Duration, or null."),
        Column("until_sequence", WHOLE, "The rebalance in which it ended, or null."),
        Column(
            "ended_by",
            TEXT,
            "For `owned`: `stopped` (an eager member's join), `given_up`, the fate of the "
            "owner, or `unknown` if the event is missing. For `unavailable`: `assigned`. Null "
            "if it has not ended.",
        ),
        Column("cause", TEXT, "For `unavailable`: trigger_kind of that rebalance."),
        Column("cause_member_id", TEXT, "For `unavailable`: its trigger_member_id."),
        Column(
            "unnoticed_ms_max",
            WHOLE,
            "For `unavailable` after an expired session: the session timeout. The owner "
            "may have been dead for up to that long before `from_at`.",
        ),
    ),
)

UNAVAILABILITY: Final = Table(
    "unavailability",
    "One row per group, partition and cause: how long it had no owner.",
    (*_PARTITION_KEY, "cause"),
    (
        CLUSTER,
        GROUP,
        *_TOPIC_PARTITION,
        Column("cause", TEXT, "trigger_kind of the rebalance that took it from its owner."),
        Column("times", WHOLE, "Periods, including those that have not ended."),
        Column("total_ms", WHOLE, "Sum of the ended ones."),
        Column("longest_ms", WHOLE, "Longest of them."),
        Column("open_count", WHOLE, "Periods that have not ended."),
        Column("last_at", MOMENT, "Start of the last one."),
    ),
)

STORMS: Final = Table(
    "storms",
    "One row per burst of at least `--storm-size` rebalances of a group: each began "
    "within `--storm-quiet-ms` after the previous one, superseded it, or assigned its "
    "revoked partitions.",
    (*_GROUP_KEY, "first_sequence"),
    (
        CLUSTER,
        GROUP,
        Column("first_sequence", WHOLE, "First rebalance."),
        Column("last_sequence", WHOLE, "Last rebalance."),
        Column("started_at", MOMENT, "Start of the first one."),
        Column("ended_at", MOMENT, "End of the last one, or null."),
        Column("duration_ms", WHOLE, "From one to the other."),
        Column("rebalance_count", WHOLE, "Rebalances."),
        Column("follow_up_count", WHOLE, "Those that followed another one."),
        Column("needless_count", WHOLE, "Needless ones."),
        Column("member_count", WHOLE, "Different client ids that caused them."),
        Column("first_cause", TEXT, "trigger_kind of the first rebalance."),
        Column("first_member_id", TEXT, "Its trigger_member_id."),
        Column("first_client_id", TEXT, "Its trigger_client_id."),
        Column("first_host", TEXT, "Its trigger_host."),
        Column("main_client_id", TEXT, "Client id that caused most of them."),
        Column("main_client_count", WHOLE, "How many it caused."),
        Column("causes", TEXTS, "Different trigger_kinds, sorted."),
        Column("stopped_total_ms", WHOLE, "Stopped time of all members."),
        Column("stopped_longest_ms", WHOLE, "Longest stop of a member."),
    ),
)

FLAPPING: Final = Table(
    "flapping",
    "One row per partition that changed its owner at least `--flapping-moves` times "
    "within `--flapping-window-ms`.",
    _PARTITION_KEY,
    (
        CLUSTER,
        GROUP,
        *_TOPIC_PARTITION,
        Column("moves", WHOLE, "Changes of owner."),
        Column("moves_in_window", WHOLE, "Most of them within one window."),
        Column("window_ended_at", MOMENT, "End of that window."),
        Column("owner_count", WHOLE, "Different owners."),
        Column("returns", WHOLE, "Moves back, such as from A to B to A."),
        Column("shortest_ms", WHOLE, "Shortest ownership before a move."),
    ),
)

SLOW_MEMBERS: Final = Table(
    "slow_members",
    "One row per process that rebalances waited for: the last to join, or slow to "
    "assign as leader.",
    (*_GROUP_KEY, "process"),
    (
        CLUSTER,
        GROUP,
        Column(
            "process", TEXT, "instance_id; for dynamic members client_id, which several may share."
        ),
        Column("client_id", TEXT, "client.id at the last event."),
        Column("host", TEXT, "Address at the last event."),
        Column("waited_for_count", WHOLE, "Rebalances in which it caused the longest wait."),
        Column("waited_for_total_ms", WHOLE, "Sum of these waits."),
        Column("waited_for_longest_ms", WHOLE, "Longest of them."),
        Column("for_join_count", WHOLE, "Waits for its join."),
        Column("for_assignment_count", WHOLE, "Waits for its assignment as leader."),
        Column("join_count", WHOLE, "Rebalances that it joined after it learned of them."),
        Column("join_delay_p50_ms", WHOLE, "Median of `members.join_delay_ms`."),
        Column("join_delay_p99_ms", WHOLE, "99th percentile of these."),
        Column("join_delay_longest_ms", WHOLE, "Longest of these."),
        Column("missed_count", WHOLE, "Rebalance timeouts that it missed."),
        Column("last_at", MOMENT, "Last rebalance that it took part in."),
        Column("session_timeout_ms", WHOLE, "Session timeout in its last join."),
        Column("rebalance_timeout_ms", WHOLE, "Rebalance timeout in its last join."),
    ),
)

HEARTBEAT_GAPS: Final = Table(
    "heartbeat_gaps",
    "One row per process: how long it takes until it sends a heartbeat. The history "
    "has only the first heartbeat after the start of a rebalance, at a random moment "
    "between two heartbeats: the longest value is close to the process's longest "
    "interval, the median half of its usual one.",
    (*_GROUP_KEY, "process"),
    (
        CLUSTER,
        GROUP,
        Column(
            "process", TEXT, "instance_id; for dynamic members client_id, which several may share."
        ),
        Column("told_count", WHOLE, "Rebalances that it learned of by a heartbeat or poll."),
        Column("told_p50_ms", WHOLE, "Median of `members.told_ms`."),
        Column("told_p90_ms", WHOLE, "90th percentile."),
        Column("told_p99_ms", WHOLE, "99th percentile."),
        Column("told_longest_ms", WHOLE, "Longest."),
        Column("expired_count", WHOLE, "Expired sessions."),
        Column("expired_timeout_ms", WHOLE, "Longest session timeout that it missed."),
        Column("session_timeout_ms", WHOLE, "Session timeout in its last join."),
    ),
)

ACTS: Final = Table(
    "acts",
    "One row per act: what was done to processes of the group, or what happened to them, with the "
    "rebalances that it caused. A rebalance belongs to one act. An act without rebalances was "
    "avoided, or happened during the rebalance of another act.",
    (*_GROUP_KEY, "ordinal"),
    (
        CLUSTER,
        GROUP,
        Column("ordinal", WHOLE, "Number of the act, in the order of time, from 0."),
        Column(
            "kind",
            TEXT,
            "As in the report: `restart`, `deploy`, `slow_restart`, `crash`, `pause`, "
            "`crash_or_pause`, `static_gone`, `start`, `scale_out`, `scale_in`, `topic_change`, "
            "`subscription_change`, `enforced`, `broker_restart`. Besides, `rejoined`: without a "
            "known reason. `removed`: by an administrator. `too_slow`: a rebalance timeout "
            "expired. `never_joined`: a new member "
            "did not join in time. Otherwise the trigger_kind.",
        ),
        Column("first_sequence", WHOLE, "First event."),
        Column("last_sequence", WHOLE, "Last event."),
        Column("started_at", MOMENT, "Start: the last sign of life of a process, if known."),
        Column("ended_at", MOMENT, "End of the last rebalance."),
        Column("process_count", WHOLE, "Processes."),
        Column(
            "processes",
            TEXTS,
            "Their instance ids or client ids (at most 100). A client id that several members "
            "have at a time is followed by four characters of the member id.",
        ),
        Column("sequences", WHOLES, "Rebalances."),
        Column("rebalance_count", WHOLE, "Their number."),
        Column(
            "second_half_count",
            WHOLE,
            "Those that only assigned what a cooperative rebalance before had revoked.",
        ),
        Column("avoided_count", WHOLE, "Avoided rebalances."),
        Column("needless_count", WHOLE, "Needless rebalances."),
        Column("stopped_total_ms", WHOLE, "Stopped time of all members."),
        Column("stopped_longest_ms", WHOLE, "Longest stop of a member."),
        Column("away_longest_ms", WHOLE, "Longest absence of a process that came back."),
        Column("late_count", WHOLE, "Static members that came back after their session expired."),
        Column("late_longest_ms", WHOLE, "How long after it at the latest, or null."),
        Column("late_session_timeout_ms", WHOLE, "Their session timeout, or null."),
        Column("likely_count", WHOLE, "Rebalances of which the cause is only likely."),
        Column("unclear_count", WHOLE, "Rebalances of which the cause is one of several."),
    ),
)

NEEDLESS: Final = Table(
    "needless",
    "One row per rebalance of a group with members in which no partition moved.",
    EVENT_KEY,
    (
        *IDENTITY,
        Column("started_at", MOMENT, "Start."),
        Column("duration_ms", WHOLE, "Duration."),
        Column("trigger_kind", TEXT, "Observed cause (`kind`)."),
        Column("trigger_member_id", TEXT, "Member that caused it."),
        Column("trigger_client_id", TEXT, "Its client.id."),
        Column("trigger_reason", TEXT, "JoinReason that it stated, or inferred from its text."),
        Column("members_after", WHOLE, "Members of the group."),
        Column("stopped_total_ms", WHOLE, "Stopped time of all members."),
        Column("stopped_longest_ms", WHOLE, "Longest stop of a member."),
        Column("trigger_certainty", TEXT, "How well the cause is known, as in `rebalances`."),
    ),
)

"""Tables that are worked out across the events of a group. They are made again for each group that
has new events, from `rebalances`, `avoided` and `members`, and may be deleted at any time.
"""

from typing import Final

from kohort.pipeline.schemas.columns import (
    MOMENT,
    SMALL,
    SMALLS,
    TEXT,
    TEXTS,
    WHOLE,
    Column,
    Table,
)
from kohort.pipeline.schemas.history import CLUSTER, EVENT_KEY, GROUP, IDENTITY

_GROUP_KEY: Final = (CLUSTER.name, GROUP.name)
_TOPIC_PARTITION: Final = (
    Column("topic", TEXT, "Topic."),
    Column("partition", SMALL, "Partition of the topic."),
)
_PARTITION_KEY: Final = (*_GROUP_KEY, "topic", "partition")

GROUPS: Final = Table(
    "groups",
    "One row for each group: what is known of it, and how much is missing.",
    _GROUP_KEY,
    (
        CLUSTER,
        GROUP,
        Column("first_sequence", WHOLE, "First event. What came before it was never here."),
        Column("last_sequence", WHOLE, "Last event."),
        Column("event_count", WHOLE, "Events, avoided rebalances included."),
        Column("missing_count", WHOLE, "Events between the first and the last that are missing."),
        Column("first_at", MOMENT, "Of the first event."),
        Column("last_at", MOMENT, "Of the last event."),
        Column("rebalance_count", WHOLE, "Rebalances."),
        Column("avoided_count", WHOLE, "Avoided rebalances."),
        Column("needless_count", WHOLE, "Rebalances that moved nothing."),
        Column("stopped_total_ms", WHOLE, "Time that members stood still, all together, in ms."),
        Column("stopped_longest_ms", WHOLE, "The longest stop of a member, in ms."),
        Column("unavailable_total_ms", WHOLE, "Ended times without an owner, all partitions, ms."),
        Column("storm_count", WHOLE, "Storms."),
    ),
)

SEQUENCE_GAPS: Final = Table(
    "sequence_gaps",
    "One row for each run of sequence numbers that are missing between two events of a group: the "
    "history's retention, a broker that could not write it, or records in `quarantine`. Figures "
    "over this time are too low; an ownership that ends in a gap has `ended_by` = `unknown`.",
    (*_GROUP_KEY, "from_sequence"),
    (
        CLUSTER,
        GROUP,
        Column("from_sequence", WHOLE, "The first that is missing."),
        Column("to_sequence", WHOLE, "The last that is missing."),
        Column("missing_count", WHOLE, "How many."),
        Column("after_at", MOMENT, "Of the event before the gap."),
        Column("before_at", MOMENT, "Of the event after the gap."),
        Column("running_count", WHOLE, "How many of them are at least in `running`."),
    ),
)

PARTITIONS: Final = Table(
    "partitions",
    "One row for each time during which partitions were owned by one member without a stop, and "
    "for each during which they were not read. Partitions of a topic that have always moved "
    "together share their rows: `explode(partitions)` makes rows of each. An eager member's stop "
    "for a rebalance ends what it owns and begins a time without an owner, also for partitions "
    "that it gets back. Partitions appear from the moment when an event names them: events name "
    "50 of a member's at most.",
    (*_GROUP_KEY, "topic", "partitions", "sequence", "state"),
    (
        CLUSTER,
        GROUP,
        Column("topic", TEXT, "Topic."),
        Column("partitions", SMALLS, "Partitions of the topic, from the smallest up."),
        Column("sequence", WHOLE, "The rebalance in which this time began."),
        Column("state", TEXT, "`owned`, or `unavailable`: not read."),
        Column("member_id", TEXT, "Who owns them, or has owned them before."),
        Column("owner", TEXT, "Its instance_id, or member_id without one."),
        Column("client_id", TEXT, "Its client.id."),
        Column("from_at", MOMENT, "When it began."),
        Column("until_at", MOMENT, "When it ended; null while it lasts, or if that is unknown."),
        Column("duration_ms", WHOLE, "From one to the other in ms; null likewise."),
        Column("until_sequence", WHOLE, "The rebalance in which it ended; null likewise."),
        Column(
            "ended_by",
            TEXT,
            "Of `owned`: `stopped` (an eager member's join), `given_up`, or how the owner ceased "
            "to be a member (its fate); `unknown` where the event that told is missing. Of "
            "`unavailable`: `assigned`. Null while it lasts.",
        ),
        Column("cause", TEXT, "Of `unavailable`: trigger_kind of that rebalance."),
        Column("cause_member_id", TEXT, "Of `unavailable`: trigger_member_id of it."),
        Column(
            "unnoticed_ms_max",
            WHOLE,
            "Of `unavailable`, when the owner's session expired: the session timeout in ms. For "
            "up to that long before `from_at` the owner may have been dead already, unnoticed.",
        ),
    ),
)

UNAVAILABILITY: Final = Table(
    "unavailability",
    "One row for each group, topic-partition and cause: how long it was not read.",
    (*_PARTITION_KEY, "cause"),
    (
        CLUSTER,
        GROUP,
        *_TOPIC_PARTITION,
        Column("cause", TEXT, "trigger_kind of the rebalance that took it from its owner."),
        Column("times", WHOLE, "How often, times that last included."),
        Column("total_ms", WHOLE, "Sum of those that have ended, in ms."),
        Column("longest_ms", WHOLE, "The longest of them, in ms."),
        Column("open_count", WHOLE, "Those that have not ended."),
        Column("last_at", MOMENT, "When the last one began."),
    ),
)

STORMS: Final = Table(
    "storms",
    "One row for each burst of rebalances of a group: each began soon after the one before had "
    "ended (`--storm-quiet-ms`), or followed it because it superseded it or handed out what it had "
    "taken; at least `--storm-size` of them.",
    (*_GROUP_KEY, "first_sequence"),
    (
        CLUSTER,
        GROUP,
        Column("first_sequence", WHOLE, "The first rebalance."),
        Column("last_sequence", WHOLE, "The last one."),
        Column("started_at", MOMENT, "When the first one began."),
        Column("ended_at", MOMENT, "When the last one ended; null while it runs."),
        Column("duration_ms", WHOLE, "From one to the other, in ms."),
        Column("rebalance_count", WHOLE, "Rebalances."),
        Column("follow_up_count", WHOLE, "Those of them that followed another one."),
        Column("needless_count", WHOLE, "Those of them that moved nothing."),
        Column("member_count", WHOLE, "Different client ids among those who caused them."),
        Column("left_count", WHOLE, "Members that went: left, expired, were removed or replaced."),
        Column("new_count", WHOLE, "Members that came."),
        Column(
            "started_by",
            TEXT,
            "`deploy`: two processes or more went and as many came, each within the storm, or "
            "members said RESTART. `member`: one client id caused at least half of it. "
            "`scale_out`, `scale_in`: members only came, or only went. `several`: none of these.",
        ),
        Column("first_cause", TEXT, "trigger_kind of the first rebalance."),
        Column("first_member_id", TEXT, "Its trigger_member_id."),
        Column("first_client_id", TEXT, "Its trigger_client_id."),
        Column("first_host", TEXT, "Its trigger_host."),
        Column("main_client_id", TEXT, "The client id that caused most of them."),
        Column("main_client_count", WHOLE, "How many."),
        Column("causes", TEXTS, "Different trigger_kinds, in the order of the alphabet."),
        Column("stopped_total_ms", WHOLE, "Time that members stood still, all together, in ms."),
        Column("stopped_longest_ms", WHOLE, "The longest stop of a member in one of them, in ms."),
    ),
)

FLAPPING: Final = Table(
    "flapping",
    "One row for each partition that changed its owner at least `--flapping-moves` times within "
    "`--flapping-window-ms`.",
    _PARTITION_KEY,
    (
        CLUSTER,
        GROUP,
        *_TOPIC_PARTITION,
        Column("moves", WHOLE, "Changes of the owner."),
        Column("moves_in_window", WHOLE, "The most of them within one window."),
        Column("window_ended_at", MOMENT, "When that window ended."),
        Column("owner_count", WHOLE, "Different owners."),
        Column("returns", WHOLE, "Moves back to the owner before the last one."),
        Column("shortest_ms", WHOLE, "The shortest time it was owned before it moved, in ms."),
    ),
)

SLOW_MEMBERS: Final = Table(
    "slow_members",
    "One row for each process that rebalances waited for, by its instance id, or client id "
    "without one: who was the last to join, or slow with the assignment.",
    (*_GROUP_KEY, "process"),
    (
        CLUSTER,
        GROUP,
        Column("process", TEXT, "instance_id, or client_id of dynamic members, which may share it"),
        Column("client_id", TEXT, "client.id at the last event."),
        Column("host", TEXT, "Address at the last event."),
        Column("waited_for_count", WHOLE, "Rebalances that waited for it longest."),
        Column("waited_for_total_ms", WHOLE, "How long they did, all together, in ms."),
        Column("waited_for_longest_ms", WHOLE, "The longest of them, in ms."),
        Column("for_join_count", WHOLE, "Those that waited for its join."),
        Column("for_assignment_count", WHOLE, "Those that waited for its assignment as leader."),
        Column("join_count", WHOLE, "Rebalances it joined after it was told of them."),
        Column("join_delay_p50_ms", WHOLE, "Median of `members.join_delay_ms`."),
        Column("join_delay_p99_ms", WHOLE, "99 % of these were not longer."),
        Column("join_delay_longest_ms", WHOLE, "The longest one, in ms."),
        Column("missed_count", WHOLE, "Times it did not join within the rebalance timeout."),
        Column("last_at", MOMENT, "The last rebalance that it took part in."),
        Column("session_timeout_ms", WHOLE, "That its last join asked for."),
        Column("rebalance_timeout_ms", WHOLE, "The same: its max.poll.interval.ms."),
    ),
)

HEARTBEAT_GAPS: Final = Table(
    "heartbeat_gaps",
    "One row for each process: how long it takes until it is heard of. The history does not hold "
    "the times of heartbeats; it holds when a member was told of a rebalance, which is at its "
    "first heartbeat after the start of it. Starts come at any moment between two heartbeats, so "
    "this is a gap from somewhere within it to its end: the longest is close to the longest gap "
    "of the process, and the median is half of its usual one.",
    (*_GROUP_KEY, "process"),
    (
        CLUSTER,
        GROUP,
        Column("process", TEXT, "instance_id, or client_id of dynamic members, which may share it"),
        Column("told_count", WHOLE, "Rebalances of which its heartbeats, or polls, let it know."),
        Column("told_p50_ms", WHOLE, "Median of `members.told_ms`, in ms."),
        Column("told_p90_ms", WHOLE, "90 % of these were not longer."),
        Column("told_p99_ms", WHOLE, "99 % of these were not longer."),
        Column("told_longest_ms", WHOLE, "The longest one, in ms."),
        Column("expired_count", WHOLE, "Sessions of it that expired."),
        Column("expired_timeout_ms", WHOLE, "The longest timeout that it missed, in ms."),
        Column("session_timeout_ms", WHOLE, "That its last join asked for."),
    ),
)

CAUSES: Final = Table(
    "causes",
    "One row for each group and cause of rebalances.",
    (*_GROUP_KEY, "trigger_kind"),
    (
        CLUSTER,
        GROUP,
        Column("trigger_kind", TEXT, "What the broker saw: the `kind` of the cause."),
        Column("rebalance_count", WHOLE, "Rebalances that it caused."),
        Column("avoided_count", WHOLE, "Rebalances that it would have caused, and did not."),
        Column("needless_count", WHOLE, "Rebalances that it caused, and that moved nothing."),
        Column("stopped_total_ms", WHOLE, "Time that members stood still for it, in ms."),
        Column("stopped_longest_ms", WHOLE, "The longest stop of a member for it, in ms."),
        Column("duration_p50_ms", WHOLE, "Median length of these rebalances, in ms."),
        Column("last_at", MOMENT, "The last one."),
    ),
)

NEEDLESS: Final = Table(
    "needless",
    "One row for each rebalance of a group with members that moved nothing.",
    EVENT_KEY,
    (
        *IDENTITY,
        Column("started_at", MOMENT, "When it began."),
        Column("duration_ms", WHOLE, "How long it took, in ms."),
        Column("trigger_kind", TEXT, "What the broker saw: the `kind` of the cause."),
        Column("trigger_member_id", TEXT, "Whose doing it was."),
        Column("trigger_client_id", TEXT, "Its client.id."),
        Column("trigger_reason", TEXT, "The JoinReason that it stated, or that its text suggests."),
        Column("members_after", WHOLE, "Members of the group."),
        Column("stopped_total_ms", WHOLE, "Time that they stood still for it, in ms."),
        Column("stopped_longest_ms", WHOLE, "The longest stop of one of them, in ms."),
    ),
)

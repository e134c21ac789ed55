"""Tables that combine several events of a group, from `rebalances`, `avoided` and `members`.

A group's rows are replaced when it has new events; the tables may be deleted at any time. A
table's columns are the cluster, the group, and the fields of a row class. The annotation of a field
has the Python type, the column's type, and its meaning.
"""

from typing import Annotated, Final, NamedTuple, TypeAlias

from kohort.insight.tables.columns import (
    FLAG,
    MOMENT,
    SMALL,
    SMALLS,
    TEXT,
    TEXTS,
    WHOLE,
    WHOLES,
    Table,
    columns_of,
)
from kohort.insight.tables.history import CLUSTER, EVENT_KEY, GROUP, SEQUENCE

_GROUP_KEY: Final = (CLUSTER.name, GROUP.name)
_PARTITION_KEY: Final = (*_GROUP_KEY, "topic", "partition")

_Topic: TypeAlias = Annotated[str, TEXT, "Topic."]
_Partition: TypeAlias = Annotated[int, SMALL, "Partition of the topic."]


class GroupRow(NamedTuple):
    first_sequence: Annotated[int, WHOLE, "First event in the tables."]
    last_sequence: Annotated[int, WHOLE, "Last event."]
    event_count: Annotated[int, WHOLE, "Events, including avoided rebalances."]
    missing_count: Annotated[int, WHOLE, "Missing events between the first and the last."]
    first_at: Annotated[int | None, MOMENT, "Time of the first event."]
    last_at: Annotated[int | None, MOMENT, "Time of the last event."]
    rebalance_count: Annotated[int, WHOLE, "Rebalances."]
    avoided_count: Annotated[int, WHOLE, "Avoided rebalances."]
    needless_count: Annotated[int, WHOLE, "Needless rebalances."]
    stopped_total_ms: Annotated[int, WHOLE, "Stopped time of all members."]
    stopped_longest_ms: Annotated[int, WHOLE, "Longest stop of a member."]
    unavailable_total_ms: Annotated[int, WHOLE, "Ended times without an owner, of all partitions."]
    storm_count: Annotated[int, WHOLE, "Storms."]


GROUPS: Final = Table(
    "groups",
    "One row per group: totals, and how much is missing.",
    _GROUP_KEY,
    (CLUSTER, GROUP, *columns_of(GroupRow)),
)


class SequenceGap(NamedTuple):
    from_sequence: Annotated[int, WHOLE, "First missing number."]
    to_sequence: Annotated[int, WHOLE, "Last missing number."]
    missing_count: Annotated[int, WHOLE, "Missing numbers."]
    after_at: Annotated[int | None, MOMENT, "Time of the event before the gap."]
    before_at: Annotated[int | None, MOMENT, "Time of the event after the gap."]
    running_count: Annotated[int, WHOLE, "How many are in `running`."]


SEQUENCE_GAPS: Final = Table(
    "sequence_gaps",
    "One row per range of missing sequence numbers: because of retention, records "
    "that the broker could not write, or records in `quarantine`. Totals over this "
    "time are too low; an ownership that ends in a gap has `ended_by` = `unknown`.",
    (*_GROUP_KEY, "from_sequence"),
    (CLUSTER, GROUP, *columns_of(SequenceGap)),
)


class Interval(NamedTuple):
    topic: _Topic
    partitions: Annotated[tuple[int, ...], SMALLS, "Partitions of the topic, in ascending order."]
    sequence: Annotated[int, WHOLE, "The rebalance in which the period began."]
    state: Annotated[str, TEXT, "`owned`, or `unavailable` (without an owner)."]
    member_id: Annotated[str | None, TEXT, "Present or last owner."]
    owner: Annotated[str | None, TEXT, "Its instance_id, or member_id without one."]
    client_id: Annotated[str | None, TEXT, "Its client.id."]
    from_at: Annotated[int, MOMENT, "Start."]
    until_at: Annotated[int | None, MOMENT, "End; null if it has not ended or is unknown."]
    duration_ms: Annotated[int | None, WHOLE, "Duration, or null."]
    until_sequence: Annotated[int | None, WHOLE, "The rebalance in which it ended, or null."]
    ended_by: Annotated[
        str | None,
        TEXT,
        "For `owned`: `stopped` (an eager member's join), `given_up`, the fate of the owner, "
        "or `unknown` if the event is missing. For `unavailable`: `assigned`. Null if it has "
        "not ended.",
    ]
    cause: Annotated[str | None, TEXT, "For `unavailable`: trigger_kind of that rebalance."]
    cause_member_id: Annotated[str | None, TEXT, "For `unavailable`: its trigger_member_id."]
    unnoticed_ms_max: Annotated[
        int | None,
        WHOLE,
        "For `unavailable` after an expired session: the session timeout. The owner may have "
        "been dead for up to that long before `from_at`.",
    ]


PARTITIONS: Final = Table(
    "partitions",
    "One row per period in which one member owned partitions without a stop, or in "
    "which they had no owner. Partitions of a topic that always moved together share "
    "rows: `explode(partitions)` separates them. An eager member's stop begins a "
    "period without an owner, also for partitions that it gets back. A partition "
    "appears when an event first names it; events name at most 50 per member.",
    (*_GROUP_KEY, "topic", "partitions", "sequence", "state"),
    (CLUSTER, GROUP, *columns_of(Interval)),
)


class Unavailability(NamedTuple):
    topic: _Topic
    partition: _Partition
    cause: Annotated[str, TEXT, "trigger_kind of the rebalance that took it from its owner."]
    times: Annotated[int, WHOLE, "Periods, including those that have not ended."]
    total_ms: Annotated[int | None, WHOLE, "Sum of ended periods."]
    longest_ms: Annotated[int, WHOLE, "Longest of them."]
    open_count: Annotated[int, WHOLE, "Periods that have not ended."]
    last_at: Annotated[int, MOMENT, "Start of the last one."]


UNAVAILABILITY: Final = Table(
    "unavailability",
    "One row per group, partition and cause: how long it had no owner.",
    (*_PARTITION_KEY, "cause"),
    (CLUSTER, GROUP, *columns_of(Unavailability)),
)


class Storm(NamedTuple):
    first_sequence: Annotated[int, WHOLE, "First rebalance."]
    last_sequence: Annotated[int, WHOLE, "Last rebalance."]
    started_at: Annotated[int | None, MOMENT, "Start of the first."]
    ended_at: Annotated[int | None, MOMENT, "End of the last, or null."]
    duration_ms: Annotated[int | None, WHOLE, "From start to end."]
    rebalance_count: Annotated[int, WHOLE, "Rebalances."]
    follow_up_count: Annotated[int, WHOLE, "Rebalances that followed another."]
    needless_count: Annotated[int, WHOLE, "Needless rebalances."]
    member_count: Annotated[int, WHOLE, "Different client ids that caused them."]
    first_cause: Annotated[str | None, TEXT, "trigger_kind of the first rebalance."]
    first_member_id: Annotated[str | None, TEXT, "Its trigger_member_id."]
    first_client_id: Annotated[str | None, TEXT, "Its trigger_client_id."]
    first_host: Annotated[str | None, TEXT, "Its trigger_host."]
    main_client_id: Annotated[str | None, TEXT, "Client id that caused most."]
    main_client_count: Annotated[int | None, WHOLE, "How many it caused."]
    causes: Annotated[list[str], TEXTS, "Different trigger_kinds, sorted."]
    stopped_total_ms: Annotated[int | None, WHOLE, "Stopped time of all members."]
    stopped_longest_ms: Annotated[int, WHOLE, "Longest stop of a member."]


STORMS: Final = Table(
    "storms",
    "One row per burst of at least `--storm-size` rebalances of a group: each began "
    "within `--storm-quiet-ms` after the previous one, superseded it, or assigned its "
    "revoked partitions.",
    (*_GROUP_KEY, "first_sequence"),
    (CLUSTER, GROUP, *columns_of(Storm)),
)


class Flapping(NamedTuple):
    topic: _Topic
    partition: _Partition
    moves: Annotated[int, WHOLE, "Changes of owner."]
    moves_in_window: Annotated[int, WHOLE, "Most changes within one window."]
    window_ended_at: Annotated[int, MOMENT, "End of that window."]
    owner_count: Annotated[int, WHOLE, "Different owners."]
    returns: Annotated[int, WHOLE, "Moves back, such as from A to B to A."]
    shortest_ms: Annotated[int, WHOLE, "Shortest ownership before a move."]


FLAPPING: Final = Table(
    "flapping",
    "One row per partition that changed its owner at least `--flapping-moves` times "
    "within `--flapping-window-ms`.",
    _PARTITION_KEY,
    (CLUSTER, GROUP, *columns_of(Flapping)),
)


class SlowMember(NamedTuple):
    process: Annotated[
        str | None,
        TEXT,
        "instance_id; for dynamic members client_id, which several may share.",
    ]
    client_id: Annotated[str | None, TEXT, "client.id at the last event."]
    host: Annotated[str | None, TEXT, "Address at the last event."]
    waited_for_count: Annotated[int, WHOLE, "Rebalances in which it caused the longest wait."]
    waited_for_total_ms: Annotated[int, WHOLE, "Sum of these waits."]
    waited_for_longest_ms: Annotated[int, WHOLE, "Longest of them."]
    for_join_count: Annotated[int, WHOLE, "Waits for its join."]
    for_assignment_count: Annotated[int, WHOLE, "Waits for its assignment as leader."]
    join_count: Annotated[int, WHOLE, "Rebalances that it joined after it learned of them."]
    join_delay_p50_ms: Annotated[int, WHOLE, "Median of `members.join_delay_ms`."]
    join_delay_p99_ms: Annotated[int, WHOLE, "99th percentile of these."]
    join_delay_longest_ms: Annotated[int, WHOLE, "Longest of these."]
    missed_count: Annotated[int, WHOLE, "Rebalance timeouts that it missed."]
    last_at: Annotated[int | None, MOMENT, "Last rebalance that it took part in."]
    session_timeout_ms: Annotated[int | None, WHOLE, "Session timeout in its last join."]
    rebalance_timeout_ms: Annotated[int | None, WHOLE, "Rebalance timeout in its last join."]


SLOW_MEMBERS: Final = Table(
    "slow_members",
    "One row per process that rebalances waited for: the last to join, or slow to "
    "assign as leader.",
    (*_GROUP_KEY, "process"),
    (CLUSTER, GROUP, *columns_of(SlowMember)),
)


class HeartbeatGap(NamedTuple):
    process: Annotated[
        str | None,
        TEXT,
        "instance_id; for dynamic members client_id, which several may share.",
    ]
    told_count: Annotated[int, WHOLE, "Rebalances that it learned of by a heartbeat or poll."]
    told_p50_ms: Annotated[int | None, WHOLE, "Median of `members.told_ms`."]
    told_p90_ms: Annotated[int | None, WHOLE, "90th percentile."]
    told_p99_ms: Annotated[int | None, WHOLE, "99th percentile."]
    told_longest_ms: Annotated[int | None, WHOLE, "Longest."]
    expired_count: Annotated[int, WHOLE, "Expired sessions."]
    expired_timeout_ms: Annotated[int | None, WHOLE, "Longest session timeout that it missed."]
    session_timeout_ms: Annotated[int | None, WHOLE, "Session timeout in its last join."]


HEARTBEAT_GAPS: Final = Table(
    "heartbeat_gaps",
    "One row per process: how long it takes until it sends a heartbeat. The history "
    "has only the first heartbeat after the start of a rebalance, at a random moment "
    "between two heartbeats: the longest value is close to the process's longest "
    "interval, the median half of its usual one.",
    (*_GROUP_KEY, "process"),
    (CLUSTER, GROUP, *columns_of(HeartbeatGap)),
)


class Act(NamedTuple):
    ordinal: Annotated[int, WHOLE, "Number of the act, in the order of time, from 0."]
    kind: Annotated[
        str,
        TEXT,
        "As in the report: `restart`, `deploy`, `slow_restart`, `crash`, `pause`, "
        "`crash_or_pause`, `static_gone`, `start`, `scale_out`, `scale_in`, `topic_change`, "
        "`subscription_change`, `enforced`, `broker_restart`. Besides, `rejoined`: without a "
        "known reason. `removed`: by an administrator. `too_slow`: a rebalance timeout "
        "expired. `never_joined`: a new member did not join in time. Otherwise the "
        "trigger_kind.",
    ]
    first_sequence: Annotated[int, WHOLE, "First event."]
    last_sequence: Annotated[int, WHOLE, "Last event."]
    started_at: Annotated[
        int | None,
        MOMENT,
        "Start: the last sign of life of a process, if known.",
    ]
    ended_at: Annotated[int | None, MOMENT, "End of the last rebalance."]
    process_count: Annotated[int, WHOLE, "Processes."]
    processes: Annotated[
        list[str],
        TEXTS,
        "Their instance ids or client ids (at most 100). A client id that several members "
        "have at a time is followed by eight characters of the member id.",
    ]
    sequences: Annotated[list[int], WHOLES, "Rebalances."]
    rebalance_count: Annotated[int, WHOLE, "Their number."]
    second_half_count: Annotated[
        int,
        WHOLE,
        "Rebalances that only assigned what an earlier cooperative one revoked.",
    ]
    avoided_count: Annotated[int, WHOLE, "Avoided rebalances."]
    needless_count: Annotated[int, WHOLE, "Needless rebalances."]
    stopped_total_ms: Annotated[int | None, WHOLE, "Stopped time of all members."]
    stopped_longest_ms: Annotated[int, WHOLE, "Longest stop of a member."]
    unread_longest_ms: Annotated[
        int, WHOLE, "Longest time that a partition of a departed member had no reader."
    ]
    emptied: Annotated[bool, FLAG, "Whether no member was left after its last rebalance."]
    away_longest_ms: Annotated[int | None, WHOLE, "Longest absence of a process that returned."]
    late_count: Annotated[int, WHOLE, "Static members that returned after their session expired."]
    late_longest_ms: Annotated[int | None, WHOLE, "Longest time from expiry to return."]
    late_session_timeout_ms: Annotated[int | None, WHOLE, "Their session timeout, or null."]
    likely_count: Annotated[int, WHOLE, "Rebalances of which the cause is only likely."]
    unclear_count: Annotated[int, WHOLE, "Rebalances of which the cause is one of several."]


ACTS: Final = Table(
    "acts",
    "One row per act: what was done to processes of the group, or what happened to them, with the "
    "rebalances that it caused. A rebalance belongs to one act. An act without rebalances was "
    "avoided, or happened during the rebalance of another act.",
    (*_GROUP_KEY, "ordinal"),
    (CLUSTER, GROUP, *columns_of(Act)),
)


class NeedlessRebalance(NamedTuple):
    sequence: Annotated[int, WHOLE, SEQUENCE.meaning]
    started_at: Annotated[int | None, MOMENT, "Start."]
    duration_ms: Annotated[int | None, WHOLE, "Duration."]
    trigger_kind: Annotated[str | None, TEXT, "Observed cause (`kind`)."]
    trigger_member_id: Annotated[str | None, TEXT, "Member that caused it."]
    trigger_client_id: Annotated[str | None, TEXT, "Its client.id."]
    trigger_reason: Annotated[
        str | None,
        TEXT,
        "JoinReason that it stated, or inferred from its text.",
    ]
    members_after: Annotated[int | None, WHOLE, "Members of the group."]
    stopped_total_ms: Annotated[int | None, WHOLE, "Stopped time of all members."]
    stopped_longest_ms: Annotated[int | None, WHOLE, "Longest stop of a member."]
    trigger_certainty: Annotated[
        str | None,
        TEXT,
        "How well the cause is known, as in `rebalances`.",
    ]


NEEDLESS: Final = Table(
    "needless",
    "One row per rebalance of a group with members in which no partition moved.",
    EVENT_KEY,
    (CLUSTER, GROUP, *columns_of(NeedlessRebalance)),
)

FINDINGS: Final = (
    PARTITIONS,
    UNAVAILABILITY,
    STORMS,
    FLAPPING,
    SLOW_MEMBERS,
    HEARTBEAT_GAPS,
    ACTS,
    NEEDLESS,
    SEQUENCE_GAPS,
    GROUPS,
)
"""Rows of these tables are replaced when their group has new events. `groups` is written last,
because it stores the last event that the group's rows in the other tables include."""

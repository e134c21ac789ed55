"""Records of the history: one for each rebalance, one for each that was avoided, and one for each
assignment of a share group.

Records are immutable values, compared by their fields. Names are those of the JSON form
(`json_form`), which is the public schema, documented in docs/rebalance-history.md. Times that end
in `_at_ms` are wall time since 1970; other `_ms` are durations, or moments counted from the start
of the rebalance by the monotonic clock.

Lists and texts that peers can make long are cut, and a number beside them gives how many entries
are missing; counts include the missing ones.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from kohort.groups.events import Certainty, Evidence, TriggerKind
from kohort.groups.history.names import SCHEMA, LeaderChange, MemberFate, RebalanceOutcome
from kohort.groups.kinds import GroupKind

__all__ = [
    "SCHEMA",
    "AssignedRecord",
    "AvoidedRecord",
    "HistoryRecord",
    "LeaderChange",
    "MemberChange",
    "MemberFate",
    "MemberPartitions",
    "MemberTimeline",
    "PartitionCounts",
    "RebalanceOutcome",
    "RebalanceRecord",
    "Stopped",
    "Timeline",
    "TriggerRecord",
    "Unread",
    "WaitedFor",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRecord:
    """The cause of a rebalance, a further cause of it, or the cause of an avoided one.

    `kind` is what the broker observed. What the client states is separate: `reason`, with
    `reason_source` "tag" (JoinGroup's tag 7728) or "text" (guessed from `reason_text`).
    """

    kind: TriggerKind
    at_ms: int
    after_ms: int | None = None
    """Of a further cause: time from the start of the rebalance to the cause."""
    member_id: str | None = None
    instance_id: str | None = None
    client_id: str | None = None
    host: str | None = None
    was_leader: bool = False
    reason: str | None = None
    """Name of the reason that the client states for its join; one of `JoinReason`."""
    reason_source: str | None = None
    reason_number: int | None = None
    reason_text: str | None = None
    """The reason text (KIP-800) of a JoinGroup or a LeaveGroup."""
    row: int | None = None
    """The applied row of the decision table for joins; None if the table was not used."""
    old_protocols: tuple[str, ...] = ()
    new_protocols: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """Ids of the members whose removal is the cause; truncated."""
    removed_count: int = 0
    session_timeout_ms: int | None = None
    """Session timeout of a member whose session ended."""
    rebalance_timeout_ms: int | None = None
    """For members that did not sync: the timeout that expired."""
    error: str | None = None
    """Name of the error with which a client was rejected, or an assignment could not be stored."""
    detail: str | None = None
    silent_ms: int | None = None
    """Time since the last request of the previous process of a static member that came back; None
    for other members."""
    unfetched_ms: int | None = None
    """Time for which a member that left had not fetched although it sent heartbeats, if that was
    long."""
    still_connected: bool | None = None
    """Of a member that left: whether its connection was open a second or more after its
    LeaveGroup; of one whose session expired: whether the connection of its last heartbeat was open.
    None if that was not checked."""
    grown_topics: tuple[str, ...] = ()
    """Topics that got more partitions since the group was last Stable; truncated."""
    grown_ms: int | None = None
    """Time from the growth of the last of `grown_topics` to the cause."""
    same_process: bool | None = None
    """Of a new member: whether its process is that of a member whose session had expired. True if
    a request with the former member id followed, or the join is on the former member's connection.
    None if no such member had its instance id, or its client id and host."""
    same_subscription: bool | None = None
    """Of a classic consumer that joined again: whether it subscribes to the same topics as before;
    None if that is unknown."""
    subscribed: tuple[str, ...] = ()
    """Topics that the member added to its subscription; truncated."""
    unsubscribed: tuple[str, ...] = ()
    """Topics that the member removed from its subscription; truncated."""
    away_ms: int | None = None
    """If `same_process`: the time from the last heartbeat of its former member id to this join."""
    certainty: Certainty = Certainty.CERTAIN
    """certain for causes that a broker observed itself; causes inferred from a cluster's
    __consumer_offsets may also be likely or unclear."""
    candidates: tuple[TriggerKind, ...] = ()
    """If the cause is unclear: all possible causes, the most likely first."""
    evidence: tuple[Evidence, ...] = ()
    """The facts from which the cause was concluded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Times at which phases ended; None for a phase that has not ended."""

    extensions_ms: tuple[int, ...] = ()
    """Times at which the initial delay was extended; truncated."""
    stalled_ms: tuple[int, ...] = ()
    """Times at which the timeout expired, but the wait continued, because all remaining members
    were static and none had joined; truncated."""
    join_phase_ms: int | None = None
    join_phase_end: str | None = None
    """What ended the join phase: all_joined, timeout or initial_delay."""
    leader_synced_ms: int | None = None
    assigned_ms: int | None = None
    """Of a consumer group: when the target was computed."""
    assigned_by: str | None = None
    """Event that computed the target: at_once, interval or heartbeat; see `TargetAssigned`."""
    durable_ms: int | None = None
    """Time at which the leader's assignment was stored, to be sent to the waiting members. Of a
    consumer group: when the target assignment was stored."""
    finished_ms: int | None = None
    """Time at which the group became Stable or Empty, or the next rebalance began. A consumer group
    is Stable when all members have their whole target assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedFor:
    """The longest wait of a rebalance. In the join phase, the members waited for are the last ones
    to join, or those that did not join in time; in the sync phase, the leader.
    """

    phase: str | None = None
    """join, initial_delay, sync (the leader's assignment) or store (the disk); of a consumer group
    assign, store, revoke, tell (the members' next heartbeats), give (free partitions) or, for
    classic members, join. None if nothing was waited for."""
    member_ids: tuple[str, ...] = ()
    """Ids of the members that were waited for; truncated."""
    pending_ids: tuple[str, ...] = ()
    """Ids given to members that never joined with them; truncated."""
    ms: int = 0
    """How long the rebalance waited only for the members named, or only for `phase` to end."""
    were_told: bool = False
    """In the join phase of a classic group: whether all members waited for had learned of the
    rebalance from a heartbeat: then their processes ran, but did not poll."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCounts:
    """Numbers of partitions, over all members, by how their owners changed; 0 unless `known`."""

    known: bool = False
    """False if assignments are not in the consumer format, or the previous one is unknown."""
    kept: int = 0
    moved: int = 0
    """Number of partitions gained from other members, at once or, in a cooperative group, one
    rebalance later."""
    gained: int = 0
    given_up: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """How long members stopped consuming, over all members: see `MemberTimeline.stopped_ms`."""

    member_count: int = 0
    """Number of members that stopped for at least 1 ms, except new members of a classic group."""
    longest_ms: int = 0
    total_ms: int = 0
    open_count: int = 0
    """Number of members whose stop had not ended: see `MemberTimeline.stopped_open`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """How many partitions of members that left or were removed had no reader, and how long."""

    partition_count: int = 0
    member_count: int = 0
    """Number of members that left or were removed, and had owned partitions."""
    longest_ms: int = 0
    """The longest time without a reader for one partition: from its member's last heartbeat (last
    Fetch, if the application did not poll) until another member got it or the rebalance ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPartitions:
    known: bool = False
    kept: int = 0
    given_up: tuple[str, ...] = ()
    """Partitions given up, each as "topic-partition"; truncated."""
    given_up_count: int = 0
    gained: tuple[str, ...] = ()
    """Partitions gained, each as "topic-partition"; truncated."""
    gained_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTimeline:
    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    client_software_name: str | None = None
    """Name that the client states in ApiVersions (KIP-511), "unknown" if it states none. None if it
    has not joined since the broker started, and in histories of `kohort watch`."""
    client_software_version: str | None = None
    type: str = GroupKind.CLASSIC.value
    """The protocol that the member uses: classic or consumer."""
    role: str | None = None
    """leader or follower of the new generation; None for members outside it."""
    told_ms: int | None = None
    """Time of the first response with REBALANCE_IN_PROGRESS; the member then revokes, commits and
    joins. In a consumer group: time of the first response with fewer partitions or, if none are
    revoked, with the new epoch; 0 if it still has partitions that an earlier rebalance revoked."""
    join_received_ms: int | None = None
    join_answered_ms: int | None = None
    sync_received_ms: int | None = None
    sync_answered_ms: int | None = None
    epoch_before: int | None = None
    """In a consumer group: the member's epoch before; None if new, -2 after it left to restart."""
    epoch: int | None = None
    """The member's epoch at the end of the rebalance."""
    revoked_ms: int | None = None
    """Time at which the member had finished revoking partitions."""
    reached_ms: int | None = None
    """Time at which the member got the new epoch."""
    completed_ms: int | None = None
    """Time at which the member got the last partition of its target."""
    fate: MemberFate = MemberFate.KEPT
    fate_ms: int | None = None
    """Time at which the member left or was removed."""
    certainty: Certainty = Certainty.CERTAIN
    """How certain `fate` is; see `TriggerRecord.certainty`. Left out of the JSON if certain."""
    replaced_by: str | None = None
    reason: str | None = None
    """The reason stated in the member's join, as in TriggerRecord."""
    reason_source: str | None = None
    reason_number: int | None = None
    reason_text: str | None = None
    """The reason text of the member's join, or of its LeaveGroup if it left."""
    mode: str | None = None
    """eager or cooperative, consumer in a consumer group; None if it did not join."""
    stopped_ms: int | None = None
    """How long the member stopped consuming. Eager: from its join until its assignment.
    Cooperative: the longest time that a gained partition had no owner; partitions that the member
    kept never stopped. None if it did not join."""
    stopped_open: bool = False
    """Whether the stop had not ended: the member has no assignment yet, or partitions that it gave
    up have no new owner yet."""
    session_timeout_ms: int | None = None
    """The session timeout in the member's join; None if it did not join."""
    rebalance_timeout_ms: int | None = None
    """The rebalance timeout in the member's join: its max.poll.interval.ms."""
    partitions: MemberPartitions = field(default=MemberPartitions())


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRecord:
    """One transition to PreparingRebalance, and its outcome. In a consumer group: one new target
    assignment, from the first change after the previous target.
    """

    group: str
    sequence: int
    """Increases by one with each record of the group, avoided ones included."""
    previous_generation: int
    generation: int | None = None
    """The new generation; None during the join phase, and if that never ended."""
    previous_state: str
    initial: bool = False
    """Whether this is the first rebalance of an empty group, which waits for the initial delay."""
    follows: int | None = None
    """Sequence number of the rebalance that this one superseded, or else of the latest one that
    revoked partitions assigned in this one."""
    superseded_by: int | None = None
    group_type: str = GroupKind.CLASSIC.value
    """classic or consumer, after the rebalance."""
    protocol_type: str | None = None
    started_at_ms: int
    trigger: TriggerRecord
    further_causes: tuple[TriggerRecord, ...] = ()
    further_causes_dropped: int = 0
    timeline: Timeline = field(default=Timeline())
    waited_for: WaitedFor = field(default=WaitedFor())
    restart_ms: int | None = None
    """Time from the broker's restart to this rebalance, if it is the group's first of a kind that a
    restart causes, and began within a minute; None otherwise."""
    outcome: RebalanceOutcome
    error: str | None = None
    """Name of the error code if the outcome is store_failed."""
    protocol: str | None = None
    leader: str | None = None
    leader_changed: bool = False
    leader_change: LeaderChange | None = None
    members_before: int = 0
    members_after: int = 0
    partitions: PartitionCounts = field(default=PartitionCounts())
    stopped: Stopped = field(default=Stopped())
    unread: Unread = field(default=Unread())
    pending_transactions: int = 0
    """Number of open transactions with offsets of the group when the rebalance began."""
    fenced_commits: int = 0
    """Number of transactional commits rejected since the previous rebalance, because they named a
    former member or another generation."""
    members: tuple[MemberTimeline, ...] = ()
    """Members of the new generation, and those that ceased to be members; if truncated, the
    most significant ones."""
    members_dropped: int = 0
    recovered: bool = False
    """Whether the record was rebuilt at start-up from the group's stored records, because the
    broker stopped before writing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvoidedRecord:
    """A join that could have started a rebalance and did not."""

    group: str
    sequence: int
    generation: int
    at_ms: int
    trigger: TriggerRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberChange:
    """A member of a share group whose partitions have changed, or that left or was removed."""

    member_id: str
    client_id: str = ""
    host: str = ""
    fate: MemberFate = MemberFate.KEPT
    certainty: Certainty = Certainty.CERTAIN
    """How certain `fate` is. Left out of the JSON if certain."""
    partitions: MemberPartitions = field(default=MemberPartitions())


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedRecord:
    """A new assignment of a share group; no member stops reading because of it."""

    group: str
    sequence: int
    previous_generation: int
    generation: int
    group_type: str = GroupKind.SHARE.value
    at_ms: int
    trigger: TriggerRecord
    """The first change since the previous assignment."""
    further_causes: tuple[TriggerRecord, ...] = ()
    further_causes_dropped: int = 0
    members_before: int = 0
    members_after: int = 0
    partition_count: int = 0
    """Number of assigned partitions, each counted once if several members share it."""
    gaining_count: int = 0
    """Number of members that gained partitions."""
    gained_count: int = 0
    """Number of partitions gained, over all members."""
    losing_count: int = 0
    """Number of members that gave up partitions, except those that left or were removed."""
    given_up_count: int = 0
    """Number of partitions given up, except by members that left or were removed."""
    members_dropped: int = 0
    members: tuple[MemberChange, ...] = ()
    """Members whose partitions have changed, and those that left or were removed; truncated. The
    last field, so that the HTTP pages can cut off the members without parsing the record."""


HistoryRecord: TypeAlias = RebalanceRecord | AvoidedRecord | AssignedRecord

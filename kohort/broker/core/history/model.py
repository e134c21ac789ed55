"""What the history keeps: one record for each rebalance, one for each that was avoided.

Records are values: made once, never changed, equal if they say the same. Names are those of the
JSON form (`json_form`), which is the public schema, documented in docs/rebalance-history.md. Times
that end in `_at_ms` are wall time since 1970; other `_ms` are durations, or moments counted from
the start of the rebalance by the monotonic clock.

What peers can make long is cut, with a number beside it of what is missing; counts are of all.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from kohort.broker.core.group.events import TriggerKind
from kohort.broker.core.history.names import SCHEMA, LeaderChange, MemberFate, RebalanceOutcome

__all__ = [
    "SCHEMA",
    "AvoidedRecord",
    "HistoryRecord",
    "LeaderChange",
    "MemberFate",
    "MemberPartitions",
    "MemberTimeline",
    "PartitionCounts",
    "RebalanceOutcome",
    "RebalanceRecord",
    "Stopped",
    "Timeline",
    "TriggerRecord",
    "WaitedFor",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRecord:
    """The cause of a rebalance, or a further cause, or of what almost was one.

    `kind` is what the broker saw. What the client says of itself stands apart: `reason`, with
    `reason_source` "tag" (JoinGroup's tag 7728) or "text" (guessed from `reason_text`).
    """

    kind: TriggerKind
    at_ms: int
    after_ms: int | None = None
    """Time since the rebalance began, of a further cause."""
    member_id: str | None = None
    instance_id: str | None = None
    client_id: str | None = None
    host: str | None = None
    was_leader: bool = False
    reason: str | None = None
    """Name of a JoinReason."""
    reason_source: str | None = None
    reason_number: int | None = None
    """The number in the tag."""
    reason_text: str | None = None
    """KIP-800's text, of a JoinGroup or a LeaveGroup."""
    row: int | None = None
    """Row of the decision table for rejoins that decided; None where the table did not."""
    old_protocols: tuple[str, ...] = ()
    new_protocols: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """Ids of all members whose removal is this cause; cut."""
    removed_count: int = 0
    session_timeout_ms: int | None = None
    """Session timeout of a member whose session ended."""
    rebalance_timeout_ms: int | None = None
    """The time that was up, for members that did not sync."""
    error: str | None = None
    """Name of an error code."""
    detail: str | None = None
    silent_ms: int | None = None
    """Silence of the old process of a static member that came back; None for others."""
    unfetched_ms: int | None = None
    """How long a member that left had not fetched, though it sent heartbeats, if that was long."""
    grown_topics: tuple[str, ...] = ()
    """Topics that were given more partitions since the group was last Stable; cut."""
    grown_ms: int | None = None
    """How long before the cause the last of them was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When the phases ended; None for what did not happen."""

    extensions_ms: tuple[int, ...] = ()
    """When the initial delay was extended; cut."""
    stalled_ms: tuple[int, ...] = ()
    """When time was up, but no member, all static, had joined, so that it waits on; cut."""
    join_phase_ms: int | None = None
    join_phase_end: str | None = None
    """all_joined, timeout or initial_delay."""
    leader_synced_ms: int | None = None
    durable_ms: int | None = None
    """When the leader's assignment was stored, and so given to the members that waited for it."""
    finished_ms: int | None = None
    """When the group was Stable or Empty, or the next rebalance began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedFor:
    """The members that the rebalance waited for last: the last to join if all joined, those that
    were missing if time was up, or the leader if its assignment took longer than the joins.
    """

    phase: str | None = None
    """join, initial_delay, sync, or store for the disk; None if nothing was waited for."""
    member_ids: tuple[str, ...] = ()
    """Cut."""
    pending_ids: tuple[str, ...] = ()
    """Ids handed out to members that never came back with them; cut."""
    ms: int = 0
    """From the moment when all others were there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCounts:
    """What happened to partitions, over all members. Meaningless unless `known`."""

    known: bool = False
    """False where the assignments are not a consumer's, or the assignment before is not known."""
    kept: int = 0
    moved: int = 0
    """Gained from another member, at once or, in a cooperative group, one rebalance later."""
    gained: int = 0
    given_up: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """How long members stood still, over all members: see `MemberTimeline.stopped_ms`."""

    member_count: int = 0
    """That were members before, and stood still for a millisecond or longer."""
    longest_ms: int = 0
    total_ms: int = 0
    open_count: int = 0
    """For how many that had not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPartitions:
    """A member's share before and after."""

    known: bool = False
    kept: int = 0
    given_up: tuple[str, ...] = ()
    """Partitions given up, as topic-partition; cut."""
    given_up_count: int = 0
    gained: tuple[str, ...] = ()
    """Partitions gained, as topic-partition; cut."""
    gained_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTimeline:
    """One member in a rebalance."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    role: str | None = None
    """leader or follower of the new generation; None for those that are not in it."""
    told_ms: int | None = None
    """First answer REBALANCE_IN_PROGRESS; from here to its join the member revokes and commits."""
    join_received_ms: int | None = None
    join_answered_ms: int | None = None
    sync_received_ms: int | None = None
    sync_answered_ms: int | None = None
    fate: MemberFate = MemberFate.KEPT
    fate_ms: int | None = None
    """When it ceased to be a member."""
    replaced_by: str | None = None
    reason: str | None = None
    """Reason that its join stated, as in TriggerRecord."""
    reason_source: str | None = None
    reason_number: int | None = None
    reason_text: str | None = None
    """Text of its join; for one that left, of its LeaveGroup."""
    mode: str | None = None
    """eager, cooperative, or None for one that did not join."""
    stopped_ms: int | None = None
    """How long it stood still. Eager: from its join until its assignment. Cooperative: the longest
    that a partition it gained had been without an owner; what it kept never stopped. None for one
    that did not join."""
    stopped_open: bool = False
    """It had not ended: no assignment yet, or partitions that it gave up have no new owner yet."""
    session_timeout_ms: int | None = None
    """What its join asked for; None for one that did not join."""
    rebalance_timeout_ms: int | None = None
    """The same: its max.poll.interval.ms."""
    partitions: MemberPartitions = field(default=MemberPartitions())


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRecord:
    """One move to PreparingRebalance, and what came of it."""

    group: str
    sequence: int
    """Grows by one with each record of the group, avoided ones included."""
    previous_generation: int
    generation: int | None = None
    """The new generation; None while the join phase runs, and if it never ended."""
    previous_state: str
    initial: bool = False
    """The first of an empty group, which waits for its delay."""
    follows: int | None = None
    """The rebalance that this one supersedes, or whose given-up partitions it hands out."""
    superseded_by: int | None = None
    protocol_type: str | None = None
    started_at_ms: int
    trigger: TriggerRecord
    further_causes: tuple[TriggerRecord, ...] = ()
    further_causes_dropped: int = 0
    timeline: Timeline = field(default=Timeline())
    waited_for: WaitedFor = field(default=WaitedFor())
    outcome: RebalanceOutcome
    error: str | None = None
    """With store_failed: name of the error code."""
    protocol: str | None = None
    leader: str | None = None
    leader_changed: bool = False
    leader_change: LeaderChange | None = None
    members_before: int = 0
    members_after: int = 0
    partitions: PartitionCounts = field(default=PartitionCounts())
    stopped: Stopped = field(default=Stopped())
    pending_transactions: int = 0
    """Producers that held positions of the group in open transactions when it began."""
    fenced_commits: int = 0
    """Commits in transactions that were refused since the rebalance before, because they spoke of a
    member that is none any more, or of another generation."""
    members: tuple[MemberTimeline, ...] = ()
    """Members of the new generation, and those that ceased to be members; cut, the ones that
    explain most are kept."""
    members_dropped: int = 0
    recovered: bool = False
    """Made by a start from what the group had stored, because the broker ended before it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvoidedRecord:
    """A join that could have started a rebalance and did not."""

    group: str
    sequence: int
    generation: int
    at_ms: int
    trigger: TriggerRecord


HistoryRecord: TypeAlias = RebalanceRecord | AvoidedRecord

"""What happened in a group, told for the rebalance history and the metrics.

Events carry facts, no times: the shell stamps them with the time of the step. They refer to the
group's own immutable values (metadata, assignments) instead of copying them. The order of events is
the order of what happened.

Those that a rebalance brings for every member are named tuples, which are made in a third of the
time that a frozen dataclass takes.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

from kohort.broker.core.group.reasons import NO_REASON, StatedReason
from kohort.broker.core.group.records import GroupRecord
from kohort.broker.core.group.states import GroupState
from kohort.protocol.errors import ErrorCode


class MemberRef(NamedTuple):
    """The identity of a member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class TriggerKind(Enum):
    """Why a rebalance starts, as the broker saw it; what the client states is kept apart."""

    MEMBER_ADDED = "member_added"
    STATIC_ADDED = "static_added"
    STATIC_REPLACED = "static_replaced"
    PROTOCOLS_CHANGED = "protocols_changed"
    LEADER_REJOINED = "leader_rejoined"
    FOLLOWER_REJOINED = "follower_rejoined"
    """Never starts a rebalance, but may have been meant to."""
    FORCED_BY_REASON = "forced_by_reason"
    MEMBER_LEFT = "member_left"
    REMOVED_BY_ADMIN = "removed_by_admin"
    SESSION_EXPIRED = "session_expired"
    NEW_MEMBER_EXPIRED = "new_member_expired"
    SYNC_EXPIRED = "sync_expired"
    STORE_FAILED = "store_failed"
    OVER_CAPACITY = "over_capacity"
    SIZE_REFUSED = "size_refused"


class Fate(Enum):
    """How a member ceased to be one."""

    LEFT = "left"
    REMOVED_BY_ADMIN = "removed_by_admin"
    SESSION_EXPIRED = "session_expired"
    NEW_MEMBER_EXPIRED = "new_member_expired"
    REBALANCE_TIMEOUT = "rebalance_timeout"
    SYNC_EXPIRED = "sync_expired"
    SIZE_REFUSED = "size_refused"


class JoinPhaseEnd(Enum):
    """Why the join phase ended."""

    ALL_JOINED = "all_joined"
    TIMEOUT = "timeout"
    INITIAL_DELAY = "initial_delay"


class RebalanceEnd(Enum):
    """How a rebalance ended."""

    STABLE = "stable"
    EMPTY = "empty"
    STORE_FAILED = "store_failed"
    """The assignment could not be stored; the next rebalance follows at once."""


class Trigger(NamedTuple):
    """The cause of a rebalance, a further cause of a running one, or what almost was one."""

    kind: TriggerKind
    member: MemberRef | None = None
    was_leader: bool = False
    reason: StatedReason = NO_REASON
    row: int | None = None
    """Row of the decision table that decided; None where the table did not."""
    old_protocols: tuple[str, ...] = ()
    new_protocols: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """Ids of all members whose removal is this one cause."""
    timeout_ms: int | None = None
    """What `member` exceeded: its session timeout, or the group's rebalance timeout where it did
    not sync."""
    error: ErrorCode = ErrorCode.NONE
    detail: str = ""
    silent_ms: int | None = None
    """Silence of the old process of a static member that came back. None for others, and if it is
    not known, because an answer of ours was on its way to that process."""
    unfetched_ms: int | None = None
    """How long a member that left had not fetched, though it sent heartbeats, if that was long."""
    grown_topics: tuple[str, ...] = ()
    """Topics of the group that were given more partitions since it was last Stable."""
    grown_ms: int | None = None
    """How long ago the last of them was."""


class RebalanceStarted(NamedTuple):
    """The group moved to PreparingRebalance. A rebalance that was under way is superseded."""

    trigger: Trigger
    previous_state: GroupState
    generation: int
    """The one that ends."""
    members: tuple[MemberRef, ...]
    """Before a joining member is added, after leaving ones are removed."""
    pending_transactions: int = 0
    """Producers whose open transactions hold positions of the group."""


class CommitFenced(NamedTuple):
    """A commit in a transaction was refused: its producer writes what a member has read that is
    none any more, or of another generation.
    """

    error: ErrorCode


class CauseAdded(NamedTuple):
    """A further cause while joins are collected."""

    trigger: Trigger


class RebalanceAvoided(NamedTuple):
    """A join that could have started a rebalance and did not: rows 12, 13 and 15, and row 16 where
    a reason was stated.
    """

    trigger: Trigger


class InitialDelayExtended(NamedTuple):
    """New members arrived during the window, so another one follows."""

    deadline_ms: int
    """Monotonic."""


class MemberTold(NamedTuple):
    """A member got its first REBALANCE_IN_PROGRESS of this rebalance."""

    member_id: str


class JoinReceived(NamedTuple):
    """A member's join is parked."""

    member: MemberRef
    reason: StatedReason
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None


class JoinPhaseEnded(NamedTuple):
    """All parked joins are answered with the new generation."""

    end: JoinPhaseEnd
    generation: int
    protocol_name: str | None
    leader: str | None
    members: tuple[MemberRef, ...]
    absent: tuple[str, ...]
    """Static members that did not join and stay."""
    pending: tuple[str, ...]
    """Ids handed out that did not come back in time."""
    protocol_type: str | None = None


class JoinPhaseStalled(NamedTuple):
    """Time was up, but none of the members, all static, has joined: it waits once more."""

    waiting_for: tuple[str, ...]


class UnusedIdDropped(NamedTuple):
    """An id that was handed out will not become a member: its time is up, it was given back, or
    there is no room. If a join phase waited for nothing else, its end follows.
    """

    member_id: str


class SyncReceived(NamedTuple):
    """A member's sync is parked, or answered at once in a Stable group."""

    member_id: str
    is_leader: bool


class SyncAnswered(NamedTuple):
    """A member that came late, or again, has its assignment; the others have it from the moment of
    `RebalanceEnded`.
    """

    member_id: str


class RebalanceEnded(NamedTuple):
    """The rebalance is over. With STABLE, each member whose sync is parked has its assignment
    now.
    """

    outcome: RebalanceEnd
    generation: int
    assignments: Mapping[str, bytes]
    """By member id; empty unless STABLE."""
    error: ErrorCode = ErrorCode.NONE


class MemberRemoved(NamedTuple):
    """A member is gone. If that starts a rebalance, RebalanceStarted follows."""

    member: MemberRef
    fate: Fate
    text: str | None = None
    """The reason text of a LeaveGroup (KIP-800)."""


class MemberReplaced(NamedTuple):
    """A static member came back under a new id; or that could not be stored, and it has its old one
    again.
    """

    old_member_id: str
    member: MemberRef


class MemberFenced(NamedTuple):
    """A request came from a process whose instance id belongs to another one now."""

    member_id: str
    instance_id: str


class MemberRefused(NamedTuple):
    """The group is full."""

    member_id: str
    client_id: str
    client_host: str


class OffsetsStored(NamedTuple):
    """Positions became durable."""

    offset_count: int


class OffsetsRemoved(NamedTuple):
    """Positions are gone."""

    offset_count: int
    expired: bool


class GroupRestored(NamedTuple):
    """The group was made from what the log says: the first event of its life in this process, or,
    after a mistake of ours, of a new one. What was under way is lost.
    """

    generation: int
    protocol_type: str | None
    leader: str | None
    assignments: Mapping[str, bytes]
    """By member id."""
    generations: tuple[GroupRecord, ...] = ()
    """The last ones that the log has, this one included, in their order."""


class GroupRemoved(NamedTuple):
    """The group is gone, by DeleteGroups or because nothing was left of it."""

    expired: bool


Event: TypeAlias = (
    RebalanceStarted
    | CommitFenced
    | CauseAdded
    | RebalanceAvoided
    | InitialDelayExtended
    | MemberTold
    | JoinReceived
    | JoinPhaseEnded
    | JoinPhaseStalled
    | UnusedIdDropped
    | SyncReceived
    | SyncAnswered
    | RebalanceEnded
    | MemberRemoved
    | MemberReplaced
    | MemberFenced
    | MemberRefused
    | OffsetsStored
    | OffsetsRemoved
    | GroupRestored
    | GroupRemoved
)

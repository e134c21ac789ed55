"""Events of a group, for the rebalance history and the metrics.

Events have no timestamps: observers get the time with each event. They refer to the group's own
immutable values (metadata, assignments) instead of copying them. They are in order of occurrence.

Events that a rebalance emits for every member are dataclasses that are not frozen: they are created
in half the time of a named tuple, and are not to be changed either.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, get_args

from kohort.groups.kinds import GroupKind
from kohort.groups.reasons import NO_REASON, StatedReason
from kohort.groups.records import Generation
from kohort.groups.requests import Connection
from kohort.protocol.errors import ErrorCode

NO_EPOCHS: Final[Mapping[str, int]] = MappingProxyType({})


class MemberRef(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    client_software: str = ""
    """Name and version that the client states (KIP-511), separated by a space; each is "unknown" if
    it states none. Empty until the member joins again after the broker's restart, because they are
    not stored with the group."""


class TriggerKind(Enum):
    """Causes of a rebalance as the broker sees them; reasons stated by clients are separate."""

    MEMBER_ADDED = "member_added"
    STATIC_ADDED = "static_added"
    STATIC_REPLACED = "static_replaced"
    PROTOCOLS_CHANGED = "protocols_changed"
    LEADER_REJOINED = "leader_rejoined"
    FOLLOWER_REJOINED = "follower_rejoined"
    """A follower joined again: this never starts a rebalance, but may have been intended to."""
    FORCED_BY_REASON = "forced_by_reason"
    MEMBER_LEFT = "member_left"
    REMOVED_BY_ADMIN = "removed_by_admin"
    SESSION_EXPIRED = "session_expired"
    NEW_MEMBER_EXPIRED = "new_member_expired"
    SYNC_EXPIRED = "sync_expired"
    STORE_FAILED = "store_failed"
    OVER_CAPACITY = "over_capacity"
    SIZE_REFUSED = "size_refused"
    # Consumer groups only.
    SUBSCRIPTION_CHANGED = "subscription_changed"
    REGEX_RESOLVED = "regex_resolved"
    ASSIGNOR_CHANGED = "assignor_changed"
    TOPICS_CHANGED = "topics_changed"
    REBALANCE_EXPIRED = "rebalance_expired"
    """A member did not revoke partitions within its rebalance timeout."""
    JOIN_EXPIRED = "join_expired"
    """A classic member of a consumer group did not join again in time."""
    UPGRADED = "upgraded"
    DOWNGRADED = "downgraded"
    # Share groups only.
    INITIALIZED = "initialized"
    """Partitions of subscribed topics were initialized."""
    # Never start a rebalance.
    INSTANCE_FENCED = "instance_fenced"
    """A process is alive although another process has taken over its instance id."""
    PROTOCOL_REFUSED = "protocol_refused"
    """A client offers no assignor that all members offer, or another protocol type."""
    MEMBER_REFUSED = "member_refused"
    """A client was rejected for a reason that has no kind of its own; clients do not retry."""
    UNKNOWN = "unknown"
    """The cause was not observed, or was lost in a restart."""


class Certainty(StrEnum):
    """How well a cause is known; CERTAIN if the broker itself observed it."""

    CERTAIN = "certain"
    LIKELY = "likely"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A fact from which `kohort watch` concludes what happened in a group."""

    kind: str
    """The fact: last_commit, last_join (if the member has not committed since), poll (it found the
    group rebalancing), or log_line (in the broker's log); in share groups last_record, or not_taken
    (an assignment that the member would have got with its next heartbeat)."""
    ms: int
    """Time from the fact until the event that the fact explains."""


UNDER_OLD_ID: Final = "under its old member id"
"""Beginning of `Trigger.detail` of STATIC_REPLACED if the member kept its member id."""


class RemovalReason(Enum):
    """How a member was removed."""

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
    """The cause of a rebalance, or of an avoided one, or an additional cause."""

    kind: TriggerKind
    member: MemberRef | None = None
    was_leader: bool = False
    reason: StatedReason = NO_REASON
    row: int | None = None
    """Row of the table in `kohort.groups.classic.decisions` that applied; None if none did."""
    old_protocols: tuple[str, ...] = ()
    new_protocols: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """Ids of all members whose removal is this cause."""
    timeout_ms: int | None = None
    """The timeout that `member` exceeded: its session timeout, or the group's rebalance timeout if
    it did not sync."""
    error: ErrorCode = ErrorCode.NONE
    detail: str = ""
    silent_ms: int | None = None
    """How long the old process of a returning static member had been silent. None for other
    members, and if unknown because a response to the old process was pending."""
    unfetched_ms: int | None = None
    """How long a member that left had sent heartbeats without fetching; None unless long."""
    grown_topics: tuple[str, ...] = ()
    """Topics of the group that got more partitions since it was last Stable."""
    grown_ms: int | None = None
    """Time from the latest addition of partitions to one of `grown_topics` until the cause."""
    connection: Connection | None = None
    """The connection on which a member left."""
    was_connected: bool | None = None
    """Of a member whose session expired: whether the connection of its last heartbeat was open at
    that time; None if unknown."""
    same_process: bool | None = None
    """Whether a new member is the process of a member that was lost because it was silent. None if
    no lost member had the new one's instance id or, without one, its client id and host."""
    same_subscription: bool | None = None
    """Whether a classic consumer that joined again subscribes to the same topics as before; None if
    that is unknown."""
    subscribed: tuple[str, ...] = ()
    """Topics that the member did not subscribe to before it joined again."""
    unsubscribed: tuple[str, ...] = ()
    """Topics that the member subscribed to only before it joined again."""
    away_ms: int | None = None
    """If `same_process`: the time since the process sent its last heartbeat as the lost member."""
    certainty: Certainty = Certainty.CERTAIN
    candidates: tuple[TriggerKind, ...] = ()
    """If the cause is unclear: all possible causes, the most likely first."""
    evidence: tuple[Evidence, ...] = ()


class RebalanceStarted(NamedTuple):
    """A rebalance began; one that was in progress is superseded."""

    trigger: Trigger
    previous_state: str
    """Name of the state that the group leaves."""
    generation: int
    members: tuple[MemberRef, ...]
    """The group's members, except those that are joining or have left."""
    kind: GroupKind
    pending_transactions: int = 0
    """Number of producers with open transactions that contain offset commits of the group."""
    epochs: Mapping[str, int] = NO_EPOCHS
    """Of a consumer group: the epochs of `members`, by member id."""
    classic_ids: frozenset[str] = frozenset()
    """Of a consumer group: ids of the members that use the classic protocol."""
    heartbeat_interval_ms: int = 0
    """Of a consumer group: how often members send heartbeats."""
    causes_lost: int = 0
    """Of a consumer group: number of additional causes that a restart of the broker lost."""


class CommitFenced(NamedTuple):
    """A transactional commit by a former member, or with another generation, was refused."""

    error: ErrorCode


class CauseAdded(NamedTuple):
    """A further cause of the rebalance in progress."""

    trigger: Trigger


class RebalanceAvoided(NamedTuple):
    """A request that was refused, or that could have started a rebalance but did not. For classic
    joins: rows 12, 13, 15 of `classic.decisions`, and row 16 if a reason was stated.
    """

    trigger: Trigger


class InitialDelayExtended(NamedTuple):
    """New members joined during the window of the initial delay, so another window follows."""

    deadline_ms: int
    """Monotonic time at which the additional window ends."""


@dataclass(slots=True)
class MemberTold:
    """A member got its first REBALANCE_IN_PROGRESS of this rebalance."""

    member_id: str


@dataclass(slots=True)
class JoinReceived:
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
    """Static members that remain although they did not join."""
    pending: tuple[str, ...]
    """Member ids that the coordinator had handed out and that no join used in time."""
    protocol_type: str | None = None


class JoinPhaseStalled(NamedTuple):
    """The join phase timed out, but no member has joined: the group waits for static members."""

    waiting_for: tuple[str, ...]


class UnusedIdDropped(NamedTuple):
    """A pending member id (KIP-394) was dropped: it expired or left, its join was refused, or too
    many ids were pending. If a join phase waited only for this id, the end of the phase follows.
    """

    member_id: str


@dataclass(slots=True)
class SyncReceived:
    """A member's sync was parked, or answered at once in a Stable group."""

    member_id: str
    is_leader: bool


AT_ONCE: Final = "at_once"
"""`assigned_by` of a target that did not wait for the assignment interval."""


class TargetAssigned(NamedTuple):
    """A new target assignment of a consumer group is durable, and members begin to move to it."""

    epoch: int
    assignor: str
    computed_at_ms: int
    """Wall-clock time."""
    assigned_by: str
    """The event that computed the target: at_once (the start of the rebalance, as the assignment
    interval was over), heartbeat (a later heartbeat) or interval (the end of that interval)."""


class MemberReconciled(NamedTuple):
    """A member of a consumer group has taken a step towards its target."""

    member: MemberRef
    epoch: int
    state: str
    """Name of a `MemberState`: the member's progress towards its target."""
    assigned_count: int
    revoking: tuple[tuple[str, int], ...]
    """Partitions that the member still has to revoke, as topic names and numbers."""
    gained: tuple[tuple[str, int], ...]
    """Partitions that the member gained with this step."""
    is_classic: bool = False
    """Whether the member uses the classic protocol."""


class RebalanceEnded(NamedTuple):
    """The rebalance is over; if STABLE, parked syncs get their assignments now."""

    outcome: RebalanceEnd
    generation: int
    assignments: Mapping[str, bytes]
    """Assignments by member id; empty unless STABLE."""
    error: ErrorCode = ErrorCode.NONE


class MemberRemoved(NamedTuple):
    """A member was removed. If that starts a rebalance, RebalanceStarted follows."""

    member: MemberRef
    fate: RemovalReason
    text: str | None = None
    """The reason text of a LeaveGroup (KIP-800)."""
    held: tuple[tuple[str, int], ...] = ()
    """Of a consumer group: the partitions that the member had, as topic names and numbers."""


class MemberReplaced(NamedTuple):
    """A static member got a new id, or its old one back because the new one could not be stored."""

    old_member_id: str
    member: MemberRef


class MemberFenced(NamedTuple):
    """A request came from a process whose instance id belongs to another process now."""

    member_id: str
    instance_id: str


class MemberRefused(NamedTuple):
    """A join was refused because the group is full."""

    member_id: str
    client_id: str
    client_host: str


class OffsetsStored(NamedTuple):
    """Offsets became durable."""

    offset_count: int


class OffsetsRemoved(NamedTuple):
    """Offsets were removed."""

    offset_count: int
    expired: bool


class GroupRestored(NamedTuple):
    """The group was restored from the log, when this process loaded it, or after an internal error.
    Volatile state is lost.
    """

    generation: int
    protocol_type: str | None
    leader: str | None
    assignments: Mapping[str, bytes]
    generations: tuple[Generation, ...] = ()
    """The latest generations in the log, this one included, in order."""


class GroupRemoved(NamedTuple):
    """The group was removed: by DeleteGroups, or because it was unused and had no offsets left."""

    expired: bool


class ShareEpochBumped(NamedTuple):
    """The epoch of a share group has increased; a new assignment follows."""

    trigger: Trigger


class MemberAssigned(NamedTuple):
    """The partitions, as (topic, number), that an assignment adds to a member or takes from it."""

    member: MemberRef
    kept_count: int
    gained: tuple[tuple[str, int], ...]
    given_up: tuple[tuple[str, int], ...]


class SharePartitionsAssigned(NamedTuple):
    """A new target assignment of a share group is durable. Each member gets its partitions with its
    next heartbeat, and no member stops reading meanwhile.
    """

    epoch: int
    member_count: int
    partition_count: int
    """Number of assigned partitions, each counted once if several members share it."""
    changes: tuple[MemberAssigned, ...]
    """The members whose partitions change, except removed members."""


class SharePartitionsInitialized(NamedTuple):
    """A share group reads additional partitions. Their state must be created before the request
    that caused this is answered.
    """

    epoch: int
    """The group epoch, which is the state epoch of these partitions."""
    topics: Mapping[bytes, tuple[str, tuple[int, ...]]]
    """By topic id: the name of the topic, and the added partitions."""
    grown: frozenset[bytes] = frozenset()
    """Topics of which the group already had partitions: it reads the added ones from offset 0."""


class SharePartitionsForgotten(NamedTuple):
    """A share group has no state of these partitions any more, because its offsets, the group or
    the topic were deleted.
    """

    partitions: tuple[tuple[bytes, int], ...]
    """(topic id, partition)"""


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
    | TargetAssigned
    | MemberReconciled
    | RebalanceEnded
    | MemberRemoved
    | MemberReplaced
    | MemberFenced
    | MemberRefused
    | OffsetsStored
    | OffsetsRemoved
    | GroupRestored
    | GroupRemoved
    | ShareEpochBumped
    | SharePartitionsAssigned
    | SharePartitionsInitialized
    | SharePartitionsForgotten
)

EVENTS: Final[frozenset[type[Event]]] = frozenset(get_args(Event))

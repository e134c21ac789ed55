"""Requests to a group and their results, independent of protocol versions.

Handlers convert requests of any version to these classes, and encode a result as the version of the
request requires (top-level or per-partition errors, "" or null).

The classes that every commit, or every member in a rebalance, needs are dataclasses that are not
frozen: an instance is created in half the time of a named tuple. Still, do not change instances.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from kohort.groups.reasons import NO_REASON, StatedReason
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.membership import JoinGroupResponseMember
from kohort.protocol.types import ZERO_UUID

CONSUMER: Final = "consumer"
"""The protocol type of groups whose members are consumers."""

Ticket: TypeAlias = object
"""An opaque handle of a pending request. The group returns it in exactly one Reply, and never looks
inside."""


_BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that Java's `String.trim` removes."""


def is_blank(text: str | None) -> bool:
    """Whether a heartbeat's text field is empty or blank; false for null."""
    return text is not None and not text.strip(_BLANKS)


class Connection(Protocol):
    """A client's connection, of which this package only uses `is_open`."""

    @property
    def is_open(self) -> bool: ...


def is_open(connection: Connection | None) -> bool | None:
    """Whether a connection is open; None if there is none."""
    return None if connection is None else connection.is_open


@dataclass(slots=True)
class Now:
    """The current time on the monotonic and the wall clock, the same throughout one command."""

    ms: int
    """Monotonic time, for all deadlines and durations."""
    wall_ms: int
    """Wall time since 1970, for commit timestamps, the time of a state change, and expiry of
    offsets."""


UNFETCHED_LEAST_MS: Final = 5_000
"""A member that has not fetched for this long has stopped polling: a polling consumer sends a Fetch
every half second, unless configured otherwise. A waiting Fetch counts as fetching."""


@dataclass(slots=True)
class JoinRequest:
    """A JoinGroup of any version."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """Timeout as sent; v0 has none and repeats the session timeout. A negative one counts as 0."""
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata) in order of preference."""
    former_member_id: str = ""
    """The member id that the sender used before on the same connection."""
    requires_known_id: bool = True
    """v4+: a dynamic member without an id gets one and must join again (KIP-394)."""
    can_skip_assignment: bool = True
    """v9+: the response can tell a returning leader to skip the assignment (KIP-814)."""
    reason: StatedReason = NO_REASON
    client_software: str = ""
    """Name and version of the client library (see `MemberRef`)."""


JoinedMember: TypeAlias = JoinGroupResponseMember
"""A member in the response to the leader. It is the protocol's own class, so that the thousands of
members of a large group are not copied; the compiled codec accepts no other class."""


@dataclass(slots=True)
class JoinResult:
    """The answer to a join: an error, perhaps with the member id to use next; or a generation."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: list[JoinedMember] = field(default_factory=list)
    skip_assignment: bool = False


@dataclass(slots=True)
class SyncRequest:
    """A SyncGroup of any version."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    """None before v5, and not checked then. From v5 on, protocol type and name are required."""
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    """Assignments by member id; ignored unless the leader sends them."""


@dataclass(slots=True)
class SyncResult:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeaveEntry(NamedTuple):
    """One member that leaves, or is removed."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None
    unfetched_ms: int | None = None
    """How long the leaving client has not fetched, if known."""
    connection: Connection | None = None
    """The connection of the request."""


class LeaveResult(NamedTuple):
    """One error per entry, in order; or `error` for all."""

    error: ErrorCode = ErrorCode.NONE
    entries: tuple[ErrorCode, ...] = ()


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """When the offset expires, if its commit set a retention time (v2-4); otherwise -1."""
    topic_id: bytes = ZERO_UUID
    """Id of the topic that the offset was committed for; zero if unknown."""

    def is_of(self, topic_id: bytes) -> bool:
        """Whether the offset was committed for this topic, not for an earlier topic of the same
        name.

        True if either id is unknown, as in Kafka.
        """
        return self.topic_id in {topic_id, ZERO_UUID} or topic_id == ZERO_UUID


@dataclass(slots=True)
class OffsetToCommit:
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: bytes = ZERO_UUID


@dataclass(slots=True)
class CommitRequest:
    """An OffsetCommit or TxnOffsetCommit; all its partitions exist."""

    offsets: tuple[OffsetToCommit, ...]
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    """Generation or member epoch; -1 with an empty member id if no member commits."""
    retention_time_ms: int = -1
    """v2-4: retention of these offsets instead of the broker's; -1 for the broker's."""
    allows_epoch: bool = True
    """Whether `generation` may be a member epoch (KIP-848); false before OffsetCommit v9."""


def _always() -> ErrorCode:
    return ErrorCode.NONE


class EnclosingTransaction(NamedTuple):
    """The transaction that a TxnOffsetCommit belongs to."""

    producer_id: int
    producer_epoch: int
    check: Callable[[], ErrorCode] = _always
    """Returns an error unless the transaction is open and includes the group's partition of
    __consumer_offsets. Called right before the append, perhaps long after the request came: records
    appended after the transaction's marker would stay pending forever."""


@dataclass(slots=True)
class CommitResult:
    """One error per offset, in the order of the request."""

    errors: tuple[ErrorCode, ...]


class DeleteOffsetsResult(NamedTuple):
    """`error` for the whole request, or one error per partition in the order of the request."""

    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[ErrorCode, ...] = ()

"""The records in the log of a group; see `encoding` for their bytes.

Offsets have the same records in all kinds of groups. `GroupRecord` is that of classic groups; each
further kind has its own in its package.
"""

from typing import NamedTuple, Protocol

from kohort.groups.requests import CommittedOffset


class DurableRecord(Protocol):
    """Any record in the log of a group, of its offsets or of its membership."""

    @property
    def group_id(self) -> str: ...


class Generation(DurableRecord, Protocol):
    """A generation of a classic group, or a target assignment of a consumer group."""

    @property
    def generation(self) -> int: ...

    @property
    def state_timestamp_ms(self) -> int: ...

    @property
    def begun(self) -> bytes | None: ...


class StoredMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: bytes
    """The metadata for the generation's protocol."""
    assignment: bytes


class GroupRecord(NamedTuple):
    """A generation of a classic group; without members, an empty group."""

    group_id: str
    protocol_type: str | None
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_timestamp_ms: int
    """Wall-clock time at which the group entered its state; -1 if unknown."""
    members: tuple[StoredMember, ...]
    topics_hash: bytes | None = None
    begun: bytes | None = None
    """The encoded cause of the rebalance that led to this generation."""


class GroupTombstone(NamedTuple):
    """The classic group, or a group that has only offsets, was removed."""

    group_id: str


class OffsetRecord(NamedTuple):
    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset


class PendingOffset(NamedTuple):
    """An offset that becomes valid when its producer's transaction commits.

    It is in a batch with the producer's id and epoch, but encoded like any other.
    """

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset
    producer_id: int
    producer_epoch: int


class OffsetTombstone(NamedTuple):
    group_id: str
    topic: str
    partition: int

"""The records in the log of a group, and the description of their codecs.

Offsets have the same records in all kinds of groups. `GroupRecord` is the record of classic groups;
the packages of the other kinds define theirs. :mod:`kohort.groups.encoding` has the
table of codecs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

from kohort.groups.kinds import GroupKind
from kohort.groups.requests import CommittedOffset
from kohort.groups.steps import Steps


class DurableRecord(Protocol):
    """Any offset or membership record in the log of a group."""

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

    It is encoded like `OffsetRecord`, but in a batch with the producer's id and epoch.
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


RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]


def _no_headers(record: Any) -> RecordHeaders:  # noqa: ANN401 - see RecordCodec.
    del record
    return ()


class RecordCodec(NamedTuple):
    record_types: tuple[type[Any], ...]
    tombstone_types: tuple[type[Any], ...]
    """The classes of tombstones, which delete a key. The codec's functions accept tombstones as
    well."""
    key_versions: tuple[int, ...]
    """The version numbers with which its keys begin; no two codecs share one."""
    encode_key: Callable[[Any], bytes]
    encode_value: Callable[[Any], bytes | None]
    """Encodes a value; None for a tombstone. Raises EncodeError."""
    decode: Callable[[bytes, bytes | None, RecordHeaders], DurableRecord]
    """Decodes a key with its value and headers. Raises DecodeError."""
    encode_headers: Callable[[Any], RecordHeaders] = _no_headers
    """Encodes the fields for which Kafka's value format has no place."""
    kind: GroupKind | None = None
    """The kind of group whose membership is restored from these records; None for offsets."""
    is_large: Callable[[Any], bool] | None = None
    """Whether a record should be encoded in steps; None if it never is."""
    has_many_bytes: Callable[[Any], bool] | None = None
    """Whether a record should be encoded outside the event loop's thread; None if it never is."""
    value_steps: Callable[[Any], Steps[bytes | None]] | None = None
    """Encodes a large value like `encode_value`, in steps; None if it takes one step."""

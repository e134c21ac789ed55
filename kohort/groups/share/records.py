"""The records of share groups in the log; see `encoding` for their bytes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

MEMBER: Final = 10
EPOCH: Final = 11
TARGET_EPOCH: Final = 12
TARGET: Final = 13
CURRENT: Final = 14
PARTITIONS: Final = 15
"""The record types; each is stored as the version of the record's key."""


class ShareMemberRecord(NamedTuple):
    """A member's client and subscription."""

    group_id: str
    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]


class ShareEpochRecord(NamedTuple):
    group_id: str
    epoch: int
    metadata_hash: int
    """Hash of the subscribed topics, as a signed integer; 0 if no topic exists."""


class ShareTargetEpochRecord(NamedTuple):
    group_id: str
    epoch: int
    computed_at_ms: int
    """Wall-clock time at which the target was computed; 0 if unknown, or without members."""


class ShareTargetRecord(NamedTuple):
    group_id: str
    member_id: str
    partitions: Mapping[bytes, tuple[int, ...]]
    """Partition numbers by topic id."""


class ShareCurrentRecord(NamedTuple):
    """A member's epoch and partitions."""

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    partitions: Mapping[bytes, tuple[int, ...]]


class StoredTopic(NamedTuple):
    name: str
    partitions: tuple[int, ...]
    """Partition numbers, ascending."""


class SharePartitionsRecord(NamedTuple):
    """The partitions whose share state the group has initialized, by topic id. Kafka's record also
    lists topics whose state is being deleted; they are ignored.
    """

    group_id: str
    initialized: Mapping[bytes, StoredTopic]
    initializing: Mapping[bytes, StoredTopic] = MappingProxyType({})
    """Partitions whose state another broker was initializing; read, but never written."""


class ShareTombstone(NamedTuple):
    """A tombstone for the group's record of this type, or for that of a member."""

    group_id: str
    record_type: int
    member_id: str = ""

"""The records of a group, and their encoding in __consumer_offsets.

The layout is Kafka's own, so that tools which read the topic work: keys v1 (offset) and v2 (group),
values v4 for an offset (v1 with an explicit expiry) and v3 for a group; null deletes. Data that
does not fit in Kafka's layout is in record headers, which its tools ignore.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, cast

from kohort.broker.core.group.group_value import StoredMember, encode_members
from kohort.broker.core.group.requests import CommittedOffset
from kohort.broker.core.steps import Steps, at_once
from kohort.protocol.codec import codec, decode_versioned, encode_versioned
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kohort.protocol.types import ZERO_UUID

TOPICS_HASH_HEADER: Final = "kohort.topics"
"""Header of a group record: the hash of its topics' partition counts."""

BEGUN_HEADER: Final = "kohort.rebalance"
"""Header of a group record: the cause of the rebalance; see `begun`."""

RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]


class GroupRecord(NamedTuple):
    """A generation; without members, an empty group."""

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
    """How the rebalance began that led to this generation."""


class GroupTombstone(NamedTuple):
    """The group was removed."""

    group_id: str


class OffsetRecord(NamedTuple):
    """A committed offset."""

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
    """An offset was removed."""

    group_id: str
    topic: str
    partition: int


DurableRecord: TypeAlias = (
    GroupRecord | GroupTombstone | OffsetRecord | PendingOffset | OffsetTombstone
)

_OFFSET_KEY_VERSION: Final = 1
_GROUP_KEY_VERSION: Final = 2
_OFFSET_VALUE_VERSION: Final = 4
_OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
_GROUP_VALUE_VERSION: Final = 3
_COUNT_BYTES: Final = 4

_OFFSET_VALUE: Final = codec(OffsetCommitValue, _OFFSET_VALUE_VERSION)
_WITH_EXPIRY: Final = codec(OffsetCommitValue, _OFFSET_VALUE_VERSION_WITH_EXPIRY)

_PLAIN_POSITION: Final = struct.Struct(">hqiBq3s16s").pack
"""The value of an offset without metadata, of a topic whose id is known."""
_NO_METADATA: Final = 1
"""The length of an empty compact string, plus one."""
_TOPIC_ID_TAG: Final = b"\1\0\x10"
"""One tagged field: number 0, of sixteen bytes."""
_POSITIONS: Final = (OffsetRecord, PendingOffset)

KEYS_KEPT_MAX: Final = 1_000
"""Number of offset keys that are cached; each is a few hundred bytes."""

ID_KEPT_MAX: Final = 255
"""Longest group id whose keys are cached; ids may be a hundred times as long."""


def encode_key(record: DurableRecord) -> bytes:
    """Encode the key, of which compaction keeps only the last record."""
    if isinstance(record, GroupRecord | GroupTombstone):
        return encode_versioned(GroupMetadataKey(group=record.group_id), _GROUP_KEY_VERSION)
    make = _offset_key if len(record.group_id) <= ID_KEPT_MAX else _offset_key.__wrapped__
    return make(record.group_id, record.topic, record.partition)


@lru_cache(maxsize=KEYS_KEPT_MAX)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Cached: a client commits the same partitions again and again."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return encode_versioned(key, _OFFSET_KEY_VERSION)


def value_steps(record: DurableRecord) -> Steps[bytes | None]:
    """Encode as `encode_value` does, in steps: a group of five thousand takes ten milliseconds."""
    if isinstance(record, GroupRecord):
        return (yield from _group_steps(record))
    return encode_value(record)


def encode_value(record: DurableRecord) -> bytes | None:
    """Encode the value, None for a tombstone."""
    if isinstance(record, GroupRecord):
        return at_once(_group_steps(record))
    if not isinstance(record, _POSITIONS):
        return None
    committed = record.committed
    expires = committed.expire_timestamp_ms != -1
    if not expires and not committed.metadata and committed.topic_id != ZERO_UUID:
        # Nearly every commit. The codec gives the same in three times as long: tests compare them.
        try:
            return _PLAIN_POSITION(
                _OFFSET_VALUE_VERSION,
                committed.offset,
                committed.leader_epoch,
                _NO_METADATA,
                committed.commit_timestamp_ms,
                _TOPIC_ID_TAG,
                committed.topic_id,
            )
        except struct.error:
            pass  # The codec reports what does not fit.
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    version = _OFFSET_VALUE_VERSION_WITH_EXPIRY if expires else _OFFSET_VALUE_VERSION
    made = _WITH_EXPIRY if expires else _OFFSET_VALUE
    return b"".join(made.encode_into(value, bytearray(version.to_bytes(2, "big"))))


def encode_headers(record: DurableRecord) -> RecordHeaders:
    """Encode the data that does not fit in the value."""
    if not isinstance(record, GroupRecord):
        return ()
    headers = ((TOPICS_HASH_HEADER, record.topics_hash), (BEGUN_HEADER, record.begun))
    return tuple([header for header in headers if header[1] is not None])


def decode_key(key: bytes) -> str | tuple[str, str, int] | None:
    """Decode a group id, or (group id, topic, partition); None for an unknown type of record, which
    must be left alone.

    Raises:
        DecodeError: the key is of a known type but invalid.
    """
    version = int.from_bytes(key[:2], "big", signed=True)
    if len(key) < 2 or version not in {0, _OFFSET_KEY_VERSION, _GROUP_KEY_VERSION}:
        return None
    if version == _GROUP_KEY_VERSION:
        return codec(GroupMetadataKey, _GROUP_KEY_VERSION).decode(key, 2)[0].group
    named, _ = codec(OffsetCommitKey, _OFFSET_KEY_VERSION).decode(key, 2)
    return named.group, named.topic, named.partition


def decode_record(
    key: str | tuple[str, str, int], value: bytes | None, headers: RecordHeaders = ()
) -> DurableRecord:
    """Decode the record of a key that `decode_key` returned.

    Raises:
        DecodeError: the value is invalid, or of a later version.
    """
    if isinstance(key, str):
        return GroupTombstone(key) if value is None else _decode_group(key, value, headers)
    if value is None:
        return OffsetTombstone(*key)
    stored, _ = decode_versioned(OffsetCommitValue, value)
    committed = CommittedOffset(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        stored.topic_id,
    )
    return OffsetRecord(*key, committed)


def _group_steps(record: GroupRecord) -> Steps[bytes]:
    try:
        members = yield from encode_members(record.members)
    except struct.error:
        # The codec reports what is wrong.
        return encode_versioned(_group_value(record, record.members), _GROUP_VALUE_VERSION)
    value = encode_versioned(_group_value(record, ()), _GROUP_VALUE_VERSION)
    # The members come last, after their count.
    count = len(record.members).to_bytes(_COUNT_BYTES, "big")
    return b"".join((value[:-_COUNT_BYTES], count, members))


def _group_value(record: GroupRecord, members: Sequence[StoredMember]) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=record.protocol_type or "",
        generation=record.generation,
        protocol=record.protocol_name,
        leader=record.leader_id,
        current_state_timestamp=record.state_timestamp_ms,
        members=cast("list[MemberMetadata]", members),
    )


def _decode_group(group_id: str, value: bytes, headers: RecordHeaders) -> GroupRecord:
    stored, _ = decode_versioned(GroupMetadataValue, value)
    if stored.generation < 0:
        raise DecodeError(f"group {group_id!r} has generation {stored.generation}")
    _check_unique(group_id, [member.member_id for member in stored.members])
    instances = [member.group_instance_id for member in stored.members]
    _check_unique(group_id, [instance for instance in instances if instance is not None])
    return GroupRecord(
        group_id=group_id,
        protocol_type=stored.protocol_type or None,
        generation=stored.generation,
        protocol_name=stored.protocol,
        leader_id=stored.leader,
        state_timestamp_ms=stored.current_state_timestamp,
        members=tuple(
            StoredMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.session_timeout,
                rebalance_timeout_ms=member.rebalance_timeout,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in stored.members
        ),
        topics_hash=dict(headers).get(TOPICS_HASH_HEADER),
        begun=dict(headers).get(BEGUN_HEADER),
    )


def _check_unique(group_id: str, ids: list[str]) -> None:
    if len(set(ids)) != len(ids):
        raise DecodeError(f"group {group_id!r} has a member twice")

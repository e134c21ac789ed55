"""The bytes of offset records in __consumer_offsets: key version 1 (0 is read as well), value
version 4, or 1 with an explicit expiry.
"""

import struct
from functools import lru_cache
from typing import Final

from kohort.groups.records import (
    OffsetRecord,
    OffsetTombstone,
    PendingOffset,
    RecordCodec,
    RecordHeaders,
)
from kohort.groups.requests import CommittedOffset
from kohort.protocol.codec import codec, decode_versioned, encode_versioned
from kohort.protocol.messages.offsets_topic import OffsetCommitKey, OffsetCommitValue
from kohort.protocol.types import ZERO_UUID

_KEY_VERSION: Final = 1
_VALUE_VERSION: Final = 4
_VALUE_VERSION_WITH_EXPIRY: Final = 1

_KEY: Final = codec(OffsetCommitKey, _KEY_VERSION)
_VALUE: Final = codec(OffsetCommitValue, _VALUE_VERSION)
_WITH_EXPIRY: Final = codec(OffsetCommitValue, _VALUE_VERSION_WITH_EXPIRY)

_PLAIN_VALUE: Final = struct.Struct(">hqiBq3s16s").pack
"""Packs the value of a committed offset without metadata, for a topic whose id is known."""
_NO_METADATA: Final = 1
"""The encoded length of an empty compact string: its length plus one."""
_TOPIC_ID_TAG: Final = b"\1\0\x10"
"""The head of the tagged fields: one field, with tag 0 and 16 bytes."""

KEYS_KEPT_MAX: Final = 1_000
"""Number of keys that are cached; each is a few hundred bytes."""

ID_KEPT_MAX: Final = 255
"""Longest group id whose keys are cached; ids may be a hundred times as long."""


def encode_key(record: OffsetRecord | PendingOffset | OffsetTombstone) -> bytes:
    """Encode the key: group, topic and partition."""
    make = _key if len(record.group_id) <= ID_KEPT_MAX else _key.__wrapped__
    return make(record.group_id, record.topic, record.partition)


@lru_cache(maxsize=KEYS_KEPT_MAX)
def _key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of an offset. Cached, because a client commits the same partitions again and
    again.
    """
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return encode_versioned(key, _KEY_VERSION)


def encode_value(record: OffsetRecord | PendingOffset) -> bytes:
    committed = record.committed
    expires = committed.expire_timestamp_ms != -1
    if not expires and not committed.metadata and committed.topic_id != ZERO_UUID:
        # Faster, for nearly every commit: the codec takes three times as long for the same bytes.
        # Tests compare them.
        try:
            return _PLAIN_VALUE(
                _VALUE_VERSION,
                committed.offset,
                committed.leader_epoch,
                _NO_METADATA,
                committed.commit_timestamp_ms,
                _TOPIC_ID_TAG,
                committed.topic_id,
            )
        except struct.error:
            pass  # The codec raises the error.
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    version = _VALUE_VERSION_WITH_EXPIRY if expires else _VALUE_VERSION
    made = _WITH_EXPIRY if expires else _VALUE
    return b"".join(made.encode_into(value, bytearray(version.to_bytes(2, "big"))))


def _encode_value_or_null(record: OffsetRecord | PendingOffset | OffsetTombstone) -> bytes | None:
    return None if isinstance(record, OffsetTombstone) else encode_value(record)


def decode(
    key: bytes, value: bytes | None, headers: RecordHeaders
) -> OffsetRecord | OffsetTombstone:
    """Decode the record of an offset commit, transactional or not. Raises DecodeError."""
    del headers
    named, _ = _KEY.decode(key, 2)
    place = (named.group, named.topic, named.partition)
    if value is None:
        return OffsetTombstone(*place)
    stored, _ = decode_versioned(OffsetCommitValue, value)
    committed = CommittedOffset(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        stored.topic_id,
    )
    return OffsetRecord(*place, committed)


OFFSET_CODEC: Final = RecordCodec(
    record_types=(OffsetRecord, PendingOffset),
    tombstone_types=(OffsetTombstone,),
    key_versions=(0, _KEY_VERSION),
    encode_key=encode_key,
    encode_value=_encode_value_or_null,
    decode=decode,
)

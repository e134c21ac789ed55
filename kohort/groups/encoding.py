"""The encoding of a group's records in __consumer_offsets, singly and as one batch.

The layout is Kafka's own, so that tools which read the topic work: keys v1 (offset) and v2 (group),
values v4 for an offset (v1 with an explicit expiry) and v3 for a group; null deletes. Data that
does not fit in Kafka's layout is in record headers, which its tools ignore.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from kohort.groups.classic.stored_value import (
    BEGUN_HEADER,
    TOPICS_HASH_HEADER,
    RecordHeaders,
    decode_group,
    encode_group,
)
from kohort.groups.records import (
    DurableRecord,
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
    PendingOffset,
)
from kohort.groups.requests import CommittedOffset
from kohort.groups.steps import Steps, at_once
from kohort.protocol.codec import codec, decode_versioned, encode_versioned
from kohort.protocol.errors import EncodeError, ErrorCode, KafkaError
from kohort.protocol.messages.offsets_topic import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kohort.protocol.records.batch import SealedBatch, read_header
from kohort.protocol.records.builder import encode_batch, make_batch
from kohort.protocol.records.record import Record
from kohort.protocol.types import ZERO_UUID

MEMBERS_AT_ONCE: Final = 500
"""Members of a group that is encoded within a single loop iteration: two milliseconds."""

BYTES_AT_ONCE: Final = 4 << 20
"""Metadata and assignments of a group that is encoded on the event loop: encoding copies them
several times, which takes some ten milliseconds."""

_OFFSET_KEY_VERSION: Final = 1
_GROUP_KEY_VERSION: Final = 2
_OFFSET_VALUE_VERSION: Final = 4
_OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1

_OFFSET_VALUE: Final = codec(OffsetCommitValue, _OFFSET_VALUE_VERSION)
_WITH_EXPIRY: Final = codec(OffsetCommitValue, _OFFSET_VALUE_VERSION_WITH_EXPIRY)

_PLAIN_POSITION: Final = struct.Struct(">hqiBq3s16s").pack
"""The value of an offset without metadata, of a topic whose id is known."""
_NO_METADATA: Final = 1
"""The length of an empty compact string, plus one."""
_TOPIC_ID_TAG: Final = b"\1\0\x10"
"""One tagged field: number 0, of sixteen bytes."""
_POSITIONS: Final = (OffsetRecord, PendingOffset)
_OFFSETS: Final = (OffsetRecord, PendingOffset, OffsetTombstone)

KEYS_KEPT_MAX: Final = 1_000
"""Number of offset keys that are cached; each is a few hundred bytes."""

ID_KEPT_MAX: Final = 255
"""Longest group id whose keys are cached; ids may be a hundred times as long."""


def encode_key(record: DurableRecord) -> bytes:
    """Encode the key, of which compaction keeps only the last record."""
    if not isinstance(record, _OFFSETS):
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
        return (yield from encode_group(record))
    return encode_value(record)


def encode_value(record: DurableRecord) -> bytes | None:
    """Encode the value, None for a tombstone."""
    if isinstance(record, GroupRecord):
        return at_once(encode_group(record))
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


def encode_as_batch(records: Sequence[DurableRecord], wall_ms: int) -> SealedBatch:
    """Encode the records as one batch of the topic, with its header.

    Raises:
        KafkaError: INVALID_RECORD, if a record cannot be represented in the topic's format.
    """
    try:
        encoded = []
        for record in records:
            # Inlines `_stored`, which would cost two more calls for each commit.
            headers = encode_headers(record) if record.__class__ is GroupRecord else ()
            encoded.append(Record(encode_value(record), encode_key(record), headers, wall_ms))
        if records[0].__class__ is PendingOffset:
            return _transactional(records, encoded)
        return make_batch(encoded)
    except EncodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


def _transactional(records: Sequence[DurableRecord], encoded: Sequence[Record]) -> SealedBatch:
    """Encode a batch of one transaction. As in Kafka, all such batches have sequence 0: a group
    executes each request once, and a client's retry is stored again.
    """
    first = records[0]
    assert isinstance(first, PendingOffset)
    batch = encode_batch(
        encoded,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    return batch, read_header(batch)


def is_large(records: Sequence[DurableRecord]) -> bool:
    """Whether the records contain a group that should be encoded in steps."""
    for record in records:
        if record.__class__ is GroupRecord and len(record.members) > MEMBERS_AT_ONCE:
            return True
    return False


def has_many_bytes(records: Sequence[DurableRecord]) -> bool:
    """Whether the records contain a group that should not be encoded on the event loop."""
    for record in records:
        if record.__class__ is GroupRecord:
            sizes = [len(member.subscription) + len(member.assignment) for member in record.members]
            if sum(sizes) > BYTES_AT_ONCE:
                return True
    return False


def batch_steps(records: Sequence[DurableRecord], wall_ms: int) -> Steps[SealedBatch]:
    """Encode a batch as `encode_as_batch` does, in steps."""
    encoded: list[Record] = []
    try:
        for record in records:
            value = yield from value_steps(record)
            encoded.append(_stored(record, value, wall_ms))
        yield
        return make_batch(encoded)
    except EncodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


def _stored(record: DurableRecord, value: bytes | None, wall_ms: int) -> Record:
    return Record(value, key=encode_key(record), headers=encode_headers(record), timestamp=wall_ms)


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
        return GroupTombstone(key) if value is None else decode_group(key, value, headers)
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

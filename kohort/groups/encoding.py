"""The encoding of the records of all groups in __consumer_offsets, singly and as one batch.

The layout is Kafka's own, so that tools which read the topic work: a key begins with a version that
identifies the type of the record, and a null value deletes the key. Data that does not fit in
Kafka's layout is in record headers, which its tools ignore. Each type of record has its codec in
the package that it belongs to; the tables here contain all of them.
"""

from collections.abc import Sequence
from typing import Any, Final

from kohort.groups.classic.stored_value import GROUP_CODEC
from kohort.groups.consumer.encoding import CONSUMER_CODEC
from kohort.groups.kinds import GroupKind
from kohort.groups.offsets.encoding import OFFSET_CODEC
from kohort.groups.offsets.encoding import encode_key as encode_offset_key
from kohort.groups.offsets.encoding import encode_value as encode_offset
from kohort.groups.records import (
    DurableRecord,
    OffsetRecord,
    PendingOffset,
    RecordCodec,
    RecordHeaders,
)
from kohort.groups.share.encoding import SHARE_CODEC
from kohort.groups.steps import Steps
from kohort.protocol.errors import EncodeError, ErrorCode, KafkaError
from kohort.protocol.records.batch import SealedBatch, read_header
from kohort.protocol.records.builder import encode_batch, make_batch, make_batch_steps
from kohort.protocol.records.record import Record

CODECS: Final[tuple[RecordCodec, ...]] = (
    OFFSET_CODEC,
    GROUP_CODEC,
    CONSUMER_CODEC,
    SHARE_CODEC,
)

MANY: Final = 200
"""From this number on, records are encoded in steps. Encoding this many takes a millisecond or two,
and the target assignment of thousands of members has far more records."""

_BY_TYPE: Final[dict[type[Any], RecordCodec]] = {
    record_type: codec
    for codec in CODECS
    for record_type in (*codec.record_types, *codec.tombstone_types)
}
_BY_KEY_VERSION: Final[dict[int, RecordCodec]] = {
    version: codec for codec in CODECS for version in codec.key_versions
}


def types_of_kind(kind: GroupKind) -> tuple[type[Any], ...]:
    """Return the record classes from which the membership of this kind of group is restored."""
    return tuple(
        [cls for cls, codec in _BY_TYPE.items() if codec.kind is kind and cls in codec.record_types]
    )


def encode_key(record: DurableRecord) -> bytes:
    """Encode a record's key; compaction keeps only the last record of each key."""
    return _BY_TYPE[record.__class__].encode_key(record)


def encode_value(record: DurableRecord) -> bytes | None:
    return _BY_TYPE[record.__class__].encode_value(record)


def encode_headers(record: DurableRecord) -> RecordHeaders:
    """Encode the data that does not fit in the value."""
    return _BY_TYPE[record.__class__].encode_headers(record)


def value_steps(record: DurableRecord) -> Steps[bytes | None]:
    codec = _BY_TYPE[record.__class__]
    if codec.value_steps is None:
        if codec.is_large is not None and codec.is_large(record):
            yield
        return codec.encode_value(record)
    return (yield from codec.value_steps(record))


def encode_as_batch(records: Sequence[DurableRecord], wall_ms: int) -> SealedBatch:
    """Encode the records as one batch of the topic, with its header.

    Raises:
        KafkaError: INVALID_RECORD, if a record cannot be represented in the topic's format.
    """
    try:
        encoded = []
        for record in records:
            # Nearly all records are offsets, which need no lookup.
            if isinstance(record, _POSITIONS):
                value, key = encode_offset(record), encode_offset_key(record)
                encoded.append(Record(value, key, (), wall_ms))
            else:
                encoded.append(_stored(record, encode_value(record), wall_ms))
        if records[0].__class__ is PendingOffset:
            return _transactional(records, encoded)
        return make_batch(encoded)
    except EncodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


_POSITIONS: Final = (OffsetRecord, PendingOffset)


def _transactional(records: Sequence[DurableRecord], encoded: Sequence[Record]) -> SealedBatch:
    """Encode a batch of one transaction. As in Kafka, all such batches have sequence 0, because
    duplicates are not detected by sequence: a client's retry is stored again.
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
    """Whether to encode the records in steps, because they are many or one is large."""
    if len(records) > MANY:
        return True
    for record in records:
        test = _BY_TYPE[record.__class__].is_large
        if test is not None and test(record):
            return True
    return False


def has_many_bytes(records: Sequence[DurableRecord]) -> bool:
    """Whether any record is too large to be encoded on the event loop."""
    for record in records:
        test = _BY_TYPE[record.__class__].has_many_bytes
        if test is not None and test(record):
            return True
    return False


def too_large(size_bytes: int, bytes_max: int) -> KafkaError:
    """Return the error for a batch of more than `bytes_max` bytes."""
    text = f"a batch of {size_bytes} bytes where {bytes_max} are allowed"
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)


def batch_steps(
    records: Sequence[DurableRecord], wall_ms: int, bytes_max: int
) -> Steps[SealedBatch]:
    """Encode a batch as `encode_as_batch` does, in steps.

    Raises:
        KafkaError: INVALID_RECORD, like `encode_as_batch`; MESSAGE_TOO_LARGE, if the values alone
            take more than `bytes_max` bytes.
    """
    encoded: list[Record] = []
    size_bytes = 0
    try:
        for count, record in enumerate(records, start=1):
            value = yield from value_steps(record)
            encoded.append(_stored(record, value, wall_ms))
            size_bytes += len(value or b"")
            if size_bytes > bytes_max:
                raise too_large(size_bytes, bytes_max)
            if count % MANY == 0:
                yield
        yield
        return (yield from make_batch_steps(encoded))
    except EncodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


def _stored(record: DurableRecord, value: bytes | None, wall_ms: int) -> Record:
    return Record(value, key=encode_key(record), headers=encode_headers(record), timestamp=wall_ms)


def decode(key: bytes, value: bytes | None, headers: RecordHeaders = ()) -> DurableRecord | None:
    """Decode a record; an offset of a transaction is decoded like any other offset. None for an
    unknown type of record, which must be left alone.

    Raises:
        DecodeError: the record is of a known type but invalid, or of a later version.
    """
    codec = _BY_KEY_VERSION.get(int.from_bytes(key[:2], "big", signed=True))
    return None if codec is None or len(key) < 2 else codec.decode(key, value, headers)

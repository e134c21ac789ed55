"""Record batches made from records: for the broker's own topics, for our client and for tests."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.protocol.errors import EncodeError
from kohort.protocol.records.batch import (
    LENGTH_MIN,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    Codec,
    TimestampType,
    seal,
)
from kohort.protocol.records.compression import compress
from kohort.protocol.records.record import Record, write_record

_BATCH_BYTES_MAX = (1 << 31) - 1


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """One batch of these records, at consecutive offsets from `base_offset`; their own are ignored.

    EncodeError for no records, or more than a batch can hold.
    """
    batch, _ = make_batch(
        records,
        base_offset=base_offset,
        codec=codec,
        level=level,
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
        is_transactional=is_transactional,
        is_control=is_control,
    )
    return batch


def make_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
) -> tuple[bytes, BatchHeader]:
    """Encodes a batch like `encode_batch`, with its header as well, for callers that append it."""
    if not records:
        raise EncodeError("a batch needs at least one record")
    base_timestamp = records[0].timestamp
    max_timestamp = base_timestamp
    block = bytearray()
    for index, record in enumerate(records):
        timestamp = record.timestamp
        write_record(block, record, timestamp - base_timestamp, index)
        max_timestamp = max(max_timestamp, timestamp)
    payload = compress(codec, block, level) if codec else block
    header = BatchHeader(
        base_offset=base_offset,
        length=_length_with(payload),
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec | timestamp_type << 3 | is_transactional << 4 | is_control << 5,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return seal(header, payload)


def assemble(header: BatchHeader, payload: bytes | bytearray | memoryview) -> bytes:
    """A batch of this header and this (compressed) records block; length and CRC are filled in."""
    header = header._replace(length=_length_with(payload))
    return seal(header, payload)[0]


def _length_with(payload: bytes | bytearray | memoryview) -> int:
    length = LENGTH_MIN + len(payload)
    if length > _BATCH_BYTES_MAX - LENGTH_OVERHEAD_BYTES:
        raise EncodeError(f"a batch of {length} bytes is beyond what its length field can say")
    return length

"""Record batches made from records: for the broker's own topics, for our client and for tests."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.protocol.errors import EncodeError
from kohort.protocol.records.batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    Codec,
    TimestampType,
    encode_header,
    header_crc,
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
    if not records:
        raise EncodeError("a batch needs at least one record")
    base_timestamp = records[0].timestamp
    block = bytearray()
    for index, record in enumerate(records):
        write_record(block, record, record.timestamp - base_timestamp, index)
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec | timestamp_type << 3 | is_transactional << 4 | is_control << 5,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return assemble(header, compress(codec, block, level) if codec else block)


def assemble(header: BatchHeader, payload: bytes | bytearray | memoryview) -> bytes:
    """A batch of this header and this (compressed) records block; length and CRC are filled in."""
    length = HEADER_BYTES - LENGTH_OVERHEAD_BYTES + len(payload)
    if length > _BATCH_BYTES_MAX - LENGTH_OVERHEAD_BYTES:
        raise EncodeError(f"a batch of {length} bytes is beyond what its length field can say")
    header = header._replace(length=length)
    header = header._replace(crc=header_crc(header, payload))
    return encode_header(header) + payload

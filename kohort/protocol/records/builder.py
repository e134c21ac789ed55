"""Builds record batches from records, for the broker's own topics, the client and tests."""

from collections.abc import Generator, Sequence
from typing import Final

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
    CompressionType,
    SealedBatch,
    TimestampType,
    seal,
)
from kohort.protocol.records.compression import compress
from kohort.protocol.records.record import Record, write_record

RECORDS_PER_STEP: Final = 500
"""Records encoded in one step: they take about a millisecond."""

_BATCH_BYTES_MAX = (1 << 31) - 1


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: CompressionType = CompressionType.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Encode one batch of these records, at consecutive offsets from `base_offset`; their own
    offsets are ignored.

    Raises EncodeError for no records, or more than a batch can contain.
    """
    plain, block = _encode_records(records)
    header = plain._replace(
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        attributes=codec | timestamp_type << 3 | is_transactional << 4 | is_control << 5,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return assemble(header, compress(codec, block, level) if codec else block)


def make_batch(records: Sequence[Record]) -> SealedBatch:
    """Encode a batch from offset 0 without a producer id; return it with its header."""
    return seal(*_encode_records(records))


def make_batch_steps(records: Sequence[Record]) -> Generator[None, None, SealedBatch]:
    """Encode a batch as `make_batch` does, and yield after each millisecond or two."""
    return seal(*(yield from _encode_steps(records)))


def _encode_records(records: Sequence[Record]) -> tuple[BatchHeader, bytearray]:
    steps = _encode_steps(records)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            encoded: tuple[BatchHeader, bytearray] = stop.value
            return encoded


def _encode_steps(
    records: Sequence[Record],
) -> Generator[None, None, tuple[BatchHeader, bytearray]]:
    """Encode the records block of an uncompressed batch, and the header without CRC."""
    if not records:
        raise EncodeError("a batch needs at least one record")
    base_timestamp = records[0].timestamp
    max_timestamp = base_timestamp
    block = bytearray()
    for index, record in enumerate(records):
        timestamp = record.timestamp
        write_record(block, record, timestamp - base_timestamp, index)
        max_timestamp = max(max_timestamp, timestamp)
        if index % RECORDS_PER_STEP == RECORDS_PER_STEP - 1:
            yield
    header = BatchHeader(
        base_offset=0,
        length=_length_with(block),
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=len(records),
    )
    return header, block


def assemble(header: BatchHeader, payload: bytes | bytearray | memoryview) -> bytes:
    """Return a batch with this header and (compressed) records block; fills in length and CRC."""
    header = header._replace(length=_length_with(payload))
    return seal(header, payload)[0]


def _length_with(payload: bytes | bytearray | memoryview) -> int:
    length = LENGTH_MIN + len(payload)
    if length > _BATCH_BYTES_MAX - LENGTH_OVERHEAD_BYTES:
        raise EncodeError(f"a batch of {length} bytes does not fit its length field")
    return length

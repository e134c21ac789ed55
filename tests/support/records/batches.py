"""Batches that no client would send, made from ones that a client might."""

from typing import Final

from kohort.client.core.fetch.batches import ReadOptions
from kohort.protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    CompressionType,
    encode_header,
    read_header,
    seal,
)
from kohort.protocol.records.builder import assemble, encode_batch
from kohort.protocol.records.compression import compress
from kohort.protocol.records.record import Record, write_record

READ: Final = ReadOptions(check_crcs=True, inflated_bytes_limit=64 << 20)
"""How a consumer reads batches, if nothing else is said."""

LARGE: Final = Record(
    b"v" * 40_000, b"k" * 9_000, (("h" * 200, b"x" * 200), ("", None), ("e", b"")), 5
)
SHAPES: Final = [
    Record(None),
    Record(b""),
    Record(b"value", b"key"),
    Record(b"value", b"", (("a", b"1"), ("a", None), ("ключ", b""))),
    Record(b"value", None, (("last", b"header"),)),
    Record(b"v" * 63, b"k" * 64),
    Record(b"v" * 64, b"k" * 63),
    Record(b"v" * 8_191),
    Record(b"v" * 8_192),
    LARGE,
]
"""Absent and empty fields, lengths of one to three bytes, headers."""


def with_header(batch: bytes, **fields: int) -> bytes:
    """The batch with these header fields and, unless that is among them, a CRC that matches."""
    header = read_header(batch)._replace(**fields)
    payload = batch[HEADER_BYTES:]
    if "crc" not in fields:
        return seal(header, payload)[0]
    return encode_header(header) + payload


def with_block(
    block: bytes, record_count: int, codec: CompressionType = CompressionType.NONE, **fields: int
) -> bytes:
    """A batch whose records block is `block`, whatever that is; compressed if a codec is given."""
    header = BatchHeader(
        base_offset=0,
        length=0,
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=int(codec),
        last_offset_delta=record_count - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=record_count,
    )
    return assemble(header._replace(**fields), compress(codec, block))


def one_record(record: Record, timestamp_delta: int = 0, offset_delta: int = 0) -> bytes:
    out = bytearray()
    write_record(out, record, timestamp_delta, offset_delta)
    return bytes(out)


def sequenced(
    producer_id: int, producer_epoch: int, base_sequence: int, record_count: int = 1
) -> BatchHeader:
    """The header of a batch that an idempotent producer sends."""
    batch = encode_batch(
        [Record(b"value")] * record_count,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return read_header(batch)

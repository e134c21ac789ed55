"""Single records: what a user wrote, and how it lies in the (inflated) records block of a batch.

A record is its length and then attributes, timestamp delta, offset delta, key, value and headers;
-1 is the length of an absent key or value. Decoding checks every length against what is left and
that a record fills exactly the length it claims, and raises only DecodeError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from protocol.errors import DecodeError, EncodeError
from protocol.records.batch import BatchHeader, TimestampType, payload_of, read_header
from protocol.records.compression import INFLATED_BYTES_LIMIT, decompress
from protocol.records.varint import (
    Buffer,
    read_varint,
    read_varlong,
    write_varint,
    write_varlong,
)

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, no key, no value, no headers: one byte each."""

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record as users see it. Value None is a tombstone in compacted topics.

    Header keys are text to Kafka; bytes that are not UTF-8 survive as surrogate escapes.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int = -1
    """Milliseconds since the epoch, -1 unknown."""
    offset: int = -1
    """Offset in the log; -1 for a record not yet written."""


class RecordSpan(NamedTuple):
    """Where a record lies in a records block, with what a broker needs to know of it.

    `block[start:stop]` is the whole record and can be written into another batch of the same base
    offset and base timestamp as it is.
    """

    start: int
    stop: int
    timestamp_delta: int
    offset_delta: int
    key_start: int
    key_length: int
    """-1 if there is no key."""
    value_start: int
    value_length: int
    """-1 if there is no value."""
    headers_start: int
    header_count: int


def read_span(block: Buffer, position: int) -> RecordSpan:
    """The record at `position`, checked in full; neither key nor value is copied."""
    body_length, body = read_varint(block, position)
    stop = body + body_length
    if body_length < RECORD_BYTES_MIN - 1 or stop > len(block):
        raise DecodeError(f"record of {body_length} bytes at {position} of {len(block)}")
    timestamp_delta, cursor = read_varlong(block, body + 1)
    offset_delta, cursor = read_varint(block, cursor)
    key_length, key_start = read_varint(block, cursor)
    value_length, value_start = read_varint(block, _behind(key_start, key_length, stop))
    header_count, headers_start = read_varint(block, _behind(value_start, value_length, stop))
    if not 0 <= header_count <= stop - headers_start:
        raise DecodeError(f"record at {position} with {header_count} headers")
    cursor = headers_start
    for _ in range(header_count):
        length, cursor = read_varint(block, cursor)
        if length < 0:
            raise DecodeError(f"record at {position} with a header without key")
        length, cursor = read_varint(block, _behind(cursor, length, stop))
        cursor = _behind(cursor, length, stop)
    if cursor != stop:
        raise DecodeError(f"record at {position} fills {cursor - body} of {body_length} bytes")
    return RecordSpan(
        position, stop, timestamp_delta, offset_delta,
        key_start, key_length, value_start, value_length, headers_start, header_count,
    )  # fmt: skip


def _behind(start: int, length: int, stop: int) -> int:
    """The position behind a field of `length` (-1: absent) that must end by `stop`."""
    if length < -1 or length > stop - start:
        raise DecodeError(f"field of {length} bytes at {start} where {stop - start} are left")
    return start + length if length > 0 else start


def iter_spans(block: Buffer, record_count: int) -> Iterator[RecordSpan]:
    """All records of a block, which must hold exactly `record_count` of them and nothing else."""
    if not 0 <= record_count <= len(block) // RECORD_BYTES_MIN:
        raise DecodeError(f"{record_count} records in {len(block)} bytes")
    position = 0
    for _ in range(record_count):
        span = read_span(block, position)
        yield span
        position = span.stop
    if position != len(block):
        raise DecodeError(
            f"{len(block) - position} bytes behind the last of {record_count} records"
        )


def inflate(
    batch: Buffer, header: BatchHeader, limit_bytes: int = INFLATED_BYTES_LIMIT
) -> bytes | memoryview:
    """The records block of a batch, decompressed."""
    return decompress(header.codec, payload_of(batch, header), limit_bytes)


def decode_records(
    batch: Buffer, header: BatchHeader | None = None, limit_bytes: int = INFLATED_BYTES_LIMIT
) -> list[Record]:
    """The records of the batch at the start of `batch`, keys and values copied out of it.

    DecodeError if the block inflates beyond `limit_bytes` or does not hold exactly the records that
    the header says. The CRC is not checked here.
    """
    if header is None:
        header = read_header(batch)
    block = inflate(batch, header, limit_bytes)
    return [to_record(block, span, header) for span in iter_spans(block, header.record_count)]


def to_record(block: Buffer, span: RecordSpan, header: BatchHeader) -> Record:
    """The record at `span`, its offset and timestamp absolute."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    else:
        timestamp = header.base_timestamp + span.timestamp_delta
    return Record(
        value=_field(block, span.value_start, span.value_length),
        key=_field(block, span.key_start, span.key_length),
        headers=_headers(block, span) if span.header_count else (),
        timestamp=timestamp,
        offset=header.base_offset + span.offset_delta,
    )


def _field(block: Buffer, start: int, length: int) -> bytes | None:
    return None if length < 0 else bytes(block[start : start + length])


def _headers(block: Buffer, span: RecordSpan) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    cursor = span.headers_start
    for _ in range(span.header_count):
        length, cursor = read_varint(block, cursor)
        key = bytes(block[cursor : cursor + length]).decode("utf-8", "surrogateescape")
        length, cursor = read_varint(block, cursor + length)
        headers.append((key, _field(block, cursor, length)))
        cursor += max(0, length)
    return tuple(headers)


def write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    """Append a record to a records block."""
    body = bytearray(1)
    write_varlong(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_field(body, record.key)
    _write_field(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        try:
            _write_field(body, key.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError as error:
            raise EncodeError(f"header key {key!r}: {error}") from None
        _write_field(body, value)
    write_varint(out, len(body))
    out += body


def _write_field(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # Zig-zag of -1.
    else:
        write_varint(out, len(value))
        out += value

"""Single records: what a user wrote, and how it lies in the (inflated) records block of a batch.

A record is its length and then attributes, timestamp delta, offset delta, key, value and headers;
-1 is the length of an absent key or value. Readers check that a record fills exactly the length it
claims and that a block holds exactly the records it should, and raise only DecodeError.

Two readers, because time per record is what a broker in Python has least of: `skip_records` follows
the lengths alone (about 0.15 us per record), `read_span` parses everything (about 1.3 us). Both are
written out straight, with one- and two-byte integers inline, as calls would cost more than the
parsing; tests compare them with a declaration in construct.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from protocol.errors import DecodeError, EncodeError
from protocol.records.batch import BatchHeader, TimestampType, payload_of, read_header
from protocol.records.compression import INFLATED_BYTES_LIMIT, decompress
from protocol.records.varint import (
    UVARINT_BYTES_MAX,
    VARLONG_BYTES_MAX,
    Buffer,
    read_groups,
    read_varint,
    write_varint,
    write_varlong,
)

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, no key, no value, no headers: one byte each."""

HEADERS_MAX = 10_000
"""Of one record. Kafka knows no limit, and nobody sends more than a few; one record of a batch that
inflates to 64 MiB could have thirty million, which take a minute to read."""

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
    """Where a record lies in a records block, and what a broker needs to know of it.

    `block[start:stop]` is the whole record. It can go as it is into another batch of the same base
    offset and base timestamp.
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


def skip_records(block: Buffer, position: int, count: int) -> int:
    """The position behind `count` records, found by their lengths; nothing in them is looked at.

    It may lie beyond the end of the block if the last length says so.
    """
    try:
        for _ in range(count):
            byte = block[position]
            if byte < 0x80:
                position += 1
            else:
                second = block[position + 1]
                if second < 0x80:
                    byte += (second << 7) - 0x80
                    position += 2
                else:
                    byte, position = read_groups(block, position, UVARINT_BYTES_MAX)
            if byte & 1:
                raise DecodeError(f"record before {position} has a negative length")
            position += byte >> 1
    except IndexError:
        raise DecodeError(f"record at {position} of {len(block)}") from None
    return position


def read_span(block: Buffer, position: int) -> RecordSpan:  # noqa: C901, PLR0912, PLR0915 - see above.
    """The record at `position`, checked in full; nothing is copied.

    All lengths are bounded by one check at the end: the cursor only moves forward, so a field that
    leaves its record can never come back to where the record stops.
    """
    cursor = position
    try:
        size = block[cursor]
        cursor += 1
        if size > 0x7F:
            second = block[cursor]
            cursor += 1
            if second < 0x80:
                size += (second << 7) - 0x80
            else:
                size, cursor = read_groups(block, cursor - 2, UVARINT_BYTES_MAX)
        stop = cursor + (size >> 1)
        timestamp = block[cursor + 1]
        cursor += 2
        if timestamp > 0x7F:
            second = block[cursor]
            cursor += 1
            if second < 0x80:
                timestamp += (second << 7) - 0x80
            else:
                timestamp, cursor = read_groups(block, cursor - 2, VARLONG_BYTES_MAX)
        offset = block[cursor]
        cursor += 1
        if offset > 0x7F:
            offset, cursor = read_groups(block, cursor - 1, UVARINT_BYTES_MAX)
        key_size = block[cursor]
        cursor += 1
        if key_size > 0x7F:
            key_size, cursor = read_groups(block, cursor - 1, UVARINT_BYTES_MAX)
        key_start = cursor
        if key_size != 1:
            cursor += key_size >> 1
        value_size = block[cursor]
        cursor += 1
        if value_size > 0x7F:
            second = block[cursor]
            cursor += 1
            if second < 0x80:
                value_size += (second << 7) - 0x80
            else:
                value_size, cursor = read_groups(block, cursor - 2, UVARINT_BYTES_MAX)
        value_start = cursor
        if value_size != 1:
            cursor += value_size >> 1
        header_size = block[cursor]
        cursor += 1
        headers_start = cursor
        if header_size:
            if header_size > 0x7F:
                header_size, headers_start = read_groups(block, cursor - 1, UVARINT_BYTES_MAX)
            cursor = _skip_headers(block, headers_start, header_size)
    except IndexError:
        raise DecodeError(f"record at {position} of {len(block)} is cut short") from None
    if cursor != stop or size & 1 or stop > len(block):
        raise DecodeError(f"record at {position} ends at {cursor}, not {stop} of {len(block)}")
    # An odd size is a negative length: -1 is an absent field, nothing else is one.
    if (key_size & 1 and key_size != 1) or (value_size & 1 and value_size != 1):
        raise DecodeError(f"record at {position} has a key or value of negative length")
    return RecordSpan(
        position,
        stop,
        (timestamp >> 1) ^ -(timestamp & 1),
        (offset >> 1) ^ -(offset & 1),
        key_start,
        -1 if key_size == 1 else key_size >> 1,
        value_start,
        -1 if value_size == 1 else value_size >> 1,
        headers_start,
        header_size >> 1,
    )


def _skip_headers(block: Buffer, cursor: int, size: int) -> int:
    if size & 1:
        raise DecodeError("record with a negative number of headers")
    count = size >> 1
    if count > HEADERS_MAX:
        raise DecodeError(f"record with {count} headers")
    for _ in range(count):
        key_length, cursor = read_varint(block, cursor)
        if key_length < 0:
            raise DecodeError("record with a header without key")
        value_length, cursor = read_varint(block, cursor + key_length)
        if value_length < -1:
            raise DecodeError("record with a header value of negative length")
        if value_length > 0:
            cursor += value_length
    return cursor


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
        _excess(block, position, record_count)


def _excess(block: Buffer, position: int, record_count: int) -> NoReturn:
    excess = len(block) - position
    raise DecodeError(f"{excess} bytes behind the last of {record_count} records")


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
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    # Log-append time replaces every timestamp of the batch.
    append_timestamp = log_append_timestamp(header)
    return [
        Record(
            field_of(block, span.value_start, span.value_length),
            field_of(block, span.key_start, span.key_length),
            _headers(block, span) if span.header_count else (),
            base_timestamp + span.timestamp_delta if append_timestamp is None else append_timestamp,
            base_offset + span.offset_delta,
        )
        for span in iter_spans(block, header.record_count)
    ]


def log_append_timestamp(header: BatchHeader) -> int | None:
    """The timestamp that all records of the batch have; None if each has its own."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return header.max_timestamp
    return None


def field_of(block: Buffer, start: int, length: int) -> bytes | None:
    """A copy of the key or value that a span tells of; None if it is absent."""
    return None if length < 0 else bytes(block[start : start + length])


def _headers(block: Buffer, span: RecordSpan) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    cursor = span.headers_start
    for _ in range(span.header_count):
        length, cursor = read_varint(block, cursor)
        key = bytes(block[cursor : cursor + length]).decode("utf-8", "surrogateescape")
        length, cursor = read_varint(block, cursor + length)
        headers.append((key, field_of(block, cursor, length)))
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

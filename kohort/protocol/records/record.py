"""Single records: what a user wrote, and how it lies in the (inflated) records block of a batch.

How a record lies there is told in :mod:`kohort.protocol.records.walk`. Readers check that a block
holds exactly the records it should, and raise only DecodeError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from kohort.protocol.errors import DecodeError, EncodeError
from kohort.protocol.records.batch import BatchHeader, TimestampType, payload_of, read_header
from kohort.protocol.records.compression import INFLATED_BYTES_LIMIT, decompress
from kohort.protocol.records.varint import (
    Buffer,
    read_varint,
    write_varint,
    write_varlong,
)
from kohort.protocol.records.walk import RECORD_BYTES_MIN, RecordSpan, read_span

SMALL = 64
"""Below this a length or a delta is one byte, and that is its double."""

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
    key, value = record.key, record.value
    if 0 <= timestamp_delta < SMALL and 0 <= offset_delta < SMALL:
        # Nearly every record that a broker writes for itself: zig-zag doubles what is small.
        body += bytes((timestamp_delta << 1, offset_delta << 1))
    else:
        write_varlong(body, timestamp_delta)
        write_varint(body, offset_delta)
    if key is not None and len(key) < SMALL:
        body.append(len(key) << 1)
        body += key
    else:
        _write_field(body, key)
    if value is not None and len(value) < SMALL:
        body.append(len(value) << 1)
        body += value
    else:
        _write_field(body, value)
    if not record.headers:
        body.append(0)
        write_varint(out, len(body))
        out += body
        return
    write_varint(body, len(record.headers))
    for name, content in record.headers:
        try:
            _write_field(body, name.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError as error:
            raise EncodeError(f"header key {name!r}: {error}") from None
        _write_field(body, content)
    write_varint(out, len(body))
    out += body


def _write_field(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # Zig-zag of -1.
    else:
        write_varint(out, len(value))
        out += value

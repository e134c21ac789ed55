"""Single records, and their encoding in the (inflated) records block of a batch.

:mod:`kohort.protocol.records.walk` describes that encoding. Readers check that a block contains
exactly the records it should, and raise only DecodeError.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from kohort.protocol.errors import DecodeError, EncodeError
from kohort.protocol.limits import INFLATED_BYTES_LIMIT
from kohort.protocol.records.batch import BatchHeader, TimestampType, payload_of, read_header
from kohort.protocol.records.compression import decompress
from kohort.protocol.records.varint import Buffer, encode_varint, encode_varlong, read_varint
from kohort.protocol.records.walk import RECORD_BYTES_MIN, RecordSpan, read_span

SMALL = 64
"""A length or delta below this is encoded in one byte, which has twice its value."""

SIZES_KEPT_MAX = 1_000
"""Number of cached varints of sizes: a broker's own records have few different sizes, all small."""

NULL = encode_varint(-1)
"""The encoded size of an absent key or value."""
NO_HEADERS = encode_varint(0)

_NO_ATTRIBUTES = bytes(1)

_size = lru_cache(maxsize=SIZES_KEPT_MAX)(encode_varint)

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record. Value None is a tombstone in compacted topics.

    Header keys are text in Kafka; bytes that are not UTF-8 are kept as surrogate escapes.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int = -1
    """Milliseconds since the epoch, -1 if unknown."""
    offset: int = -1
    """Offset in the log; -1 for a record that is not written yet."""


def iter_spans(block: Buffer, record_count: int) -> Iterator[RecordSpan]:
    """Yield all records of a block, which must have exactly `record_count`."""
    if not 0 <= record_count <= len(block) // RECORD_BYTES_MIN:
        raise DecodeError(f"{record_count} records in {len(block)} bytes")
    position = 0
    for _ in range(record_count):
        span = read_span(block, position)
        yield span
        position = span.stop
    if position != len(block):
        excess = len(block) - position
        raise DecodeError(f"{excess} bytes behind the last of {record_count} records")


def inflate(
    batch: Buffer, header: BatchHeader, limit_bytes: int = INFLATED_BYTES_LIMIT
) -> bytes | memoryview:
    """Return the records block of a batch, decompressed."""
    return decompress(header.codec, payload_of(batch, header), limit_bytes)


def decode_records(
    batch: Buffer, header: BatchHeader | None = None, limit_bytes: int = INFLATED_BYTES_LIMIT
) -> list[Record]:
    """Decode the records of the batch at the start of `batch`, with keys and values copied.

    Raises DecodeError if the block inflates beyond `limit_bytes` or does not contain exactly as
    many records as the header says. The CRC is not checked here.
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
            tuple(headers_of(block, span)) if span.header_count else (),
            base_timestamp + span.timestamp_delta if append_timestamp is None else append_timestamp,
            base_offset + span.offset_delta,
        )
        for span in iter_spans(block, header.record_count)
    ]


def log_append_timestamp(header: BatchHeader) -> int | None:
    """Return the timestamp of all records of the batch; None if each has its own."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return header.max_timestamp
    return None


def field_of(block: Buffer, start: int, length: int) -> bytes | None:
    """Copy a key or value out of a block; None if it is absent."""
    return None if length < 0 else bytes(block[start : start + length])


def headers_of(block: Buffer, span: RecordSpan) -> Iterator[tuple[str, bytes | None]]:
    """Yield the headers of a record."""
    cursor = span.headers_start
    for _ in range(span.header_count):
        length, cursor = read_varint(block, cursor)
        key = bytes(block[cursor : cursor + length]).decode("utf-8", "surrogateescape")
        length, cursor = read_varint(block, cursor + length)
        yield key, field_of(block, cursor, length)
        cursor += max(0, length)


def write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    value, key, headers, _, _ = record
    if 0 <= timestamp_delta < SMALL and 0 <= offset_delta < SMALL:
        # Fast path for nearly all records of the broker itself: zig-zag doubles small values.
        head = bytes((0, timestamp_delta << 1, offset_delta << 1))
    else:
        head = _NO_ATTRIBUTES + encode_varlong(timestamp_delta) + encode_varint(offset_delta)
    if key is not None and value is not None and not headers:
        body = b"".join((head, _size(len(key)), key, _size(len(value)), value, NO_HEADERS))
    else:
        body = b"".join((head, _encode_field(key), _encode_field(value), _encode_headers(headers)))
    out += _size(len(body))
    out += body


def _encode_field(value: bytes | None) -> bytes:
    return NULL if value is None else _size(len(value)) + value


def _encode_headers(headers: Headers) -> bytes:
    parts = [_size(len(headers))]
    for name, content in headers:
        try:
            parts.append(_encode_field(name.encode("utf-8", "surrogateescape")))
        except UnicodeEncodeError as error:
            raise EncodeError(f"header key {name!r}: {error}") from None
        parts.append(_encode_field(content))
    return b"".join(parts)

"""Positions of records in the (inflated) records block of a batch.

A record is its length and then attributes, timestamp delta, offset delta, key, value and headers;
-1 is the length of an absent key or value. Readers check that a record has exactly its stated
length, and raise only DecodeError.

There are two readers, because time per record is scarce in Python: `skip_records` follows only the
lengths, `read_span` parses everything. Both are straight-line code, with one- and two-byte integers
inline, because calls would cost more than the parsing; tests compare them with a declaration in
construct.

If there is a C compiler, this module is compiled (see docs/adr): walk.pxd beside it gives the
types, and a length takes 5 ns instead of 200. It works the same uncompiled.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.protocol.errors import DecodeError
from kohort.protocol.records.varint import (
    UVARINT_BYTES_MAX,
    VARLONG_BYTES_MAX,
    Buffer,
    read_groups,
    read_varint,
)

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, no key, no value, no headers: one byte each."""

HEADERS_MAX = 10_000
"""Maximum headers of one record. Kafka has no limit, and clients send a few; one record of a batch
that inflates to 64 MiB could have thirty million, which take a minute to read."""


class RecordSpan(NamedTuple):
    """Position of a record in a records block, and the fields that a broker needs.

    `block[start:stop]` is the whole record. It can be copied unchanged into another batch with the
    same base offset and base timestamp.
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
    """Return the position after `count` records, found by their lengths; their content is not read.

    It may be beyond the end of the block if the last length is too large.
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
    """Parse the record at `position` and check it in full; nothing is copied.

    One check at the end covers all lengths: the cursor only moves forward, so after a field that
    exceeds its record it can never be at the record's end.
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
    # An odd size is a negative length: only -1, an absent field, is valid.
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

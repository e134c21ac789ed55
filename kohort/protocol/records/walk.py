"""Positions of records in the (inflated) records block of a batch.

A record is its length and then attributes, timestamp delta, offset delta, key, value and headers;
-1 is the length of an absent key or value. Readers check that a record has exactly its stated
length, and raise only DecodeError.

There are two readers: `read_span` returns the positions in one record; `check_records` checks many
records and returns only a summary, without creating an object for each. Both parse every field.
They are straight-line code, with one- and two-byte integers inline, because calls would cost more
than the parsing; tests compare them with a parser built by `construct`.

If there is a C compiler, this module is compiled (see docs/adr): walk.pxd beside it gives the
types, and checking a record takes 20 ns instead of 1.5 us. It works the same uncompiled.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.protocol.errors import DecodeError
from kohort.protocol.records.varint import UVARINT_BYTES_MAX, VARLONG_BYTES_MAX, Buffer, read_groups

RECORD_BYTES_MIN = 7
"""One byte each for length, attributes, two deltas, absent key, absent value, and 0 headers."""

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


class CheckedRecords(NamedTuple):
    """The summary of consecutive records; see check_records."""

    stop: int
    """Position after the last record."""
    record_count: int
    timestamp_delta_min: int
    timestamp_delta_max: int
    missing_keys: int
    body_bytes_max: int
    """Length of the largest record, its length field not included."""


def check_records(  # noqa: C901, PLR0912, PLR0915 - see above.
    block: Buffer, position: int, first_index: int, count: int, effort: int
) -> CheckedRecords:
    """Check up to `count` records from `position` on in full, and summarise them.

    Args:
        first_index: the expected offset delta of the first record; each further one must be higher
            by one.
        effort: stop after this number of records and headers, but not before the first record.

    Raises:
        DecodeError: a record is malformed, or has another offset delta.
    """
    index = first_index
    stop_index = first_index + count
    missing_keys = body_bytes_max = delta_min = delta_max = 0
    while index < stop_index and effort > 0:
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
                    size = _long_size(block, cursor - 2)
                    cursor += (size & 7) - 2
                    size >>= 3
            stop = cursor + (size >> 1)
            timestamp = block[cursor + 1]
            cursor += 2
            if timestamp > 0x7F:
                timestamp &= 0x7F
                shift = 7
                while True:
                    group = block[cursor]
                    cursor += 1
                    timestamp |= (group & 0x7F) << shift
                    if group < 0x80:
                        break
                    shift += 7
                    if shift > 63:
                        raise DecodeError(f"record {index} has a timestamp delta of over 64 bits")
                if shift == 63 and group > 1:
                    raise DecodeError(f"record {index} has a timestamp delta of over 64 bits")
            offset = block[cursor]
            cursor += 1
            if offset > 0x7F:
                second = block[cursor]
                cursor += 1
                if second < 0x80:
                    offset += (second << 7) - 0x80
                else:
                    offset = _long_size(block, cursor - 2)
                    cursor += (offset & 7) - 2
                    offset >>= 3
            if offset != index << 1:
                delta = (offset >> 1) ^ -(offset & 1)
                raise DecodeError(f"record {index} has offset delta {delta}")
            key_size = block[cursor]
            cursor += 1
            if key_size > 0x7F:
                second = block[cursor]
                cursor += 1
                if second < 0x80:
                    key_size += (second << 7) - 0x80
                else:
                    key_size = _long_size(block, cursor - 2)
                    cursor += (key_size & 7) - 2
                    key_size >>= 3
            if key_size == 1:
                missing_keys += 1
            else:
                cursor += key_size >> 1
            value_size = block[cursor]
            cursor += 1
            if value_size > 0x7F:
                second = block[cursor]
                cursor += 1
                if second < 0x80:
                    value_size += (second << 7) - 0x80
                else:
                    value_size = _long_size(block, cursor - 2)
                    cursor += (value_size & 7) - 2
                    value_size >>= 3
            if value_size != 1:
                cursor += value_size >> 1
            header_size = block[cursor]
            cursor += 1
            if header_size:
                if header_size > 0x7F:
                    header_size = _long_size(block, cursor - 1)
                    cursor += (header_size & 7) - 1
                    header_size >>= 3
                cursor = _skip_headers(block, cursor, header_size)
                effort -= header_size >> 1
        except IndexError:
            raise DecodeError(f"record at {position} of {len(block)} is cut short") from None
        if cursor != stop or size & 1 or stop > len(block):
            raise DecodeError(f"record at {position} ends at {cursor}, not {stop} of {len(block)}")
        if (key_size & 1 and key_size != 1) or (value_size & 1 and value_size != 1):
            raise DecodeError(f"record at {position} has a key or value of negative length")
        delta = (timestamp >> 1) ^ -(timestamp & 1)
        if index == first_index:
            delta_min = delta_max = delta
        elif delta < delta_min:
            delta_min = delta
        elif delta > delta_max:
            delta_max = delta
        body_bytes_max = max(body_bytes_max, size >> 1)
        position = cursor
        index += 1
        effort -= 1
    return CheckedRecords(
        position, index - first_index, delta_min, delta_max, missing_keys, body_bytes_max
    )


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


def _long_size(block: Buffer, position: int) -> int:
    """Read a varint without zig-zag decoding; return its value times 8 plus its size in bytes.

    One integer instead of a tuple, which the compiled form would have to create for each call.
    """
    value = 0
    for index in range(UVARINT_BYTES_MAX):
        group = block[position + index]
        value |= (group & 0x7F) << 7 * index
        if group < 0x80:
            if value >> 32:
                break
            return value << 3 | (index + 1)
    raise DecodeError(f"varint at {position} does not fit 32 bits")


def _skip_headers(block: Buffer, cursor: int, size: int) -> int:
    if size & 1:
        raise DecodeError("record with a negative number of headers")
    count = size >> 1
    if count > HEADERS_MAX:
        raise DecodeError(f"record with {count} headers")
    for _ in range(count):
        length = block[cursor]
        cursor += 1
        if length > 0x7F:
            length = _long_size(block, cursor - 1)
            cursor += (length & 7) - 1
            length >>= 3
        if length & 1:
            raise DecodeError("record with a header without key")
        cursor += length >> 1
        length = block[cursor]
        cursor += 1
        if length > 0x7F:
            length = _long_size(block, cursor - 1)
            cursor += (length & 7) - 1
            length >>= 3
        if length & 1:
            if length != 1:
                raise DecodeError("record with a header value of negative length")
        else:
            cursor += length >> 1
    return cursor

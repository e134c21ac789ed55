"""Decodes the records of a decompressed batch.

:mod:`kohort.protocol.records.walk` describes the format. Because it runs for each record, this
module is compiled if there is a C compiler, with the types in unpack.pxd. Without compilation it
works the same, ten times slower.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kohort.client.core.fetch.batch_context import BatchContext
from kohort.client.core.records import AnyRecord, ConsumerRecord
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.record import Headers
from kohort.protocol.records.varint import read_uvarint, read_varlong
from kohort.protocol.records.walk import HEADERS_MAX

_NEAR: Final = 1 << 61
"""Compiled code can add a 56-bit delta to timestamps below this bound without overflow."""

_new = tuple.__new__


class Unpacked(NamedTuple):
    """Some records of a batch, and where to continue."""

    records: list[AnyRecord]
    position: int
    left: int
    """Number of records of the batch that are not decoded yet."""


def unpack(  # noqa: C901, PLR0912, PLR0915 - a call for each field would cost more than the field.
    block: bytes, position: int, left: int, source: BatchContext, floor: int, wanted: int
) -> Unpacked:
    """Decode at most `wanted` of the `left` records that begin at `position`.

    Records below offset `floor` are skipped: brokers return the whole batch of the fetch offset.

    Raises:
        DecodeError: a record is invalid. Valid records before it were returned by earlier calls.
    """
    records: list[AnyRecord] = []
    add = records.append
    topic, partition, base, last, base_timestamp, stamp, kind, epoch = source
    is_near = -_NEAR < base_timestamp < _NEAR
    # The types in unpack.pxd differ: `view` has bounds-checked access to single bytes, `data` has
    # cheap slices.
    view = block
    data = block
    end = len(block)
    cursor = position
    try:
        while left and wanted:
            size = view[cursor]
            cursor += 1
            if size > 0x7F:
                size, cursor = _varint(view, cursor - 1)
            stop = cursor + (size >> 1)
            far = view[cursor + 1]
            cursor += 2
            if far > 0x7F:
                far, cursor = _varlong(view, cursor - 1)
            delta = view[cursor]
            cursor += 1
            if delta > 0x7F:
                delta, cursor = _varint(view, cursor - 1)
            key_size = view[cursor]
            cursor += 1
            if key_size > 0x7F:
                key_size, cursor = _varint(view, cursor - 1)
            key_start = cursor
            if key_size != 1:
                cursor += key_size >> 1
            value_size = view[cursor]
            cursor += 1
            if value_size > 0x7F:
                value_size, cursor = _varint(view, cursor - 1)
            value_start = cursor
            if value_size != 1:
                cursor += value_size >> 1
            header_size = view[cursor]
            cursor += 1
            headers: Headers = ()
            if header_size:
                headers, cursor = _headers(view, data, cursor - 1, end)
            # In zig-zag form odd numbers are negative, and 1 is -1: allowed only as the size of an
            # absent key or value.
            odd = (key_size & (key_size != 1)) | (value_size & (value_size != 1))
            if cursor != stop or stop > end or (size | delta | odd) & 1:
                break
            offset = base + (delta >> 1)
            if offset > last:
                break
            if offset >= floor:
                floor = offset + 1
                key = None if key_size == 1 else data[key_start : key_start + (key_size >> 1)]
                value = (
                    None if value_size == 1 else data[value_start : value_start + (value_size >> 1)]
                )
                if stamp is not None:
                    timestamp = stamp
                elif is_near and far >= 0:
                    timestamp = base_timestamp + ((far >> 1) ^ -(far & 1))
                else:
                    timestamp = source.base_timestamp + _timestamp_delta(block, position)
                add(
                    _new(
                        ConsumerRecord,
                        (
                            topic,
                            partition,
                            offset,
                            timestamp,
                            kind,
                            key,
                            value,
                            -1 if key_size == 1 else key_size >> 1,
                            -1 if value_size == 1 else value_size >> 1,
                            headers,
                            epoch,
                        ),
                    )
                )
                wanted -= 1
            position = cursor
            left -= 1
        else:
            return Unpacked(records, position, left)
    except (IndexError, DecodeError):
        pass
    if records:
        # The next call starts with the invalid record, and raises.
        return Unpacked(records, position, left)
    raise DecodeError(f"record at {position} of {end} bytes, {left} before the end, is invalid")


def _varint(view: bytes, cursor: int) -> tuple[int, int]:
    """Return the raw bits of a 32-bit varint, and the position after it."""
    value = shift = 0
    while shift < 35:
        byte = view[cursor]
        cursor += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                break
            return value, cursor
        shift += 7
    raise DecodeError(f"varint before {cursor} does not fit its type")


def _varlong(view: bytes, cursor: int) -> tuple[int, int]:
    """Like `_varint`, for 64 bits; -1 if more than 56 bits are significant."""
    value = shift = 0
    is_far = False
    while shift < 70:
        byte = view[cursor]
        cursor += 1
        if shift < 56:
            value |= (byte & 0x7F) << shift
        elif byte & 0x7F:
            is_far = True
        if byte < 0x80:
            return (-1 if is_far else value), cursor
        shift += 7
    raise DecodeError(f"varint before {cursor} does not fit its type")


def _timestamp_delta(block: bytes, position: int) -> int:
    """Read the timestamp delta, of up to 64 bits, of the record that begins at `position`."""
    _, cursor = read_uvarint(block, position)
    delta, _ = read_varlong(block, cursor + 1)
    return delta


def _headers(view: bytes, data: bytes, cursor: int, end: int) -> tuple[Headers, int]:
    """Read the headers of a record, starting at their count; return them and the next position."""
    count = view[cursor]
    cursor += 1
    if count > 0x7F:
        count, cursor = _varint(view, cursor - 1)
    if count & 1 or count > 2 * HEADERS_MAX:
        raise DecodeError(f"record with {(count >> 1) ^ -(count & 1)} headers")
    headers: list[tuple[str, bytes | None]] = []
    while count:
        size = view[cursor]
        cursor += 1
        if size > 0x7F:
            size, cursor = _varint(view, cursor - 1)
        start = cursor
        cursor += size >> 1
        if size & 1 or cursor > end:
            raise DecodeError("record with a header without a key")
        name = data[start:cursor].decode("utf-8", "surrogateescape")
        size = view[cursor]
        cursor += 1
        if size > 0x7F:
            size, cursor = _varint(view, cursor - 1)
        if size == 1:
            headers.append((name, None))
        else:
            start = cursor
            cursor += size >> 1
            if size & 1 or cursor > end:
                raise DecodeError("record with a header without a value")
            headers.append((name, data[start:cursor]))
        count -= 2
    return tuple(headers), cursor

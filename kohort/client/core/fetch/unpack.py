"""Makes records of the (inflated) records block of a batch: the one thing a consumer does for each.

How a record lies there is told in :mod:`kohort.protocol.records.walk`. This module is compiled
where there is a C compiler: unpack.pxd beside it gives the types. It works the same without, in ten
times the time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kohort.client.core.fetch.batch_context import BatchContext
from kohort.client.core.records import AnyRecord, ConsumerRecord
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.record import Headers
from kohort.protocol.records.varint import (
    read_uvarint,
    read_varint,
    read_varlong,
)
from kohort.protocol.records.walk import HEADERS_MAX

_NEAR: Final = 1 << 61
"""To timestamps below it, compiled arithmetic can add a delta of 56 bits."""

_new = tuple.__new__


class Unpacked(NamedTuple):
    """Some of the records of a block, and where to go on."""

    records: list[AnyRecord]
    position: int
    left: int
    """Records that were not looked at yet."""


def unpack(  # noqa: C901, PLR0912, PLR0915 - a call for each field would cost more than the field.
    block: bytes, position: int, left: int, source: BatchContext, floor: int, wanted: int
) -> Unpacked:
    """`wanted` records at most, of the `left` that begin at `position`.

    Those below offset `floor` are passed over: a fetch begins with the batch that its offset is in.

    Raises:
        DecodeError: the next record is not one. Those before it have been returned by then.
    """
    records: list[AnyRecord] = []
    add = records.append
    topic, partition, base, last, base_timestamp, stamp, kind, epoch = source
    is_near = -_NEAR < base_timestamp < _NEAR
    # Compiled, these are two ways to look at the same bytes: checked ones, and cheap slices of what
    # has been checked.
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
                headers, cursor = _headers(block, cursor - 1)
            # Odd is negative, of which only -1 is allowed, and only as a length of key or value.
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
        # The next call begins with what is wrong, and finds nothing before it.
        return Unpacked(records, position, left)
    raise DecodeError(f"record at {position} of {end} bytes, {left} before the end, is none")


def _varint(view: bytes, cursor: int) -> tuple[int, int]:
    """The bits of a value of 32 of them, and the position behind it."""
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
    """The same for 64 bits; -1 instead of more than 56 that count."""
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
    """Read it from the record that begins there, whatever its size."""
    _, cursor = read_uvarint(block, position)
    delta, _ = read_varlong(block, cursor + 1)
    return delta


def _headers(block: bytes, cursor: int) -> tuple[Headers, int]:
    """Read the headers of a record, from their count on, and the position behind them.

    Lengths that lead out of the record are found by where they lead.
    """
    count, cursor = read_varint(block, cursor)
    if not 0 <= count <= HEADERS_MAX:
        raise DecodeError(f"record with {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, cursor = read_varint(block, cursor)
        if length < 0:
            raise DecodeError("record with a header without key")
        stop = cursor + length
        key = block[cursor:stop].decode("utf-8", "surrogateescape")
        length, cursor = read_varint(block, stop)
        if length < -1:
            raise DecodeError("record with a header value of negative length")
        stop = cursor + max(0, length)
        headers.append((key, None if length < 0 else block[cursor:stop]))
        cursor = stop
    return tuple(headers), cursor

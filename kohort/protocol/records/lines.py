"""Packs lines of text into a records block: the only work that a producer of lines does for each.

A record has a line as its value, and nothing else: no key, no headers, and the timestamp of its
batch. :mod:`kohort.protocol.records.walk` describes the format. This module is compiled where there
is a C compiler; lines.pxd beside it gives the types. Without compilation it works the same, five
times slower.
"""

from __future__ import annotations

from typing import Final

LINE_END: Final = b"\n"

RECORD_OVERHEAD_BYTES_MAX: Final = 19
"""What a record has beside its value at most: three lengths or deltas of five bytes, attributes,
difference in time, no key, no headers.
"""


def pack_lines(
    block: bytearray, filled: int, count: int, text: bytearray, position: int, end: int
) -> tuple[int, int, int]:
    """Append a record for each line of `text` from `position` to `end`, as far as there is room.

    Args:
        block: where to write; its length is the limit, and does not change.
        filled: bytes that it contains; the first record goes there.
        count: records that it contains; the offset delta of the first.
        end: behind the end of a line.

    Returns:
        The new `filled` and `count`, and the position of the first line that was not taken.
    """
    # When compiled, these have a type for bounds-checked access to the bytes.
    out = block
    source = text
    room = len(block)
    while position < end:
        stop = text.find(LINE_END, position, end)
        value_bytes = stop - position
        if value_bytes < 0 or filled + value_bytes + RECORD_OVERHEAD_BYTES_MAX > room:
            break
        # Varints of values that are not negative: zig-zag doubles them.
        delta, length = count << 1, value_bytes << 1
        size = value_bytes + 6
        if delta > 0x7F:
            size += 1 + (delta > 0x3FFF) + (delta > 0x1F_FFFF) + (delta > 0xFFF_FFFF)
        if length > 0x7F:
            size += 1 + (length > 0x3FFF) + (length > 0x1F_FFFF) + (length > 0xFFF_FFFF)
        size <<= 1
        while size > 0x7F:
            out[filled] = size & 0x7F | 0x80
            filled += 1
            size >>= 7
        out[filled] = size
        out[filled + 1] = 0  # No attributes.
        out[filled + 2] = 0  # No difference in time.
        filled += 3
        while delta > 0x7F:
            out[filled] = delta & 0x7F | 0x80
            filled += 1
            delta >>= 7
        out[filled] = delta
        out[filled + 1] = 1  # No key.
        filled += 2
        while length > 0x7F:
            out[filled] = length & 0x7F | 0x80
            filled += 1
            length >>= 7
        out[filled] = length
        filled += 1
        out[filled : filled + value_bytes] = source[position:stop]
        filled += value_bytes
        out[filled] = 0  # No headers.
        filled += 1
        count += 1
        position = stop + 1
    return filled, count, position

"""Unsigned varints for the message codecs (records have their own, zig-zag ones)."""

from kohort.protocol.errors import DecodeError
from kohort.protocol.limits import TAGS_MAX


def read_uvarint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Read the uvarint at ``position``; return it and the position after it.

    Raises:
        DecodeError: more than 32 bits.
        IndexError: the buffer ends inside it.
    """
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                break
            return value, position
    raise DecodeError("uvarint over 32 bits")


def append_uvarint(out: bytearray, value: int) -> None:
    """Append ``value`` (not negative) in as few bytes as possible."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def skip_tags(buffer: bytes | bytearray | memoryview, position: int, count: int) -> int:
    """Skip ``count`` unknown tagged fields; return the position after them.

    Raises:
        DecodeError: more than ``TAGS_MAX``, one that appears twice, or one longer than the buffer.
        IndexError: the buffer ends inside a tag or size.
    """
    if count > TAGS_MAX:
        raise DecodeError(f"{count} tagged fields")
    seen: set[int] = set()
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise DecodeError(f"tag {tag} exceeds what is left")
        if tag in seen:
            raise DecodeError(f"tag {tag} appears twice")
        seen.add(tag)
    return position

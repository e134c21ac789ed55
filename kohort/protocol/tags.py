"""Skips tagged fields that the reader does not know."""

from kohort.protocol.errors import DecodeError
from kohort.protocol.limits import TAGS_MAX
from kohort.protocol.records.varint import Buffer, read_uvarint


def skip_tags(buffer: Buffer, position: int, count: int) -> int:
    """Skip ``count`` unknown tagged fields; return the position after them.

    Raises:
        DecodeError: more than ``TAGS_MAX`` fields, a repeated tag, or the buffer is too short.
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

"""Base-128 integers as records use them: lowest group first, signed ones in zig-zag form.

Readers take a buffer and a position and return the value and the position after it. They never read
past the end of the buffer and raise only DecodeError. An encoding with redundant zero groups is
accepted, as every Kafka client accepts it; one that does not fit the type is refused rather than
truncated, because readers that truncate differently would see different records.
"""

from typing import TypeAlias

from kohort.protocol.errors import DecodeError, EncodeError

Buffer: TypeAlias = bytes | bytearray | memoryview

UVARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10

_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned 32-bit value; return it and the position after it."""
    if position >= 0:
        # Fast path for valid values, because messages have many uvarints.
        value = 0
        for index, byte in enumerate(buffer[position : position + UVARINT_BYTES_MAX]):
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80 and value <= 0xFFFF_FFFF:
                return value, position + index + 1
    return read_groups(buffer, position, UVARINT_BYTES_MAX)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a signed 32-bit value; return it and the position after it."""
    value, position = read_groups(buffer, position, UVARINT_BYTES_MAX)
    return (value >> 1) ^ -(value & 1), position


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a signed 64-bit value; return it and the position after it."""
    value, position = read_groups(buffer, position, VARLONG_BYTES_MAX)
    return (value >> 1) ^ -(value & 1), position


def read_groups(buffer: Buffer, position: int, bytes_max: int) -> tuple[int, int]:
    """Read a varint before zig-zag decoding: up to 32 bits if `bytes_max` is 5, else up to 64."""
    if position < 0:
        raise DecodeError(f"varint at negative position {position}")
    value = 0
    stop = min(len(buffer), position + bytes_max)
    for index in range(position, stop):
        byte = buffer[index]
        value |= (byte & 0x7F) << 7 * (index - position)
        if byte < 0x80:
            if value >> (32 if bytes_max == UVARINT_BYTES_MAX else 64):
                break
            return value, index + 1
    else:
        if stop < position + bytes_max:
            raise DecodeError(f"varint at {position} ends with the buffer")
    raise DecodeError(f"varint at {position} does not fit {bytes_max} bytes or its type")


def encode_uvarint(value: int) -> bytes:
    """Encode an unsigned value. Raises EncodeError if it is negative or has more than 32 bits."""
    if not 0 <= value <= 0xFFFF_FFFF:
        raise EncodeError(f"{value} does not fit an unsigned varint")
    out = bytearray()
    append_uvarint(out, value)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """Encode a signed value. Raises EncodeError if it does not fit 32 bits."""
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def encode_varlong(value: int) -> bytes:
    """Encode a signed value. Raises EncodeError if it does not fit 64 bits."""
    out = bytearray()
    write_varlong(out, value)
    return bytes(out)


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed 32-bit value to `out`."""
    if -64 <= value < 64:
        out.append((value << 1) ^ (value >> 31))
        return
    if not _INT32_MIN <= value <= _INT32_MAX:
        raise EncodeError(f"{value} does not fit a varint")
    append_uvarint(out, (value << 1) ^ (value >> 31))


def write_varlong(out: bytearray, value: int) -> None:
    """Append a signed 64-bit value to `out`."""
    if -64 <= value < 64:
        out.append((value << 1) ^ (value >> 63))
        return
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise EncodeError(f"{value} does not fit a varlong")
    append_uvarint(out, (value << 1) ^ (value >> 63))


def append_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned value, which is not checked, to `out`."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)

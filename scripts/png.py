"""Makes a screenshot smaller without loss.

Chromium filters the rows of a picture, which serves photographs. A page of text is the same letters
over and over: without filters they are the same bytes, and compress by a quarter better.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_TRUECOLOUR: Final = 2
_BYTES: Final = 3
"""The size of a pixel."""
_PAETH: Final = 4


def squeezed(picture: bytes) -> bytes:
    """The same picture in fewer bytes.

    Raises:
        ValueError: it is not a PNG of three bytes a pixel, row after row.
    """
    chunks = list(_chunks(picture))
    head = chunks[0][1]
    width, _, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", head)
    if (depth, colour, interlaced) != (8, _TRUECOLOUR, 0):
        raise ValueError(f"{depth} bits, colour type {colour}, interlaced {interlaced}")
    packed = b"".join(data for kind, data in chunks if kind == b"IDAT")
    rows = _rows(zlib.decompress(packed), _BYTES * width)
    plain = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    made = [(b"IHDR", head), (b"IDAT", plain), (b"IEND", b"")]
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in made)


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not picture.startswith(_SIGNATURE):
        raise ValueError("not a PNG")
    at = len(_SIGNATURE)
    while at < len(picture):
        (length,) = struct.unpack_from(">I", picture, at)
        yield picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]
        at += length + 12


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _rows(filtered: bytes, length: int) -> Iterator[bytes]:
    """The rows of pixels, out of the five filters of PNG."""
    above = bytes(length)
    for at in range(0, len(filtered), length + 1):
        kind, row = filtered[at], bytearray(filtered[at + 1 : at + 1 + length])
        for place in range(length):
            left, corner = (
                (row[place - _BYTES], above[place - _BYTES]) if place >= _BYTES else (0, 0)
            )
            row[place] = (row[place] + _guess(kind, left, above[place], corner)) % 256
        above = bytes(row)
        yield above


def _guess(kind: int, left: int, up: int, corner: int) -> int:
    """The neighbours' guess of a byte, which the filter has subtracted from it."""
    if kind == _PAETH:
        distances = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
        return (left, up, corner)[distances.index(min(distances))]
    return (0, left, up, (left + up) // 2)[kind]

"""Unsigned certificates as bytes, with any subject."""

from collections.abc import Iterable, Sequence
from typing import Final

UTF8: Final = 0x0C
PRINTABLE: Final = 0x13

Attribute = tuple[str, int, str | bytes]
"""Type as a dotted number, tag of the value, and the value."""


def element(tag: int, content: bytes) -> bytes:
    if len(content) < 0x80:
        return bytes((tag, len(content))) + content
    size = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(size))) + size + content


def oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    encoded = bytearray()
    for number in (40 * first + second, *rest):
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.insert(0, number & 0x7F | 0x80)
        encoded += bytes(digits)
    return element(0x06, bytes(encoded))


def name(attributes: Iterable[Attribute]) -> bytes:
    sets = []
    for kind, tag, value in attributes:
        data = value if isinstance(value, bytes) else value.encode()
        sets.append(element(0x31, element(0x30, oid(kind) + element(tag, data))))
    return element(0x30, b"".join(sets))


def certificate(attributes: Iterable[Attribute], *, alternatives: Sequence[bytes] = ()) -> bytes:
    validity = element(0x17, b"250101000000Z") + element(0x17, b"301231235959Z")
    fields = [
        element(0xA0, element(0x02, b"\2")),
        element(0x02, b"\1"),
        element(0x30, oid("1.2.840.113549.1.1.11")),
        name([("2.5.4.3", UTF8, "issuer")]),
        element(0x30, validity),
        name(attributes),
        element(0x30, b"\x05\0"),
    ]
    if alternatives:
        names = element(0x04, element(0x30, b"".join(alternatives)))
        extension = element(0x30, oid("2.5.29.17") + names)
        fields.append(element(0xA3, element(0x30, extension)))
    return element(0x30, element(0x30, b"".join(fields)))

"""The building blocks of Kafka's wire format, as ``construct`` constructs.

``construct`` has fixed-width integers; everything specific to Kafka (two length encodings, null by
length, tagged fields) is declared here. A message layout is a tree of these, and the tree has two
readers: ``construct`` itself, the slow oracle that the tests trust, and
:mod:`kohort.protocol.compiler`, which walks the tree once and writes straight-line code from it.

Every construct has ``min_size``, the fewest bytes a value can take, so that an element count can be
refused before anything is allocated for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import construct

from kohort.protocol.limits import ELEMENTS_MAX, TAGS_MAX, TEXT_BYTES_MAX

FIXED_FORMATS: Final[dict[int, str]] = {}
"""``id(construct) -> struct format`` of the fixed-width primitives, filled by ``fixed``."""


def fixed(con: Any, code: str) -> Any:
    """Mark ``con`` as a fixed-width primitive that the compiler may pack with ``struct``."""
    FIXED_FORMATS[id(con)] = code
    return con


def fixed_format(con: Any) -> str | None:
    """Return the ``struct`` format character(s) of a fixed-width construct, or None."""
    return FIXED_FORMATS.get(id(con))


def min_size(con: Any) -> int:
    """Return the minimum number of bytes of a value of ``con``."""
    if isinstance(con, construct.Renamed):
        return min_size(con.subcon)
    declared = getattr(con, "min_size", None)
    return int(declared) if declared is not None else int(con.sizeof())


if TYPE_CHECKING:
    _Construct = construct.Construct[Any, Any]
else:
    _Construct = construct.Construct  # The class is generic in its stubs only.


class WireError(construct.ConstructError):
    """Raised by construct for malformed bytes; generated readers raise DecodeError instead."""


class Uvarint(_Construct):
    """Unsigned base-128 integer, low group first, at most 5 bytes and 32 bits."""

    min_size = 1

    def _parse(self, stream: Any, context: Any, path: Any) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = construct.stream_read(stream, 1, path)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 32:
                    break
                return value
        raise WireError("uvarint over 32 bits", path=path)

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        value = obj
        while value >= 0x80:
            construct.stream_write(stream, bytes([value & 0x7F | 0x80]), 1, path)
            value >>= 7
        construct.stream_write(stream, bytes([value]), 1, path)
        return obj


UVARINT: Final = Uvarint()
_NO_CONTEXT: Any = construct.Container()
_INT8: Final = construct.Int8sb
_INT16: Final = construct.Int16sb
_INT32: Final = construct.Int32sb


class Sized(_Construct):
    """Base of all values with a length prefix, which also expresses null.

    ``compact`` values carry uvarint(length + 1) with 0 for null, classic ones a signed length of
    ``prefix`` with -1 for null.
    """

    def __init__(self, *, compact: bool, nullable: bool, prefix: Any) -> None:
        super().__init__()
        self.compact = compact
        self.nullable = nullable
        self.prefix = prefix
        self.min_size = 1 if compact else prefix.sizeof()

    def _parse_length(self, stream: Any, path: Any) -> int | None:
        if self.compact:
            length = UVARINT._parsereport(stream, _NO_CONTEXT, path) - 1
        else:
            length = self.prefix._parsereport(stream, _NO_CONTEXT, path)
        if length >= 0:
            return int(length)
        if length < -1 or not self.nullable:
            raise WireError(f"length {length} is not allowed", path=path)
        return None

    def _build_length(self, length: int | None, stream: Any, path: Any) -> None:
        if length is None and not self.nullable:
            raise WireError("null is not allowed", path=path)
        value = -1 if length is None else length
        if self.compact:
            UVARINT._build(value + 1, stream, _NO_CONTEXT, path)
        else:
            self.prefix._build(value, stream, _NO_CONTEXT, path)


class Text(Sized):
    """A UTF-8 string: ``str``, or None where nullable."""

    def __init__(self, *, compact: bool, nullable: bool) -> None:
        super().__init__(compact=compact, nullable=nullable, prefix=_INT16)

    def _parse(self, stream: Any, context: Any, path: Any) -> str | None:
        length = self._parse_length(stream, path)
        if length is None:
            return None
        if length > TEXT_BYTES_MAX:
            raise WireError(f"text of {length} bytes", path=path)
        try:
            return bytes(construct.stream_read(stream, length, path)).decode()
        except UnicodeDecodeError as error:
            raise WireError(str(error), path=path) from None

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        data = None if obj is None else obj.encode()
        if data is not None and len(data) > TEXT_BYTES_MAX:
            raise WireError(f"text of {len(data)} bytes", path=path)
        self._build_length(None if data is None else len(data), stream, path)
        if data:
            construct.stream_write(stream, data, len(data), path)
        return obj


class Blob(Sized):
    """Raw bytes. Generated readers copy them, but return ``records`` as views of the frame."""

    def __init__(self, *, compact: bool, nullable: bool, records: bool = False) -> None:
        super().__init__(compact=compact, nullable=nullable, prefix=_INT32)
        self.records = records

    def _parse(self, stream: Any, context: Any, path: Any) -> bytes | None:
        length = self._parse_length(stream, path)
        return None if length is None else bytes(construct.stream_read(stream, length, path))

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        self._build_length(None if obj is None else len(obj), stream, path)
        if obj:
            construct.stream_write(stream, bytes(obj), len(obj), path)
        return obj


class Array(Sized):
    """A counted sequence of ``subcon``: ``list``, or None where nullable."""

    def __init__(self, subcon: Any, *, compact: bool, nullable: bool) -> None:
        super().__init__(compact=compact, nullable=nullable, prefix=_INT32)
        self.subcon = subcon

    def _parse(self, stream: Any, context: Any, path: Any) -> list[Any] | None:
        count = self._parse_length(stream, path)
        if count is None:
            return None
        if count > ELEMENTS_MAX:
            raise WireError(f"{count} elements", path=path)
        return [self.subcon._parsereport(stream, context, path) for _ in range(count)]

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        self._build_length(None if obj is None else len(obj), stream, path)
        for element in obj or ():
            self.subcon._build(element, stream, context, path)
        return obj


class NullableStruct(_Construct):
    """A structure that may be null: int8 -1, or 1 followed by the structure; in a tagged field
    uvarint 0, or 1 followed by the structure.
    """

    min_size = 1

    def __init__(self, subcon: Any, *, in_tag: bool = False) -> None:
        super().__init__()
        self.subcon = subcon
        self.in_tag = in_tag

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        if self.in_tag:
            is_null = UVARINT._parsereport(stream, _NO_CONTEXT, path) == 0
        else:
            is_null = _INT8._parsereport(stream, _NO_CONTEXT, path) < 0
        return None if is_null else self.subcon._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        null = 0 if self.in_tag else -1
        _INT8._build(null if obj is None else 1, stream, _NO_CONTEXT, path)
        if obj is not None:
            self.subcon._build(obj, stream, context, path)
        return obj


class LenientInt8(_Construct):
    """An int8 for tagged fields that must never fail a request: empty reads as 0, bytes after the
    first are ignored. Only meaningful inside a tag, where the size bounds the stream.
    """

    min_size = 1

    def _parse(self, stream: Any, context: Any, path: Any) -> int:
        data = construct.stream_read_entire(stream, path)
        return int.from_bytes(data[:1], "big", signed=True)

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        return _INT8._build(obj, stream, _NO_CONTEXT, path)


class TaggedField:
    """A known tag of a structure: its attribute, its layout, and its default (not written)."""

    def __init__(self, tag: int, name: str, con: Any, default: Any) -> None:
        self.tag = tag
        self.name = name
        self.con = con
        self.default = default
        """The default as a plain value (nested structures as dicts); it is not written."""


class TaggedFields(_Construct):
    """The tag buffer that ends every structure of a flexible version (KIP-482).

    Unknown tags are skipped and any order is accepted, as Kafka does; a tag that appears twice, or
    a known one that does not fill its size exactly, is refused.
    """

    min_size = 1

    def __init__(self, known: list[TaggedField]) -> None:
        super().__init__()
        self.known = sorted(known, key=lambda field: field.tag)

    def _parse(self, stream: Any, context: Any, path: Any) -> dict[str, Any]:
        values = {field.name: field.default for field in self.known}
        known = {field.tag: field for field in self.known}
        seen: set[int] = set()
        count = UVARINT._parsereport(stream, _NO_CONTEXT, path)
        if count > TAGS_MAX:
            raise WireError(f"{count} tagged fields", path=path)
        for _ in range(count):
            tag = UVARINT._parsereport(stream, _NO_CONTEXT, path)
            size = UVARINT._parsereport(stream, _NO_CONTEXT, path)
            data = bytes(construct.stream_read(stream, size, path))
            if tag in seen:
                raise WireError(f"tag {tag} appears twice", path=path)
            seen.add(tag)
            if field := known.get(tag):
                values[field.name] = self._parse_known(field, data, path)
        return values

    def _parse_known(self, field: TaggedField, data: bytes, path: Any) -> Any:
        consumed = construct.Struct("value" / field.con, "end" / construct.Tell).parse(data)
        if consumed.end != len(data):
            raise WireError(f"tag {field.tag} does not fill its size", path=path)
        return consumed.value

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        present = [field for field in self.known if obj[field.name] != field.default]
        UVARINT._build(len(present), stream, _NO_CONTEXT, path)
        for field in present:
            data = field.con.build(obj[field.name])
            UVARINT._build(field.tag, stream, _NO_CONTEXT, path)
            UVARINT._build(len(data), stream, _NO_CONTEXT, path)
            construct.stream_write(stream, data, len(data), path)
        return obj


class MessageStruct(construct.Struct):
    """The layout of one version of `message`, the class of a message or of a structure in one.

    Parses to a plain dict and builds from one; tagged fields are keys like the others.
    """

    def __init__(self, message: type, *subcons: Any, tagged: TaggedFields | None) -> None:
        super().__init__(*subcons)
        self.message = message
        self.tagged = tagged
        self.min_size = sum(min_size(con) for con in self.subcons) + (tagged is not None)

    def named(self, owner: str) -> list[tuple[str, Any]]:
        """Return ("owner.field", construct) of each field in order, except tagged ones."""
        subcons: list[Any] = self.subcons
        return [(f"{owner}.{renamed.name}", renamed.subcon) for renamed in subcons]

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        values = dict(super()._parse(stream, context, path))
        values.pop("_io", None)
        if self.tagged is not None:
            values.update(self.tagged._parsereport(stream, context, path))
        return values

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        super()._build(obj, stream, context, path)
        if self.tagged is not None:
            self.tagged._build(obj, stream, context, path)
        return obj

"""The types a message field can have: a Python type to the checker, constructs to the codec.

``Int32`` is ``int`` to mypy and carries a :class:`WireType`, which names the construct for each way
the value can be laid out. ``String | None`` is a nullable string, ``list[Int32]`` an array. Kafka's
defaults for fields that a version lacks are here too, as ``zero``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

import construct

from kohort.protocol.constructs import Blob, Text, fixed
from kohort.protocol.constructs import LenientInt8 as _LenientInt8

ZERO_UUID: Final = bytes(16)
"""The uuid that stands for "absent" everywhere in the protocol."""


@dataclass(frozen=True, slots=True, eq=False)
class WireType:
    """The layout of one primitive: ``con(compact=, nullable=)`` gives its construct."""

    name: str
    """Kafka's name of the type in its message definitions."""
    con: Callable[..., Any]
    zero: Any
    """Value of a field that has no default of its own, in versions that lack it."""


def _fixed(name: str, con: Any, code: str, zero: Any) -> WireType:
    fixed(con, code)
    return WireType(name, lambda **_: con, zero)


_BOOL = _fixed("bool", construct.Flag, "?", False)
_INT8 = _fixed("int8", construct.Int8sb, "b", 0)
_INT16 = _fixed("int16", construct.Int16sb, "h", 0)
_UINT16 = _fixed("uint16", construct.Int16ub, "H", 0)
_INT32 = _fixed("int32", construct.Int32sb, "i", 0)
_INT64 = _fixed("int64", construct.Int64sb, "q", 0)
_FLOAT64 = _fixed("float64", construct.Float64b, "d", 0.0)
_UUID = _fixed("uuid", construct.Bytes(16), "16s", ZERO_UUID)
_LENIENT = WireType("int8", lambda **_: _LenientInt8(), 0)
_STRING = WireType("string", Text, "")
_BYTES = WireType("bytes", Blob, b"")
_RECORDS = WireType("records", partial(Blob, records=True), None)

Bool = Annotated[bool, _BOOL]
Int8 = Annotated[int, _INT8]
Int16 = Annotated[int, _INT16]
Uint16 = Annotated[int, _UINT16]
Int32 = Annotated[int, _INT32]
Int64 = Annotated[int, _INT64]
Float64 = Annotated[float, _FLOAT64]
Uuid = Annotated[bytes, _UUID]
"""16 bytes, not ``uuid.UUID``: ids are hashed on every request, never computed with."""
String = Annotated[str, _STRING]
Bytes = Annotated[bytes, _BYTES]
Records = Annotated[bytes | memoryview, _RECORDS]
"""Record batches, opaque: decoded as a memoryview of the frame, encoded without a copy."""
LenientInt8 = Annotated[int, _LENIENT]
"""An int8 in a tagged field that never fails a request; see :class:`kohort.protocol.constructs`."""

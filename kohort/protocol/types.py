"""The types of message fields: Python types for mypy, annotated with wire types for the codec.

``Int32`` is ``int`` with a :class:`WireType`; :mod:`kohort.protocol.layout` defines the encodings.
``String | None`` is a nullable string, ``list[Int32]`` an array.
"""

from typing import Annotated, Any, Final, NamedTuple

ZERO_UUID: Final = bytes(16)
"""The uuid that stands for "absent" everywhere in the protocol."""


class WireType(NamedTuple):
    """A primitive type of the protocol."""

    name: str
    """Kafka's name of the type in its message definitions."""
    zero: Any
    """The value in versions without the field, unless the field declares another default."""
    is_lenient: bool = False
    """Whether malformed bytes are tolerated; see `kohort.protocol.constructs.LenientInt8`."""


_BOOL = WireType("bool", False)
_INT8 = WireType("int8", 0)
_INT16 = WireType("int16", 0)
_UINT16 = WireType("uint16", 0)
_INT32 = WireType("int32", 0)
_INT64 = WireType("int64", 0)
_FLOAT64 = WireType("float64", 0.0)
_UUID = WireType("uuid", ZERO_UUID)
_LENIENT = WireType("int8", 0, is_lenient=True)
_STRING = WireType("string", "")
_BYTES = WireType("bytes", b"")
_RECORDS = WireType("records", None)

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
"""An int8 in a tagged field that never fails a request, even if its bytes are malformed."""

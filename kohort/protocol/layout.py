"""The ``construct`` layout of a declared message class, for one version.

The layout is the definition of what is on the wire: :mod:`kohort.protocol.compiler` generates the
fast codec from it, and tests compare the two.
"""

from typing import Any, Final

import construct

from kohort.protocol.constructs import (
    Array,
    Blob,
    LenientInt8,
    MessageStruct,
    NullableStruct,
    TaggedField,
    TaggedFields,
    Text,
    fixed,
)
from kohort.protocol.message import Struct, schema_of
from kohort.protocol.schema import Field
from kohort.protocol.types import WireType

_FIXED: Final = {
    "bool": fixed(construct.Flag, "?"),
    "int8": fixed(construct.Int8sb, "b"),
    "int16": fixed(construct.Int16sb, "h"),
    "uint16": fixed(construct.Int16ub, "H"),
    "int32": fixed(construct.Int32sb, "i"),
    "int64": fixed(construct.Int64sb, "q"),
    "float64": fixed(construct.Float64b, "d"),
    "uuid": fixed(construct.Bytes(16), "16s"),
}
"""The constructs of the primitives with a fixed width, by name."""


def layout(message: type, version: int) -> MessageStruct:
    """Return the construct of ``message`` in ``version``; it parses to and builds from plain dicts.

    Raises:
        ValueError: ``message`` has no such version.
    """
    schema = schema_of(message)
    if version not in schema.versions:
        raise ValueError(f"{schema.name} has no version {version}")
    return _struct(message, version, flexible=schema.is_flexible(version))


def to_plain(value: Any, version: int) -> Any:
    """Convert a message to the nested dicts and lists of its layout in ``version``."""
    if isinstance(value, Struct):
        fields = schema_of(type(value)).fields
        return {
            field.name: to_plain(getattr(value, field.name), version)
            for field in fields
            if version in field.versions
        }
    if isinstance(value, list):
        return [to_plain(element, version) for element in value]
    return bytes(value) if isinstance(value, (memoryview, bytearray)) else value


def _struct(message: type, version: int, *, flexible: bool) -> MessageStruct:
    present = [field for field in schema_of(message).fields if version in field.versions]
    plain = [field for field in present if not field.is_tagged(version)]
    tagged = None
    if flexible:
        tagged = TaggedFields(
            [
                TaggedField(
                    field.options.tag,
                    field.name,
                    _value(field, version, flexible=flexible),
                    to_plain(field.make_default(), version),
                )
                for field in present
                if field.options.tag is not None and field.is_tagged(version)
            ]
        )
    subcons = [
        construct.Renamed(_value(f, version, flexible=flexible), newname=f.name) for f in plain
    ]
    return MessageStruct(message, *subcons, tagged=tagged)


def _value(field: Field, version: int, *, flexible: bool) -> Any:
    nullable = version in field.nullable
    if field.is_array:
        element = _element(field.kind, version, flexible=flexible)
        return Array(element, compact=flexible, nullable=nullable)
    if isinstance(field.kind, WireType):
        return _primitive(field.kind, compact=flexible, nullable=nullable)
    nested = _struct(field.kind, version, flexible=flexible)
    return NullableStruct(nested, in_tag=field.is_tagged(version)) if nullable else nested


def _element(kind: WireType | type, version: int, *, flexible: bool) -> Any:
    if isinstance(kind, WireType):
        return _primitive(kind, compact=flexible, nullable=False)
    return _struct(kind, version, flexible=flexible)


def _primitive(kind: WireType, *, compact: bool, nullable: bool) -> Any:
    if kind.is_lenient:
        return LenientInt8()
    if kind.name in _FIXED:
        return _FIXED[kind.name]
    if kind.name == "string":
        return Text(compact=compact, nullable=nullable)
    return Blob(compact=compact, nullable=nullable, records=kind.name == "records")

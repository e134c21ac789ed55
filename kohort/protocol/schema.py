"""The declaration of a message class as data: its fields, their types and their versions.

Built once per class from its annotations. :mod:`kohort.protocol.layout` builds the ``construct``
layouts from it; tests compare it with Kafka's own definitions.
"""

import types
import typing
from typing import Any, Final, NamedTuple

from kohort.protocol.limits import (
    ELEMENTS_MAX,
    PRODUCE_BYTES_MAX,
    PRODUCE_ELEMENTS_MAX,
    REQUEST_BYTES_MAX,
    REQUEST_ELEMENTS_MAX,
)
from kohort.protocol.types import WireType

_PRODUCE_KEY: Final = 0

FOREVER: Final = 32767
"""Upper end of an open version range ("3+")."""


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


class VersionRange(NamedTuple):
    """An inclusive range of message versions; empty if ``low > high``."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    @classmethod
    def parse(cls, text: str) -> "VersionRange":
        """Read Kafka's notation: "3-7", "4+", "2" or "none"."""
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), FOREVER)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))


EVERY_VERSION: Final = VersionRange(0, FOREVER)
NO_VERSION: Final = VersionRange(0, -1)


class FieldOptions(NamedTuple):
    """Arguments of ``field()``; see :func:`kohort.protocol.message.field`."""

    default: Any
    versions: VersionRange
    nullable: VersionRange | None
    tag: int | None
    tagged: VersionRange
    ignorable: bool


class Field(NamedTuple):
    name: str
    kind: WireType | type
    """A primitive, or the class of a nested structure."""
    is_array: bool
    nullable: VersionRange
    options: FieldOptions

    @property
    def versions(self) -> VersionRange:
        return self.options.versions

    @property
    def has_default(self) -> bool:
        """Whether the constructor can be called without a value for the field."""
        return self.options.default is not MISSING

    def is_tagged(self, version: int) -> bool:
        """Whether the field is in the tag buffer in ``version``."""
        return self.options.tag is not None and version in self.options.tagged

    def make_default(self) -> Any:
        """Return the declared default, otherwise Kafka's implicit one for the type."""
        default = self.options.default
        if default is not MISSING:
            if isinstance(default, list):
                return list(default)
            return default() if isinstance(default, type) else default
        if self.is_array:
            return []
        return self.kind.zero if isinstance(self.kind, WireType) else self.kind()


class MessageSchema(NamedTuple):
    """The declaration of a class. ``key`` is the API key; None for structures and data records."""

    name: str
    message: type
    fields: tuple[Field, ...]
    key: int | None
    versions: VersionRange
    flexible: VersionRange
    is_request: bool

    @property
    def elements_max(self) -> int:
        """Maximum array elements and tagged fields of a message."""
        if not self.is_request:
            return ELEMENTS_MAX
        return PRODUCE_ELEMENTS_MAX if self.key == _PRODUCE_KEY else REQUEST_ELEMENTS_MAX

    @property
    def bytes_max(self) -> int | None:
        """Maximum total size of a request's string and bytes fields; None for other messages."""
        if not self.is_request:
            return None
        return PRODUCE_BYTES_MAX if self.key == _PRODUCE_KEY else REQUEST_BYTES_MAX

    def is_flexible(self, version: int) -> bool:
        """Whether ``version`` uses compact lengths and tag buffers (KIP-482)."""
        return version in self.flexible


def parse_field(name: str, annotation: Any, options: FieldOptions) -> Field:
    """Parse one annotation: ``T``, ``T | None``, ``list[T]`` or ``list[T] | None``."""
    inner, nullable = _strip_none(annotation)
    is_array = typing.get_origin(inner) is list
    if is_array:
        (inner,) = typing.get_args(inner)
    kind = _kind(inner)
    if kind is None:
        raise TypeError(f"field {name}: {annotation!r} is not a wire type or a struct class")
    in_versions = (options.nullable or EVERY_VERSION) if nullable else NO_VERSION
    return Field(name, kind, is_array, in_versions, options)


def _strip_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) not in {typing.Union, types.UnionType}:
        return annotation, False
    inner = [arg for arg in typing.get_args(annotation) if arg is not types.NoneType]
    if len(inner) != 1:
        raise TypeError(f"{annotation!r} is not a wire type")
    return inner[0], True


def _kind(annotation: Any) -> WireType | type | None:
    for extra in getattr(annotation, "__metadata__", ()):
        if isinstance(extra, WireType):
            return extra
    return annotation if isinstance(annotation, type) and hasattr(annotation, "schema") else None

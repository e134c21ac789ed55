"""All declared messages, and Hypothesis strategies for their values, taken from the declarations.

Used by every test that holds the codecs against something else: construct or Java.
"""

import importlib
import pkgutil
from functools import cache
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st

from kohort.protocol import messages
from kohort.protocol.message import Struct, schema_of
from kohort.protocol.schema import FOREVER, Field
from kohort.protocol.types import ZERO_UUID, WireType
from tests.support.suites.examples import examples

T = TypeVar("T")
Message = type[Any]

EXAMPLES = examples(8)
"""Random values of each (message, version), of which there are hundreds."""

codec_settings = settings(max_examples=EXAMPLES, deadline=None)


@cache
def top_level_messages() -> tuple[Message, ...]:
    """Every request, response, header and record class under protocol.messages."""
    found: list[Message] = []
    for info in pkgutil.iter_modules(messages.__path__, "kohort.protocol.messages."):
        module = importlib.import_module(info.name)
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, Struct)
            and value is not Struct
            and schema_of(value).versions.high != FOREVER
        ]
    return tuple(found)


def versions(message: Message) -> range:
    declared = schema_of(message).versions
    return range(declared.low, declared.high + 1)


def message_versions(messages: tuple[Message, ...] | None = None) -> list[tuple[Message, int]]:
    chosen = top_level_messages() if messages is None else messages
    return [(message, version) for message in chosen for version in versions(message)]


def identify(value: object) -> str | None:
    """Names of parametrised tests: the class and the version."""
    return value.__name__ if isinstance(value, type) else None


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high)


# Lengths around 127 need a second byte in the compact form, payloads above 2,048 bytes leave the
# response's own buffer.
_TEXT = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.sampled_from(["", "topic-1", "ünï©ode\U0001f600", "a" * 126, "b" * 127, "c" * 300]),
)
_BLOB = st.one_of(
    st.binary(max_size=8), st.sampled_from([b"", b"\x00" * 126, b"\xff" * 127, b"z" * 300])
)
_RECORDS = st.one_of(st.binary(max_size=8), st.sampled_from([b"", b"r" * 2048, b"s" * 2049]))

_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "uint16": _integers(16, signed=False),
    "int32": _integers(32),
    "uint32": _integers(32, signed=False),
    "int64": _integers(64),
    # JSON, which Kafka's own classes are asked in, has no infinity.
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "uuid": st.one_of(st.just(ZERO_UUID), st.binary(min_size=16, max_size=16)),
    "string": _TEXT,
    "bytes": _BLOB,
    "records": _RECORDS,
}


def values(message: Message, version: int) -> st.SearchStrategy[Any]:
    """Instances of ``message`` that ``version`` can express in full."""
    if (message, version) not in _known:
        _known[message, version] = _values(message, version)
    return _known[message, version]


_known: dict[tuple[Message, int], st.SearchStrategy[Any]] = {}


def _values(message: Message, version: int) -> st.SearchStrategy[Any]:
    fields = [field for field in schema_of(message).fields if version in field.versions]
    names = [field.name for field in fields]
    # A tuple, as fixed_dictionaries would spend a draw per field on shuffling them.
    chosen = st.tuples(*(_field_values(field, version) for field in fields))
    return chosen.map(lambda drawn: message(**dict(zip(names, drawn, strict=True))))


def _field_values(field: Field, version: int) -> st.SearchStrategy[Any]:
    if isinstance(field.kind, WireType):
        chosen = _PRIMITIVES[field.kind.name]
    else:
        chosen = values(field.kind, version)
    if field.is_array:
        chosen = st.lists(chosen, max_size=3)
    if version in field.nullable:
        chosen = st.one_of(st.none(), chosen)
    if field.has_default and field.is_tagged(version):
        # A default value is what leaves a tag out; random values would hardly ever hit it.
        chosen = st.one_of(st.builds(field.make_default), chosen)
    return chosen


def full_value(message: type[T], version: int) -> T:
    """One value with nothing left out: no null, no empty list, no default in a tag."""
    return message(
        **{
            field.name: _full_field(field, version)
            for field in schema_of(message).fields
            if version in field.versions
        }
    )


_FULL: dict[str, Any] = {
    "uuid": bytes(range(16)),
    "string": "\u03b1",
    "bytes": b"\x01\x02",
    "records": b"\x03\x04\x05",
    "float64": 0.5,
}


def _full_field(field: Field, version: int) -> object:
    value: object
    if not isinstance(field.kind, WireType):
        value = full_value(field.kind, version)
    elif field.kind.name == "bool":
        value = not field.make_default()
    else:
        value = _FULL.get(field.kind.name, 7)
    return [value] if field.is_array else value

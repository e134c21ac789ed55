"""Both forms of a hot codec: the one that was compiled, and the one in Python."""

import importlib
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import kohort
from kohort.protocol.codec import Codec, codec
from kohort.protocol.errors import ProtocolError
from kohort.protocol.message import Struct, schema_of
from tests.property.message_values import Message

ROOT = Path(kohort.__file__).parents[1]
COMPILED = (ROOT / "kohort/protocol/hot_codecs").with_suffix(
    str(sysconfig.get_config_var("EXT_SUFFIX"))
)

needs_compiled = pytest.mark.skipif(
    not COMPILED.exists(), reason="not compiled: no C compiler was there when the package was built"
)

_in_python: dict[tuple[Message, int, str], Callable[..., Any]] = {}


def in_python(message: Message, version: int, name: str) -> Callable[..., Any]:
    key = message, version, name
    if key not in _in_python:
        _in_python[key] = Codec.generated(codec(message, version), name)
    return _in_python[key]


def outcome(function: Callable[..., Any], *args: object) -> object:
    """What came of it: errors by their class and text, buffers by their bytes."""
    try:
        result = function(*args)
    except ProtocolError as error:
        return type(error), str(error), type(error.__cause__), error.__suppress_context__
    if isinstance(result, list):
        # A str among the records is a mistake that only the socket would notice.
        parts = [part if isinstance(part, str) else bytes(part) for part in result]
        return parts, [type(part) for part in result]
    return result, [type(one) for one in _leaves(result[0])]


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, Struct):
        for one in schema_of(type(value)).fields:
            yield from _leaves(getattr(value, one.name))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


def same_when_read(message: Message, version: int, data: bytes, position: int = 0) -> None:
    expected = outcome(in_python(message, version, "decode"), data, position)
    for buffer in (data, bytearray(data), memoryview(data)):
        assert outcome(codec(message, version).decode, buffer, position) == expected


def same_when_written(message: Message, version: int, value: object) -> None:
    compiled, plain = bytearray(b"head"), bytearray(b"head")
    expected = outcome(in_python(message, version, "encode_into"), value, plain)
    assert outcome(codec(message, version).encode_into, value, compiled) == expected
    assert compiled == plain


def compiled_alone(message: Message, version: int) -> Callable[..., Any]:
    """The compiled codec, of which the way to Python ends in an error."""

    def refuse(_: str) -> NoReturn:
        raise AssertionError("left to Python")

    module: Any = importlib.import_module("kohort.protocol.hot_codecs")
    found: Callable[..., Any] = module.bound(message, version, refuse)
    return found


def forget_tags(value: Any, version: int) -> None:  # noqa: ANN401
    for one in schema_of(type(value)).fields:
        inner = getattr(value, one.name)
        if one.is_tagged(version):
            setattr(value, one.name, one.make_default())
        for element in inner if isinstance(inner, list) else [inner]:
            if isinstance(element, Struct):
                forget_tags(element, version)

"""Fast encoding and decoding of messages: ``codec(HeartbeatRequest, 4).decode(frame)``."""

import importlib
import linecache
import struct
import sys
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, Generic, TypeVar

from kohort.protocol.errors import DecodeError
from kohort.protocol.hot import declared, is_hot
from kohort.protocol.message import schema_of

T = TypeVar("T")
_VERSION: Final = struct.Struct(">h")
Buffer = bytes | bytearray | memoryview

STRICT_OPTION: Final = "strict_codecs"
"""The option of `python -X strict_codecs`, with which tests and their brokers run: it raises an
error if a compiled codec rejects data that the generated code accepts, which otherwise only costs
speed, unnoticed."""

GAVE_UP: Final = "the compiled codec gave up on"
"""Beginning of the error message under STRICT_OPTION."""


_IN_ONE_STEP: Final = {
    "decode": "decode",
    "encode_into": "encode_into",
    "decode_in_steps": "decode",
    "encode_in_steps": "encode_into",
}
"""Maps each attribute that is generated on first use to its equivalent that does not yield."""


class Codec(Generic[T]):
    """Reads and writes one message class in one version.

    Each direction is generated when it is first used, since few callers need both. For the messages
    that brokers handle most, the direction that they need is compiled if the package was built with
    a compiler; malformed bytes and unusual values still go to the generated code, so both forms
    have the same results and errors.

    Attributes:
        decode: ``(buffer, position=0) -> (message, end position)``; raises only DecodeError. Bytes
            after the message are not read. Records in the message are views of ``buffer``.
        encode_into: ``(message, out) -> [out, ...]``: appends to the bytearray ``out`` and returns
            it and the buffers that follow it, such as large record payloads, uncopied. Raises
            EncodeError for a value that the version cannot express.
        decode_in_steps, encode_in_steps: the same as generators that yield after each element of an
            array and return the result. A compiled codec is fast enough to be one step.
    """

    __slots__ = (
        "_message",
        "decode",
        "decode_in_steps",
        "encode_in_steps",
        "encode_into",
        "version",
    )
    decode: Callable[..., tuple[T, int]]
    encode_into: Callable[[T, bytearray], list[Buffer]]
    decode_in_steps: Callable[[Buffer, int], Generator[None, None, tuple[T, int]]]
    encode_in_steps: Callable[[T, bytearray], Generator[None, None, list[Buffer]]]

    def __init__(self, message: type[T], version: int) -> None:
        schema = schema_of(message)
        if version not in schema.versions:
            raise ValueError(f"{schema.name} has no version {version}")
        self._message = message
        self.version = version

    def __getattr__(self, name: str) -> Any:
        # Called only for attributes that are not set yet.
        if name not in _IN_ONE_STEP:
            raise AttributeError(name)
        made = None
        in_one_step = _IN_ONE_STEP[name]
        if is_hot(self._message, self.version, in_one_step):
            made = _compiled(self._message, self.version, self.generated)
        if made is None:
            made = self.generated(name)
        elif name != in_one_step:
            made = partial(_one_step, made)
        setattr(self, name, made)
        return made

    def generated(self, name: str) -> Callable[..., Any]:
        """Return the function for the attribute `name`, generated in Python for this layout."""
        # Imports construct, which a broker does not need if compiled codecs suffice.
        from kohort.protocol.compiler import compile_direction  # noqa: PLC0415

        source, names = compile_direction(self._message, self.version, name)
        filename = f"<codec {self._message.__name__} v{self.version} {name}>"
        exec(compile(source, filename, "exec"), names)  # noqa: S102 - written from declarations
        # Tracebacks and debuggers show the generated lines.
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        made: Callable[..., Any] = names[_IN_ONE_STEP[name]]
        return made

    def encode(self, message: T) -> bytes:
        return b"".join(self.encode_into(message, bytearray()))


def _one_step(function: Callable[..., Any], *args: Any) -> Generator[None, None, Any]:
    yield
    return function(*args)


def _compiled(
    message: type, version: int, generated: Callable[[str], Callable[..., Any]]
) -> Callable[..., Any] | None:
    """Return the compiled function that decodes or encodes `message`; None if there is none
    for the present declaration.
    """
    # Imported on first use, so that a broker starts without it.
    try:
        hot_codecs = importlib.import_module("kohort.protocol.hot_codecs")
    except ImportError:
        return None
    taking_over = partial(_taking_over, generated)
    function: Callable[..., Any] | None = hot_codecs.bind(message, version, declared, taking_over)
    return function


def _taking_over(generated: Callable[[str], Callable[..., Any]], name: str) -> Callable[..., Any]:
    """Return a function that runs the generated code on data that the compiled code rejects."""
    made = generated(name)

    def take_over(*args: Any) -> Any:
        result = made(*args)  # Raises if the data is malformed: not the compiled codec's fault.
        is_strict = STRICT_OPTION in sys._xoptions  # noqa: SLF001 - that is how -X is read
        message = result[0] if name == "decode" else args[0]
        assert not is_strict, f"{GAVE_UP} {message!r:.999}"
        return result

    return take_over


_codecs: Final[dict[tuple[type, int], Codec[Any]]] = {}


def codec(message: type[T], version: int) -> Codec[T]:
    """Return the codec of ``message`` in ``version``, generated on first use and cached.

    Raises:
        ValueError: ``message`` has no such version.
    """
    found = _codecs.get((message, version))
    if found is None:
        found = _codecs[message, version] = Codec(message, version)
    return found


def encode_versioned(message: Any, version: int) -> bytes:
    """Encode a data record as Kafka stores it: int16 version, then the record in that version."""
    out = bytearray(_VERSION.pack(version))
    return b"".join(codec(type(message), version).encode_into(message, out))


def decode_versioned(
    message: type[T], buffer: Buffer, *, newer_is_readable: bool = False
) -> tuple[T, int]:
    """Read a version-prefixed record; return it and its version.

    Args:
        newer_is_readable: newer versions only append fields (the consumer protocol's rule), so an
            unknown version is read as the newest known one.

    Raises:
        DecodeError: malformed, or a version that cannot be read.
    """
    if len(buffer) < 2:
        raise DecodeError("no room for a version")
    version = int.from_bytes(buffer[:2], "big", signed=True)
    versions = schema_of(message).versions
    readable = min(version, versions.high) if newer_is_readable else version
    if readable not in versions:
        raise DecodeError(f"{message.__name__} has no version {version}")
    return codec(message, readable).decode(buffer, 2)[0], version

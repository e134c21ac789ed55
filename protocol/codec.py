"""The fast way between messages and bytes: ``codec(HeartbeatRequest, 4).decode(frame)``."""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from protocol.compiler import compile_codec
from protocol.errors import DecodeError
from protocol.layout import layout
from protocol.message import schema_of

T = TypeVar("T")
_VERSION: Final = struct.Struct(">h")
Buffer = bytes | bytearray | memoryview


class Codec(Generic[T]):
    """Reads and writes one message class in one version.

    Attributes:
        decode: ``(buffer, position=0) -> (message, end position)``; raises only DecodeError. Bytes
            after the message are left alone. Records in the message are views of ``buffer``.
        encode_into: ``(message, out) -> [out, ...]``: appends to the bytearray ``out`` and returns
            it with the buffers that follow it, large record payloads among them uncopied. Raises
            EncodeError for a value that the version cannot express.
    """

    __slots__ = ("decode", "encode_into", "version")

    def __init__(self, message: type[T], version: int) -> None:
        self.version = version
        source, names = compile_codec(layout(message, version))
        filename = f"<codec {message.__name__} v{version}>"
        exec(compile(source, filename, "exec"), names)  # noqa: S102 - written from declarations
        # Tracebacks and debuggers show the generated lines.
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        self.decode: Callable[..., tuple[T, int]] = names["decode"]
        self.encode_into: Callable[[T, bytearray], list[Buffer]] = names["encode"]

    def encode(self, message: T) -> bytes:
        """The message as one bytes object."""
        return b"".join(self.encode_into(message, bytearray()))

    def encode_parts(self, message: T) -> Sequence[Buffer]:
        """The message as a list of buffers, large record payloads uncopied."""
        return self.encode_into(message, bytearray())


_codecs: Final[dict[tuple[type, int], Codec[Any]]] = {}


def codec(message: type[T], version: int) -> Codec[T]:
    """The codec of ``message`` in ``version``, generated on first use and kept.

    Raises:
        ValueError: ``message`` has no such version.
    """
    found = _codecs.get((message, version))
    if found is None:
        found = _codecs[message, version] = Codec(message, version)
    return found


def encode_versioned(message: Any, version: int) -> bytes:
    """A data record as stored in Kafka: int16 version, then the record in that version."""
    out = bytearray(_VERSION.pack(version))
    return b"".join(codec(type(message), version).encode_into(message, out))


def decode_versioned(
    message: type[T], buffer: Buffer, *, newer_is_readable: bool = False
) -> tuple[T, int]:
    """Read a version-prefixed record; return it and its version.

    Args:
        newer_is_readable: newer versions only append (the consumer protocol's rule), so one that we
            do not know is read as the newest that we do.

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

"""Compiles a construct layout to straight-line Python that reads and writes it.

One function per direction, with nested structures and arrays written inline, runs of fixed-width
fields (classic length prefixes included) read by a single precompiled ``struct``, and every length
and count checked against the remaining bytes before it is used. construct's own compiler is no
substitute: it omits length checks, without which bytes from a socket must not be parsed.

The generated reader raises only :class:`~kohort.protocol.errors.DecodeError`, builds at most
``ELEMENTS_MAX`` array elements per message, and allocates nothing for a count that exceeds the
buffer.
"""

import struct
from typing import Any, Final

from kohort.protocol.compiler.decoder import DecoderWriter
from kohort.protocol.compiler.encoder import EncoderWriter
from kohort.protocol.errors import DecodeError, EncodeError
from kohort.protocol.layout import layout
from kohort.protocol.records.varint import append_uvarint, read_uvarint
from kohort.protocol.tags import skip_tags

_OF_DECODERS: Final = {
    "DecodeError": DecodeError,
    "read_uvarint": read_uvarint,
    "skip_tags": skip_tags,
    "struct_error": struct.error,
    "unpack_array": struct.unpack_from,
    "new": object.__new__,
}
_OF_ENCODERS: Final = {
    "EncodeError": EncodeError,
    "append_uvarint": append_uvarint,
    "struct_error": struct.error,
    "pack_array": struct.pack,
}


def compile_direction(message: type, version: int, name: str) -> tuple[str, dict[str, Any]]:
    """Return the source of one function, `name`, of `message`'s codec, and its globals."""
    is_decoder, in_steps = name.startswith("decode"), name.endswith("_in_steps")
    names: dict[str, Any] = dict(_OF_DECODERS if is_decoder else _OF_ENCODERS)
    writer = (DecoderWriter if is_decoder else EncoderWriter)(names, in_steps=in_steps)
    return writer.function(layout(message, version)), names

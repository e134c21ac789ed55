"""Compiles a construct layout to straight-line Python that reads and writes it.

One function per direction, with nested structures and arrays written inline, runs of fixed-width
fields (classic length prefixes included) read by a single precompiled ``struct``, and every length
and count checked against what is left before it is used. construct's own compiler is no substitute:
it drops length checks, which bytes from a socket must not be trusted without.

The reader promises: only :class:`~kohort.protocol.errors.DecodeError` comes out, at most
``ELEMENTS_MAX`` array elements are built per message, nothing is allocated for a count that the
buffer cannot hold.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kohort.protocol.compiler.decoder import DecoderWriter
from kohort.protocol.compiler.encoder import EncoderWriter
from kohort.protocol.constructs import MessageStruct
from kohort.protocol.errors import DecodeError, EncodeError
from kohort.protocol.layout import layout
from kohort.protocol.varints import append_uvarint, read_uvarint, skip_tags


def compile_decoder(con: MessageStruct, *, in_steps: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the source of ``decode`` for a layout, and the globals it runs with.

    Args:
        in_steps: generate a generator that yields after each element of an array.
    """
    names: dict[str, Any] = {
        "DecodeError": DecodeError,
        "read_uvarint": read_uvarint,
        "skip_tags": skip_tags,
        "struct_error": struct.error,
        "unpack_array": struct.unpack_from,
        "new": object.__new__,
    }
    return DecoderWriter(names, in_steps=in_steps).function(con), names


def compile_encoder(con: MessageStruct, *, in_steps: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the source of ``encode_into`` for a layout, and the globals it runs with.

    Args:
        in_steps: generate a generator that yields after each element of an array.
    """
    names: dict[str, Any] = {
        "EncodeError": EncodeError,
        "append_uvarint": append_uvarint,
        "struct_error": struct.error,
        "pack_array": struct.pack,
    }
    return EncoderWriter(names, in_steps=in_steps).function(con), names


_COMPILERS: Final[dict[str, Callable[[MessageStruct], tuple[str, dict[str, Any]]]]] = {
    "decode": compile_decoder,
    "encode_into": compile_encoder,
    "decode_in_steps": partial(compile_decoder, in_steps=True),
    "encode_in_steps": partial(compile_encoder, in_steps=True),
}


def compile_direction(message: type, version: int, name: str) -> tuple[str, dict[str, Any]]:
    """Return the source of an attribute of `message`'s codec, and the globals it runs with."""
    return _COMPILERS[name](layout(message, version))

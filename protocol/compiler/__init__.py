"""From a construct layout to straight-line Python that reads and writes it.

One function per direction, with nested structures and arrays written inline, runs of fixed-width
fields (classic length prefixes included) read by a single precompiled ``struct``, and every length
and count checked against what is left before it is used. construct's own compiler is no substitute:
it drops length checks, which bytes from a socket must not be trusted without.

The reader promises: only :class:`~protocol.errors.DecodeError` comes out, at most ``ELEMENTS_MAX``
array elements are built per message, nothing is allocated for a count that the buffer cannot hold.
"""

from __future__ import annotations

import struct
from typing import Any

from protocol.compiler.decoder import DecoderWriter
from protocol.compiler.encoder import EncoderWriter
from protocol.constructs import MessageStruct
from protocol.errors import DecodeError, EncodeError
from protocol.varints import append_uvarint, read_uvarint, skip_tags


def compile_codec(con: MessageStruct) -> tuple[str, dict[str, Any]]:
    """Source of ``decode`` and ``encode`` for a layout, and the globals it runs with."""
    names: dict[str, Any] = {
        "DecodeError": DecodeError,
        "EncodeError": EncodeError,
        "append_uvarint": append_uvarint,
        "read_uvarint": read_uvarint,
        "skip_tags": skip_tags,
        "struct_error": struct.error,
        "unpack_array": struct.unpack_from,
        "pack_array": struct.pack,
        "new": object.__new__,
    }
    source = DecoderWriter(names).function(con) + "\n\n\n" + EncoderWriter(names).function(con)
    return source, names

"""Requests as bytes that are made once, and answers as messages where somebody wants to look."""

import socket
import struct
from typing import Any, Final, TypeVar

from kohort.protocol.codec import codec
from kohort.protocol.message import schema_of

T = TypeVar("T")

CLIENT_ID: Final = b"bench"
RECEIVE_BYTES: Final = 1 << 18
_HEADER: Final = struct.Struct(">ihhih")


def is_flexible(message: type, version: int) -> bool:
    """Whether headers before this message have tags."""
    return schema_of(message).is_flexible(version)


def request_frame(request: Any, version: int, correlation_id: int = 1) -> bytes:  # noqa: ANN401
    """Size, header and body."""
    key = schema_of(type(request)).key
    tags = b"\0" if is_flexible(type(request), version) else b""
    body = tags + codec(type(request), version).encode(request)
    size = _HEADER.size - 4 + len(CLIENT_ID) + len(body)
    return _HEADER.pack(size, key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID + body


def read_answer(frame: bytes | bytearray, message: type[T], version: int) -> T:
    """The message in a whole answer, its size included.

    Raises RuntimeError if something else is there as well.
    """
    size = int.from_bytes(frame[:4], "big")
    # ApiVersions is answered without tags, so that everybody can read it.
    has_tags = is_flexible(message, version) and schema_of(message).key != 18
    answer, end = codec(message, version).decode(bytes(frame), 9 if has_tags else 8)
    if size + 4 != len(frame) or end != len(frame):
        raise RuntimeError(f"{message.__name__} with {len(frame) - end} bytes too many")
    return answer


def receive_frame(connection: socket.socket) -> bytes:
    """One whole answer, its size included. Blocks."""
    return receive_rest(connection, b"")


def receive_rest(connection: socket.socket, received: bytes) -> bytes:
    """The whole answer that `received` is the beginning of. Blocks."""
    frame = bytearray(received)
    while (missing := _missing(frame)) > 0:
        more = connection.recv(missing)
        if not more:
            raise RuntimeError("the broker closed the connection")
        frame += more
    return bytes(frame)


def _missing(frame: bytearray) -> int:
    return 4 - len(frame) if len(frame) < 4 else int.from_bytes(frame[:4], "big") + 4 - len(frame)


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(connection: socket.socket, request: Any, answer: type[T], version: int) -> T:  # noqa: ANN401
    """One request and its answer. Blocks."""
    connection.sendall(request_frame(request, version))
    return read_answer(receive_frame(connection), answer, version)

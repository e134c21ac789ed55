"""Requests as bytes that are made once, and answers as messages where somebody wants to look."""

import socket
from typing import Any, Final, TypeVar

from kohort.protocol.framing import ExpectedAnswer, decode_response_at, encode_request

T = TypeVar("T")

CLIENT_ID: Final = "bench"
RECEIVE_BYTES: Final = 1 << 18


def request_frame(request: object, version: int, correlation_id: int = 1) -> bytes:
    """Size, header and body."""
    return b"".join(encode_request(request, version, correlation_id, CLIENT_ID)[0])


def read_answer(frame: bytes | bytearray, message: type[T], version: int) -> T:
    """The message in a whole answer, its size included.

    Raises RuntimeError if something else is there as well.
    """
    size = int.from_bytes(frame[:4], "big")
    expected = ExpectedAnswer(int.from_bytes(frame[4:8], "big"), message, version)
    answer: T
    answer, end = decode_response_at(bytes(frame), 4, expected)
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

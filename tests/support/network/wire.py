"""Requests and responses as bytes, and a client that sends exactly what a test says."""

import socket
import struct
from typing import Self, TypeVar

from kohort.protocol.codec import codec
from kohort.protocol.framing import API_VERSIONS_KEY, ExpectedAnswer, decode_response_at
from kohort.protocol.message import RESPONSES, schema_of
from kohort.protocol.messages.api_versions import ApiVersionsRequest

T = TypeVar("T")

TIMEOUT_S = 30


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(
    key: int,
    version: int,
    *,
    correlation_id: int = 1,
    client_id: bytes | None = b"test",
    tags: bytes = b"",
) -> bytes:
    """A request header; flexible versions want `tags`, b"\\x00" for none."""
    length = -1 if client_id is None else len(client_id)
    prefix = struct.pack(">hhih", key, version, correlation_id, length)
    return prefix + (client_id or b"") + tags


def request_body(
    request: object, version: int, *, correlation_id: int = 1, client_id: bytes | None = b"test"
) -> bytes:
    """Header and body of a request, without the frame's size; the client id may be no text."""
    schema = schema_of(type(request))
    assert schema.key is not None
    tags = b"\x00" if schema.is_flexible(version) else b""
    begin = header(
        schema.key, version, correlation_id=correlation_id, client_id=client_id, tags=tags
    )
    return begin + codec(type(request), version).encode(request)


def response_in(
    body: bytes, response: type[T], version: int, *, correlation_id: int | None = 1
) -> T:
    """The response in a frame; checks that it fills it and answers the right request."""
    (answered,) = struct.unpack_from(">i", body)
    assert correlation_id in {None, answered}
    message: T
    message, end = decode_response_at(body, 0, ExpectedAnswer(answered, response, version))
    assert end == len(body)
    return message


class RawClient:
    """One connection. Blocking; a broker that does not answer in time fails the test."""

    def __init__(
        self, port: int, *, host: str = "127.0.0.1", source: str = "", timeout_s: float = TIMEOUT_S
    ) -> None:
        """`source` is the address to connect from, where it matters."""
        self.socket = socket.create_connection(
            (host, port), timeout=timeout_s, source_address=(source, 0) if source else None
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def ask(self, request: object, version: int, *, correlation_id: int = 1) -> bytes:
        self.send(framed(request_body(request, version, correlation_id=correlation_id)))
        return self.receive()

    def call(self, request: object, version: int, response: type[T]) -> T:
        return response_in(self.ask(request, version), response, version)

    def is_answered(self) -> bool:
        """Whether this connection still gets answers."""
        answer = self.ask(ApiVersionsRequest(), 0)
        return response_in(answer, RESPONSES[API_VERSIONS_KEY], 0) is not None

    def is_closed(self) -> bool:
        """Whether the broker has closed the connection without another answer."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive_exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self.socket.recv(min(size - len(received), 1 << 20))
            if not piece:
                raise ConnectionResetError("closed by the broker")
            received += piece
        return bytes(received)

"""One connection to one broker: a request, its answer, the next request.

Versions are agreed upon first (ApiVersions), so that brokers of all times are understood. Bytes
from the other side are bounded and checked as the broker checks its clients'.
"""

import socket
import struct
from types import TracebackType
from typing import Final, Self, TypeVar

from kohort.protocol.codec import codec
from kohort.protocol.errors import DecodeError
from kohort.protocol.framing import API_VERSIONS_KEY, skip_header_tags
from kohort.protocol.message import schema_of
from kohort.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

T = TypeVar("T")

CLIENT_ID: Final = "kohort-cli"
FRAME_BYTES_MAX: Final = 256 << 20
"""An answer longer than this is not Kafka's: Kafka's own clients stop at 100 MB by default."""

_SIZE: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhih")


class UnreachableError(Exception):
    """A broker does not answer, or not as a Kafka broker does; the text says which and how."""


class Connection:
    """See the module. Every wait ends after `timeout_s`."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        """Raises UnreachableError."""
        self.address = f"{host}:{port}"
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {API_VERSIONS_KEY: (0, 0)}
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except (OSError, UnicodeError) as error:
            raise self._unreachable(error) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Version 0 is what every broker of every time understands.
            answer = self.call(ApiVersionsRequest(), ApiVersionsResponse)
        except BaseException:
            self.close()
            raise
        self._versions = {
            api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def version_of(self, request: type[object], at_most: int | None = None) -> int:
        """The newest version of a request that both sides know.

        Raises:
            UnreachableError: there is none.
        """
        schema = schema_of(request)
        assert schema.key is not None
        low, high = self._versions.get(schema.key, (0, -1))
        newest = min(high, schema.versions.high if at_most is None else at_most)
        if newest < max(low, schema.versions.low):
            name = request.__name__.removesuffix("Request")
            raise UnreachableError(f"{self.address} has no version of {name} that is known here")
        return newest

    def call(self, request: object, response: type[T], *, at_most: int | None = None) -> T:
        """The answer to `request`, in a version of `at_most` or, without it, the newest.

        Raises:
            UnreachableError: no answer, or not one.
        """
        version = self.version_of(type(request), at_most)
        try:
            self._send(request, version)
            return self._receive(response, version)
        except (OSError, DecodeError) as error:
            raise self._unreachable(error) from error

    def _send(self, request: object, version: int) -> None:
        schema = schema_of(type(request))
        assert schema.key is not None
        self._correlation_id += 1
        client_id = CLIENT_ID.encode()
        head = _HEADER.pack(schema.key, version, self._correlation_id, len(client_id)) + client_id
        tags = b"\0" if schema.is_flexible(version) else b""
        body = head + tags + codec(type(request), version).encode(request)
        self._socket.sendall(_SIZE.pack(len(body)) + body)

    def _receive(self, response: type[T], version: int) -> T:
        (size,) = _SIZE.unpack(self._receive_exactly(_SIZE.size))
        if not 4 <= size <= FRAME_BYTES_MAX:
            raise DecodeError(f"an answer of {size} bytes")
        body = self._receive_exactly(size)
        if _SIZE.unpack_from(body) != (self._correlation_id,):
            raise DecodeError("an answer to something else")
        schema = schema_of(response)
        has_tags = schema.is_flexible(version) and schema.key != API_VERSIONS_KEY
        position = skip_header_tags(body, 4) if has_tags else 4
        message, end = codec(response, version).decode(body, position)
        if end != len(body):
            raise DecodeError(f"{len(body) - end} bytes too many")
        return message

    def _receive_exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(min(size - len(received), 1 << 20))
            if not piece:
                raise ConnectionError("the connection was closed")
            received += piece
        return bytes(received)

    def _unreachable(self, error: Exception) -> UnreachableError:
        if isinstance(error, TimeoutError):
            return UnreachableError(f"{self.address} does not answer in time")
        if isinstance(error, DecodeError):
            return UnreachableError(f"{self.address} does not answer as a Kafka broker: {error}")
        reason = getattr(error, "strerror", None) or str(error)
        return UnreachableError(f"{self.address} cannot be reached: {reason}")

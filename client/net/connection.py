"""One connection to one broker: requests out, answers in, in the same order.

Requests may follow each other without waiting. What a request waits for ends in one of three ways:
the answer, `DisconnectedError`, or the caller's own timeout, after which the connection is of no
use any more, because the late answer would stand before all others.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any, Final, TypeVar

from client.core.errors import ConsumerError
from client.net.frame_codec import Expected, decode_response, encode_request
from client.net.frames import FrameReader
from client.net.versions import ApiVersionTable
from protocol.errors import DecodeError, ErrorCode
from protocol.lazy_dataclass import dataclass
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

T = TypeVar("T")

SOFTWARE_NAME: Final = "kohort-python"


class DisconnectedError(ConsumerError):
    """The connection could not be made, or ended before the answer came."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.NETWORK_EXCEPTION)


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """What all connections of a client have in common."""

    client_id: str = "kohort"
    software_version: str = "0"
    request_timeout_ms: int = 30_000
    ssl_context: ssl.SSLContext | None = None


class Connection(asyncio.BufferedProtocol):
    """Made by `open_connection`."""

    def __init__(self, address: str, config: ConnectionConfig) -> None:
        self.address = address
        self.versions = ApiVersionTable()
        self._config = config
        self._frames = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[Expected, asyncio.Future[Any]]] = deque()
        self._next_correlation_id = 0
        self._why_closed: str | None = None
        self._is_lost = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return self._why_closed is not None

    @property
    def in_flight_count(self) -> int:
        """Requests that wait for their answer."""
        return len(self._waiting)

    def close(self, why: str = "closed by this client") -> None:
        """End it; whoever waits gets a DisconnectedError."""
        if self._why_closed is None:
            self._why_closed = why
        if self._transport is not None:
            self._transport.abort()
        self._fail_all()

    async def wait_closed(self) -> None:
        """Until the socket is given back."""
        await self._is_lost.wait()

    async def call(
        self,
        request: object,
        *,
        version: int | None = None,
        at_most: int | None = None,
        timeout_ms: int | None = None,
    ) -> Any:  # noqa: ANN401 - the response that belongs to the request.
        """Send a request and wait for its answer.

        Args:
            version: to be sent; by default the best that both sides know, and `at_most` at most.
            timeout_ms: instead of `request_timeout_ms`.

        Raises:
            DisconnectedError: there will be no answer, or there was none in time.
            UnsupportedVersionError: no version in common.
        """
        future = self.send(request, version=version, at_most=at_most)
        timeout_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            self.close(f"no answer to {type(request).__name__} within {timeout_ms} ms")
            raise DisconnectedError(f"{self.address}: {self._why_closed}") from None

    def send(
        self, request: object, *, version: int | None = None, at_most: int | None = None
    ) -> asyncio.Future[Any]:
        """As `call`, without waiting, and without a timeout."""
        if version is None:
            version = self.versions.best(type(request), at_most)
        if self._why_closed is not None or self._transport is None:
            raise DisconnectedError(f"{self.address}: {self._why_closed or 'not connected'}")
        self._next_correlation_id = self._next_correlation_id + 1 & 0x7FFF_FFFF
        parts, expected = encode_request(
            request, version, self._next_correlation_id, self._config.client_id
        )
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((expected, future))
        self._transport.writelines(parts)
        return future

    # Of the protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._take(frame)
        except (ValueError, DecodeError) as error:
            self.close(f"the broker sent what cannot be understood: {error}")

    def _take(self, frame: bytes | bytearray) -> None:
        if not self._waiting:
            raise ValueError("an answer that nobody asked for")
        expected, future = self._waiting.popleft()
        try:
            message = decode_response(frame, expected)
        except DecodeError as error:
            if not future.done():
                future.set_exception(DisconnectedError(f"{self.address}: {error}"))
            raise
        if not future.done():
            future.set_result(message)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._why_closed is None:
            self._why_closed = str(exc) if exc else "closed by the broker"
        self._fail_all()
        self._is_lost.set()

    def _fail_all(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(DisconnectedError(f"{self.address}: {self._why_closed}"))
                # Nobody may be waiting any more.
                future.exception()


async def open_connection(host: str, port: int, config: ConnectionConfig) -> Connection:
    """Connect, and learn what the broker speaks.

    Raises:
        DisconnectedError: it does not answer, or not as a Kafka broker.
    """
    address = f"{host}:{port}"
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(config.request_timeout_ms / 1000):
            _, connection = await loop.create_connection(
                lambda: Connection(address, config), host, port, ssl=config.ssl_context
            )
    except (OSError, TimeoutError) as error:
        text = str(error) or "no answer"
        raise DisconnectedError(f"{address} cannot be reached: {text}") from error
    try:
        connection.versions = await _ask_versions(connection, config)
    except BaseException:
        connection.close()
        await connection.wait_closed()
        raise
    return connection


async def _ask_versions(connection: Connection, config: ConnectionConfig) -> ApiVersionTable:
    """A broker that is too old for our question answers in version 0, with its error in it."""
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=config.software_version
    )
    answer: ApiVersionsResponse = await connection.call(request, version=3)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        answer = await connection.call(request, version=0)
    if answer.error_code:
        raise DisconnectedError(
            f"{connection.address}: ApiVersions: {ErrorCode(answer.error_code).name}"
        )
    return ApiVersionTable(
        {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    )

"""One connection to one broker: pipelined requests, answered in order.

Waiting for a response ends in one of three ways: with the response, a `DisconnectedError`, or the
caller's own timeout. After a timeout the connection is unusable, because the late response would
come before all others.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from kohort.client.net.config import ConnectionConfig
from kohort.client.net.errors import DisconnectedError, connect_error
from kohort.client.net.frames import FRAME_BYTES_MAX, FrameReader
from kohort.client.net.greeting import (
    NONCE_BYTES,
    RETIRE_AT,
    RETIRE_JITTER,
    Ask,
    Greeted,
    Greeting,
    advance,
    greeting,
    retire_after_s,
)
from kohort.client.net.security import SASL_HINT, tls_error
from kohort.client.net.thread_call import run_in_thread
from kohort.client.net.versions import ApiVersionTable
from kohort.protocol.errors import DecodeError
from kohort.protocol.framing import ExpectedAnswer, decode_response, encode_request

NEXT_ADDRESS_S: Final = 0.25
"""How long to wait for one address of a host before the next one is tried in parallel, as RFC 8305
proposes."""

QUIET_ROUNDS: Final = 3
"""Loop iterations without data after which nothing is considered pending. Event loops may handle
timers before sockets or after them."""


class BrokerConnection(asyncio.BufferedProtocol):
    """A connection; created by `open_connection`."""

    def __init__(self, address: str, config: ConnectionConfig) -> None:
        self.address = address
        self.versions = ApiVersionTable()
        self.received_bytes = 0
        """Bytes received so far."""
        self.on_received: Callable[[int], None] | None = None
        """Called with the number of bytes whenever data arrives."""
        self._config = config
        self._frames = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[ExpectedAnswer, asyncio.Future[Any]]] = deque()
        self._next_correlation_id = 0
        self._why_closed: str | None = None
        self._lost_by: Exception | None = None
        self._is_lost = asyncio.Event()
        self._is_untried = False
        """Nothing but the handshake has been answered yet."""
        self._is_retiring = False
        self._is_ending = False
        self._timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._used_s = 0.0
        """When a request was last sent or answered, on the loop's clock."""

    @property
    def is_closed(self) -> bool:
        return self._why_closed is not None

    @property
    def is_retiring(self) -> bool:
        """Whether its session ends soon: requests still succeed,
        but a new connection is preferred.
        """
        return self._is_retiring

    @property
    def in_flight_count(self) -> int:
        """The number of requests without a response."""
        return len(self._waiting)

    def close(self, why: str = "closed by this client") -> None:
        """Close the connection; pending requests fail with a DisconnectedError."""
        if self._why_closed is None:
            self._why_closed = why
        if self._transport is not None:
            self._transport.abort()
        self._fail_all()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed."""
        await self._is_lost.wait()

    async def call(
        self,
        request: object,
        *,
        version: int | None = None,
        at_most: int | None = None,
        timeout_ms: int | None = None,
    ) -> Any:  # noqa: ANN401 - the response that belongs to the request.
        """Send a request and wait for its response.

        Args:
            version: the version to send; by default the highest that both sides support, limited by
                `at_most`.
            timeout_ms: overrides `request_timeout_ms`.

        Raises:
            DisconnectedError: the connection was lost, or there was no response in time.
            UnsupportedVersionError: no version in common.
        """
        future = self.send(request, version=version, at_most=at_most)
        return await self.answer(future, type(request), timeout_ms)

    async def answer(
        self, future: asyncio.Future[Any], request: type, timeout_ms: int | None = None
    ) -> Any:  # noqa: ANN401 - as above.
        """Wait for the response to a request made by `send`. Raises a DisconnectedError,
        as `call`.
        """
        timeout_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            await asyncio.wait([future], timeout=timeout_ms / 1000)
            if not future.done():
                await self._receive(future)
        except asyncio.CancelledError:
            future.cancel()
            raise
        if not future.done():
            future.cancel()
            self.close(f"no answer to {request.__name__} within {timeout_ms} ms")
            raise DisconnectedError(f"{self.address}: {self._why_closed}")
        return future.result()

    async def _receive(self, future: asyncio.Future[Any]) -> None:
        """Receive what the kernel has buffered before declaring a timeout.

        If the application blocks the event loop for longer than the timeout, the timeout expires
        before any data is read, although the response may have arrived in time.
        """
        quiet_rounds = 0
        while quiet_rounds < QUIET_ROUNDS and not future.done():
            had = self.received_bytes
            await asyncio.sleep(0)
            quiet_rounds = 0 if self.received_bytes > had else quiet_rounds + 1

    def send(
        self, request: object, *, version: int | None = None, at_most: int | None = None
    ) -> asyncio.Future[Any]:
        """Send a request as `call` does, without waiting; pass the future to `answer` for a
        timeout.
        """
        if version is None:
            version = self.versions.best(type(request), at_most)
        if self._why_closed is not None or self._transport is None:
            raise DisconnectedError(f"{self.address}: {self._why_closed or 'not connected'}")
        self._next_correlation_id = self._next_correlation_id + 1 & 0x7FFF_FFFF
        parts, expected = encode_request(
            request, version, self._next_correlation_id, self._config.client_id
        )
        loop = asyncio.get_running_loop()
        self._used_s = loop.time()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((expected, future))
        self._transport.writelines(parts)
        return future

    async def greet(self) -> None:
        """Negotiate versions and authenticate. To be called once, before all other requests.

        Raises:
            DisconnectedError: the broker's response is invalid, or it closed the connection.
            AuthenticationError: the broker rejects the credentials.
        """
        steps = greeting(
            self.address,
            self._config.security,
            software_version=self._config.software_version,
            nonce=secrets.token_urlsafe(NONCE_BYTES),
        )
        answer: object = None
        try:
            while not isinstance(asked := await self._advance(steps, answer), Greeted):
                answer = await self.call(asked.request, version=asked.version)
        except DecodeError as error:
            raise DisconnectedError(f"{self.address}: {error}") from error
        except DisconnectedError as error:
            if isinstance(self._lost_by, ssl.SSLError):
                raise tls_error(self.address, self._lost_by) or error from error
            raise
        self.versions = asked.versions
        self._frames.bytes_max = FRAME_BYTES_MAX
        self._is_untried = True
        self._watch_idleness()
        if asked.session_lifetime_ms:
            self._limit_lifetime(asked.session_lifetime_ms / 1000)

    async def _advance(self, steps: Greeting, answer: object) -> Ask | Greeted:
        """Advance the handshake. SCRAM hashes the password,
        which takes up to a tenth of a second.
        """
        if answer is None or not self._config.security.uses_scram:
            return advance(steps, answer)
        return await run_in_thread(lambda: advance(steps, answer), "prove a password")

    def _limit_lifetime(self, lifetime_s: float) -> None:
        def retire() -> None:
            self._is_retiring = True
            # Callers that hold this connection still have some time to use it.
            left_s = lifetime_s * (1 - RETIRE_AT - RETIRE_JITTER)
            self._timer = loop.call_later(left_s, end)

        def end() -> None:
            self._is_ending = True
            self._end_if_idle()

        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(retire_after_s(lifetime_s), retire)

    def _watch_idleness(self) -> None:
        """Close the connection if it has been idle for too long; else check again when that may be
        the case.
        """
        max_idle_s = self._config.max_idle_ms / 1000
        if max_idle_s < 0 or self.is_closed:
            return
        loop = asyncio.get_running_loop()
        idle_s = 0.0 if self._waiting else loop.time() - self._used_s
        if idle_s >= max_idle_s:
            self.close(f"idle for {idle_s:.0f} s")
            return
        # At least a millisecond, in case the clock is rounded.
        self._idle_timer = loop.call_later(max(max_idle_s - idle_s, 0.001), self._watch_idleness)

    def _end_if_idle(self) -> None:
        if self._is_ending and not self._waiting:
            self.close("the session's lifetime is over")

    # asyncio.BufferedProtocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transport implements asyncio.Transport without deriving from it.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.received_bytes += nbytes
        if self.on_received is not None:
            self.on_received(nbytes)
        try:
            for frame in self._frames.received(nbytes):
                self._take(frame)
        except (ValueError, DecodeError) as error:
            self.close(f"the broker sent what cannot be understood: {error}")

    def _take(self, frame: bytes | bytearray) -> None:
        if not self._waiting:
            raise ValueError("an answer to no request")
        expected, future = self._waiting.popleft()
        try:
            message = decode_response(frame, expected)
        except DecodeError as error:
            if not future.done():
                future.set_exception(DisconnectedError(f"{self.address}: {error}"))
            raise
        if not future.done():
            future.set_result(message)
        self._used_s = asyncio.get_running_loop().time()
        self._is_untried = False
        self._end_if_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost_by = exc
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        if self._why_closed is None:
            self._why_closed = str(exc) if exc else "closed by the broker"
            if self._waiting and self._is_untried and not self._config.security.uses_sasl:
                self._why_closed += SASL_HINT
        self._fail_all()
        self._is_lost.set()

    def _fail_all(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(DisconnectedError(f"{self.address}: {self._why_closed}"))
                # Mark the exception as retrieved: the caller may not be waiting any more.
                future.exception()


async def open_connection(host: str, port: int, config: ConnectionConfig) -> BrokerConnection:
    """Connect, negotiate versions and authenticate.

    Raises:
        DisconnectedError: no response, or not that of a Kafka broker.
        AuthenticationError: the broker rejects the credentials, or fails to prove its identity.
    """
    address = f"{host}:{port}"
    connection: BrokerConnection | None = None
    try:
        async with asyncio.timeout(config.request_timeout_ms / 1000):
            connection = await _connect(host, port, config)
            await connection.greet()
    except BaseException as error:
        if connection is not None:
            connection.close()
            await connection.wait_closed()
        if isinstance(error, TimeoutError):
            raise DisconnectedError(
                f"{address} cannot be reached: no answer within {config.request_timeout_ms} ms"
            ) from None
        raise
    return connection


async def _connect(host: str, port: int, config: ConnectionConfig) -> BrokerConnection:
    """Connect to whichever of the host's addresses answers first (RFC 8305).

    Attempts start one after another, NEXT_ADDRESS_S apart, or as soon as the previous one has
    failed.
    """
    address = f"{host}:{port}"
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise connect_error(address, error, config.security) from error
    places = list(dict.fromkeys(info[4][:2] for info in infos))
    attempts: set[asyncio.Task[BrokerConnection]] = set()
    failure: OSError = OSError("the name has no address")
    try:
        while places or attempts:
            if places:
                ip, port_found = places.pop(0)
                attempt = _connect_to(str(ip), int(port_found), address, host, config)
                attempts.add(asyncio.create_task(attempt, name=f"connect to {ip}"))
            done, _ = await asyncio.wait(
                attempts,
                timeout=NEXT_ADDRESS_S if places else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for one in done:
                attempts.remove(one)
                try:
                    return one.result()
                except OSError as error:
                    failure = error
    finally:
        await _give_up(attempts)
    if isinstance(failure, TimeoutError):
        raise DisconnectedError(f"{address} cannot be reached: no answer") from None
    raise connect_error(address, failure, config.security) from failure


async def _connect_to(
    ip: str, port: int, address: str, host: str, config: ConnectionConfig
) -> BrokerConnection:
    context = config.security.tls_context
    async with asyncio.timeout(config.connect_timeout_ms / 1000):
        transport, connection = await asyncio.get_running_loop().create_connection(
            lambda: BrokerConnection(address, config),
            ip,
            port,
            ssl=context,
            server_hostname=host if context is not None else None,
        )
    found = transport.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connection


async def _give_up(attempts: Iterable[asyncio.Task[BrokerConnection]]) -> None:
    """Cancel the other attempts, and close connections that they have opened."""
    for attempt in attempts:
        attempt.cancel()
    for made in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(made, BrokerConnection):
            made.close()

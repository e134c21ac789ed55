"""One connection to one broker: pipelines requests, whose responses arrive in order.

A wait for a response ends with the response, a `DisconnectedError`, or the caller's timeout. After
a timeout the connection is unusable, because the late response would precede all others.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, cast

from kohort.client.core.errors import AuthenticationError, ConsumerError, TokenError
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.frames import FRAME_BYTES_MAX, FrameReader
from kohort.client.net.greeting import (
    NONCE_BYTES,
    Ask,
    Greeted,
    Greeting,
    Session,
    advance,
    authentication,
    greeting,
)
from kohort.client.net.loop_tokens import token_for
from kohort.client.net.oauth import OAuthToken
from kohort.client.net.security import SASL_HINT, tls_error
from kohort.client.net.thread_call import run_in_thread
from kohort.client.net.versions import ApiVersionTable
from kohort.protocol.codec import Buffer
from kohort.protocol.errors import DecodeError
from kohort.protocol.framing import ExpectedAnswer, decode_response, encode_request

logger = logging.getLogger(__name__)

QUIET_ROUNDS: Final = 3
"""After this many event loop iterations without data, the socket counts as drained. One is not
enough: a loop may run the waiting task before it reads sockets."""


class _Outgoing(NamedTuple):
    parts: Sequence[Buffer]
    expected: ExpectedAnswer
    future: asyncio.Future[Any]


class BrokerConnection(asyncio.BufferedProtocol):
    def __init__(self, address: str, config: ConnectionConfig) -> None:
        self.address = address
        self.versions = ApiVersionTable()
        self.received_bytes = 0
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
        """True from the end of the handshake until the next response."""
        self._session = Session()
        self._renewing: asyncio.Task[None] | None = None
        """The task that reauthenticates; None if none is running."""
        self._held: deque[_Outgoing] | None = None
        """Requests held back during reauthentication; None: requests are sent at once."""
        self._is_negotiating = False
        """Whether no held request may be sent until reauthentication is complete."""
        self._drained: asyncio.Future[None] | None = None
        """Completed when no response is outstanding; None if no caller waits for that."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._used_s = 0.0
        """When a request was last sent or answered, on the loop's clock."""

    @property
    def is_closed(self) -> bool:
        return self._why_closed is not None

    @property
    def in_flight_count(self) -> int:
        """The number of requests without a response."""
        return len(self._waiting) + len(self._held or ())

    def close(self, why: str = "closed by this client") -> None:
        """Close the connection; pending requests fail with a DisconnectedError."""
        if self._why_closed is None:
            self._why_closed = why
        if self._transport is not None:
            self._transport.abort()
        self._fail_all()

    async def wait_closed(self) -> None:
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
        """Wait for the response to a request that `send` has sent. Raises DisconnectedError."""
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
        """Send a request without waiting; pass the future to `answer` for a timeout."""
        if version is None:
            version = self.versions.best(type(request), at_most)
        outgoing = self._encoded(request, version)
        if self._renewing is None and self._session.is_due(self._used_s):
            self._renew(self._used_s)
        if self._held is None:
            self._transmit(outgoing)
        else:
            self._held.append(outgoing)
            self._send_held()
        return outgoing.future

    def _encoded(self, request: object, version: int) -> _Outgoing:
        if self._why_closed is not None or self._transport is None:
            raise DisconnectedError(f"{self.address}: {self._why_closed or 'not connected'}")
        self._next_correlation_id = self._next_correlation_id + 1 & 0x7FFF_FFFF
        parts, expected = encode_request(
            request, version, self._next_correlation_id, self._config.client_id
        )
        loop = asyncio.get_running_loop()
        self._used_s = loop.time()
        return _Outgoing(parts, expected, loop.create_future())

    def _transmit(self, outgoing: _Outgoing) -> None:
        assert self._transport is not None
        self._waiting.append((outgoing.expected, outgoing.future))
        self._transport.writelines(outgoing.parts)

    async def greet(self, token: OAuthToken | None = None) -> None:
        """Negotiate versions and authenticate. Call it once, before all other requests.

        Args:
            token: for OAUTHBEARER.

        Raises:
            DisconnectedError: the broker's response is invalid, or it closed the connection.
            AuthenticationError: the broker rejects the credentials.
        """
        dialogue = greeting(
            self.address,
            self._config.security,
            software_version=self._config.software_version,
            nonce=secrets.token_urlsafe(NONCE_BYTES),
            token=token,
        )
        try:
            greeted = await self._follow(dialogue)
        except DisconnectedError as error:
            if isinstance(self._lost_by, ssl.SSLError):
                raise tls_error(self.address, self._lost_by) or error from error
            raise
        self.versions = greeted.versions
        self._frames.bytes_max = FRAME_BYTES_MAX
        self._is_untried = True
        self._watch_idleness()
        self._session.begin(greeted.session_lifetime_ms, asyncio.get_running_loop().time())

    async def _follow(self, dialogue: Greeting) -> Greeted:
        """Run a handshake. Reauthentication holds back other requests, but not its own."""
        answer: object = None
        try:
            while not isinstance(step := await self._advance(dialogue, answer), Greeted):
                kind = type(step.request)
                answer = await self.answer(self._sent_now(step), kind)
        except DecodeError as error:
            raise DisconnectedError(f"{self.address}: {error}") from error
        return step

    def _sent_now(self, step: Ask) -> asyncio.Future[Any]:
        outgoing = self._encoded(step.request, step.version)
        self._transmit(outgoing)
        return outgoing.future

    async def _advance(self, dialogue: Greeting, answer: object) -> Ask | Greeted:
        """Advance the handshake, for SCRAM in a thread: hashing a password may take 0.1 s."""
        if answer is None or not self._config.security.uses_scram:
            return advance(dialogue, answer)
        return await run_in_thread(lambda: advance(dialogue, answer), "compute a SCRAM proof")

    # Reauthentication (KIP-368).

    def _renew(self, now_s: float) -> None:
        """Begin reauthentication. Until the token is available, and while the session lasts,
        requests are sent one at a time: a request queued behind a delayed one might be processed
        only after the session has ended.
        """
        self._held = deque()
        self._is_negotiating = self._session.is_over(now_s)
        self._renewing = asyncio.create_task(
            self._authenticate_again(), name=f"reauthenticate to {self.address}"
        )

    async def _authenticate_again(self) -> None:
        loop = asyncio.get_running_loop()
        token: OAuthToken | None = None
        try:
            await asyncio.sleep(self._session.pause_s(loop.time()))
            token = await token_for(self._config.security, self._config.request_timeout_ms / 1000)
            # During reauthentication the broker accepts nothing else, and responses must not be
            # mixed up.
            self._is_negotiating = True
            await self._wait_drained()
            dialogue = authentication(
                self.address,
                self._config.security,
                self.versions,
                nonce=secrets.token_urlsafe(NONCE_BYTES),
                token=token,
            )
            self._session.begin((await self._follow(dialogue)).session_lifetime_ms, loop.time())
            logger.debug("%s: reauthenticated", self.address)
        except TokenError as error:
            if self._session.is_over(loop.time()):
                self.close(f"the session has ended: {error}")
            else:
                logger.warning("%s: the session could not be renewed yet: %s", self.address, error)
                self._session.postpone(loop.time())
        except ConsumerError as error:
            # Only close this connection: a new one may authenticate, and raises the error if not.
            if isinstance(error, AuthenticationError):
                self._config.security.discard(token)
                logger.warning("%s", error)
            self.close(str(error))
        finally:
            self._renewing = None
            held, self._held = self._held, None
            self._drained = None
            if not self.is_closed:
                for outgoing in held or ():
                    self._transmit(outgoing)

    def _send_held(self) -> None:
        """Send the next held request, if that is allowed now."""
        now_s = asyncio.get_running_loop().time()
        is_free = not self._waiting and not self._is_negotiating
        if self._held and is_free and not self._session.is_over(now_s):
            self._transmit(self._held.popleft())

    async def _wait_drained(self) -> None:
        """Wait for the responses to all sent requests. Needs no timeout: each request's caller has
        one, which may be longer than the handshake's (JoinGroup).
        """
        if self._waiting:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def _watch_idleness(self) -> None:
        """Close the connection if it has been idle too long; otherwise schedule the next check."""
        max_idle_s = self._config.max_idle_ms / 1000
        if max_idle_s < 0 or self.is_closed:
            return
        loop = asyncio.get_running_loop()
        idle_s = 0.0 if self.in_flight_count else loop.time() - self._used_s
        if idle_s >= max_idle_s:
            self.close(f"idle for {idle_s:.0f} s")
            return
        # At least a millisecond, in case the clock is rounded.
        self._idle_timer = loop.call_later(max(max_idle_s - idle_s, 0.001), self._watch_idleness)

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
            self.close(f"the broker sent an invalid response: {error}")

    def _take(self, frame: bytes | bytearray) -> None:
        if not self._waiting:
            raise ValueError("a response without a request")
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
        if self._held is not None:
            self._send_held()
        if self._drained is not None and not self._waiting and not self._drained.done():
            self._drained.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost_by = exc
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._why_closed is None:
            self._why_closed = str(exc) if exc else "closed by the broker"
            if self._waiting and self._is_untried and not self._config.security.uses_sasl:
                self._why_closed += SASL_HINT
        self._fail_all()
        self._is_lost.set()

    def _fail_all(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        futures = [future for _, future in waiting]
        if self._held is not None:
            futures += [outgoing.future for outgoing in self._held]
            self._held.clear()
        if self._renewing is not None and self._renewing is not _current_task():
            self._renewing.cancel()
        for future in futures:
            if not future.done():
                future.set_exception(DisconnectedError(f"{self.address}: {self._why_closed}"))
                # Mark the exception as retrieved, because the caller may have stopped waiting.
                future.exception()


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None  # The loop has ended.

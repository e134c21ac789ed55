"""A connection without an event loop: its calls block, each with a timeout.

The heartbeat thread has such a connection, which shares nothing with those of the event loop,
because it must work while the loop is blocked. The command line uses such connections too, which
saves importing asyncio.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Final

from kohort.client.core.errors import AuthenticationError, ConsumerError, TokenError
from kohort.client.net.address import Address
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.errors import DisconnectedError, connect_error
from kohort.client.net.frames import FRAME_BYTES_MAX, GREETING_BYTES_MAX, checked_size
from kohort.client.net.greeting import (
    NONCE_BYTES,
    Greeted,
    Greeting,
    Session,
    advance,
    authentication,
    greeting,
)
from kohort.client.net.oauth import OAuthToken
from kohort.client.net.security import SASL_HINT
from kohort.client.net.versions import ApiVersionTable
from kohort.protocol.errors import DecodeError
from kohort.protocol.framing import ExpectedAnswer, decode_response, encode_request

logger = logging.getLogger(__name__)

LARGE_BYTES: Final = 1 << 16
"""Requests of at least this size are sent in parts, because joining the parts would copy
records."""


class BlockingConnection:
    """A blocking connection to one broker; call `open` first.

    Every call ends within its timeout. `close` may be called from another thread and aborts
    whatever is in progress, including connecting.
    """

    def __init__(self, address: Address, config: ConnectionConfig) -> None:
        self.address = address
        self.versions = ApiVersionTable()
        self._config = config
        self._next_correlation_id = 0
        self._lock = threading.Lock()
        self._is_closed = False
        self._socket: socket.socket | None = None
        self._frame_bytes_max = GREETING_BYTES_MAX
        self._session = Session()
        self._wanted: Future[OAuthToken] | None = None
        """The token for reauthentication, once it has been requested."""
        self._is_untried = False
        """Whether the broker has answered only the handshake so far."""

    def open(self, timeout_s: float) -> None:
        """Connect to the first of the host's addresses that answers, and perform the handshake.

        Raises:
            DisconnectedError: the broker is unreachable, the peer is not a broker, or `close` was
                called.
            AuthenticationError: the broker rejects the credentials, or fails to prove its identity.
            TokenError: the provider returned no token.
        """
        try:
            self._open(time.monotonic() + timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed, by either side."""
        return self._is_closed

    def call(
        self,
        request: object,
        timeout_s: float,
        *,
        version: int | None = None,
        at_most: int | None = None,
    ) -> Any:  # noqa: ANN401 - the response that belongs to the request.
        """Send a request and return its response. After an error the connection is closed.

        Args:
            version: the version to send; by default the highest that both sides support, limited by
                `at_most`.

        Raises:
            DisconnectedError: the connection was lost, or there was no response in time.
            TokenError: the session had to be renewed, and the provider returned no token.
            UnsupportedVersionError: no version in common; the connection remains usable.
        """
        if version is None:
            version = self.versions.best(type(request), at_most)
        deadline_s = time.monotonic() + timeout_s
        with self._closing_on_error():
            self._renew_session(deadline_s)
            answer = self._receive(self._send(request, deadline_s, version), deadline_s)
        self._is_untried = False
        return answer

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        """A context that closes the connection after an error; errors of the socket become
        DisconnectedError.
        """
        try:
            yield
        except (OSError, DecodeError, ValueError) as error:
            if isinstance(error, ValueError) and not self._is_closed:
                raise  # A TLS socket that another thread has closed raises this too.
            self.close()
            text = str(error) or "no answer in time"
            if isinstance(error, ConnectionError) and self._is_untried:
                text += "" if self._config.security.uses_sasl else SASL_HINT
            raise DisconnectedError(f"{self.address}: {text}") from error
        except ConsumerError:
            # Renewing the session failed: the broker would reject all requests.
            self.close()
            raise
        except KeyboardInterrupt:
            # The stream may be in the middle of a frame.
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; a call in progress in another thread fails."""
        with self._lock:
            open_socket, self._socket = self._socket, None
            self._is_closed = True
        if open_socket is not None:
            # Closing alone would not wake a thread that is reading.
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()

    def _open(self, deadline_s: float) -> None:
        security = self._config.security
        try:
            # Get the token first, because a broker closes a connection that does not authenticate
            # soon.
            token = self._wanted_token(deadline_s)
            new_socket = self._connect(deadline_s)
            new_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            new_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if (context := security.tls_context) is not None:
                new_socket.settimeout(_left_s(deadline_s))
                wrapped = context.wrap_socket(
                    new_socket, server_hostname=self.address.host, do_handshake_on_connect=False
                )
                self._hold(wrapped)
                wrapped.do_handshake()
            self._greet(deadline_s, token)
        except DecodeError as error:
            raise DisconnectedError(f"{self.address}: {error}") from error
        except OSError as error:
            raise connect_error(str(self.address), error, security) from error
        except ValueError as error:
            if not self._is_closed:
                raise
            raise DisconnectedError(f"{self.address}: the connection is closed") from error

    def _connect(self, deadline_s: float) -> socket.socket:
        """Connect to the first address that answers; each gets a share of the time."""
        infos = socket.getaddrinfo(*self.address, type=socket.SOCK_STREAM)
        failure: OSError = OSError("the name has no address")
        for tried, (family, kind, proto, _, place) in enumerate(infos):
            new_socket = socket.socket(family, kind, proto)
            self._hold(new_socket)
            left_s = _left_s(deadline_s)
            is_last = tried == len(infos) - 1
            limit_s = self._config.connect_timeout_ms / 1000
            new_socket.settimeout(min(left_s if is_last else left_s / 2, limit_s))
            try:
                new_socket.connect(place)
            except OSError as error:
                failure = error
                new_socket.close()
            else:
                return new_socket
        raise failure

    def _hold(self, new_socket: socket.socket) -> None:
        """Store the socket where `close` finds it.

        Raises:
            OSError: `close` was called.
        """
        with self._lock:
            if not self._is_closed:
                self._socket = new_socket
                return
        new_socket.close()
        raise OSError("the connection is closed")

    def _greet(self, deadline_s: float, token: OAuthToken | None) -> None:
        dialogue = greeting(
            str(self.address),
            self._config.security,
            software_version=self._config.software_version,
            nonce=secrets.token_urlsafe(NONCE_BYTES),
            token=token,
        )
        greeted = self._follow(dialogue, token, deadline_s)
        self.versions = greeted.versions
        self._frame_bytes_max = FRAME_BYTES_MAX
        self._is_untried = True
        self._session.begin(greeted.session_lifetime_ms, time.monotonic())

    def _follow(self, dialogue: Greeting, token: OAuthToken | None, deadline_s: float) -> Greeted:
        answer: object = None
        try:
            while not isinstance(step := advance(dialogue, answer), Greeted):
                answer = self._call(step.request, deadline_s, step.version)
        except AuthenticationError:
            self._config.security.discard(token)
            raise
        return step

    # Reauthentication (KIP-368).

    def _renew_session(self, deadline_s: float) -> None:
        """Reauthenticate if due, without waiting for a token while the session lasts."""
        now_s = time.monotonic()
        if not self._session.is_due(now_s):
            return
        is_over = self._session.is_over(now_s)
        pause_s = self._session.pause_s(now_s)
        try:
            if not is_over and (pause_s > 0 or not self._is_token_there(deadline_s)):
                return
            token = self._wanted_token(deadline_s)
        except TokenError as error:
            if is_over:
                raise
            logger.warning("%s: the session could not be renewed yet: %s", self.address, error)
            self._session.postpone(now_s)
            return
        time.sleep(min(pause_s, _left_s(deadline_s)))
        dialogue = authentication(
            str(self.address),
            self._config.security,
            self.versions,
            nonce=secrets.token_urlsafe(NONCE_BYTES),
            token=token,
        )
        try:
            greeted = self._follow(dialogue, token, deadline_s)
        except AuthenticationError as error:
            # Not raised as it is: a new connection may authenticate, and raises the error if not.
            logger.warning("%s", error)
            raise DisconnectedError(str(error)) from error
        self._session.begin(greeted.session_lifetime_ms, time.monotonic())
        logger.debug("%s: reauthenticated", self.address)

    def _is_token_there(self, deadline_s: float) -> bool:
        """Whether a token is available or none is needed; requests one otherwise."""
        tokens = self._config.security.tokens
        if tokens is None:
            return True
        if self._wanted is None:
            self._wanted = tokens.ask(_left_s(deadline_s))
        return self._wanted.done()

    def _wanted_token(self, deadline_s: float) -> OAuthToken | None:
        """Wait for the token, if the mechanism needs one. Raises TokenError."""
        wanted, self._wanted = self._wanted, None
        tokens = self._config.security.tokens
        if tokens is None:
            return None
        left_s = _left_s(deadline_s)
        return tokens.wait(wanted or tokens.ask(left_s), left_s)

    def _call(self, request: object, deadline_s: float, version: int) -> Any:  # noqa: ANN401
        return self._receive(self._send(request, deadline_s, version), deadline_s)

    def _send(self, request: object, deadline_s: float, version: int) -> ExpectedAnswer:
        self._next_correlation_id = self._next_correlation_id + 1 & 0x7FFF_FFFF
        parts, expected = encode_request(
            request, version, self._next_correlation_id, self._config.client_id
        )
        open_socket = self._open_socket()
        open_socket.settimeout(_left_s(deadline_s))
        if sum(map(len, parts)) < LARGE_BYTES:
            open_socket.sendall(b"".join(parts))
        else:
            for part in parts:
                open_socket.sendall(part)
        return expected

    def _receive(self, expected: ExpectedAnswer, deadline_s: float) -> Any:  # noqa: ANN401
        open_socket = self._open_socket()
        try:
            size = checked_size(_receive(open_socket, 4, deadline_s), self._frame_bytes_max)
        except ValueError as error:
            raise DecodeError(str(error)) from None
        return decode_response(_receive(open_socket, size, deadline_s), expected)

    def _open_socket(self) -> socket.socket:
        open_socket = self._socket
        if open_socket is None:
            raise OSError("the connection is closed")
        return open_socket


def _receive(connection: socket.socket, count: int, deadline_s: float) -> bytes:
    parts: list[bytes] = []
    while count:
        connection.settimeout(_left_s(deadline_s))
        part = connection.recv(min(count, 1 << 16))
        if not part:
            raise ConnectionResetError("the broker has closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no answer in time")
    return left_s

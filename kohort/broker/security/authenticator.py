"""SASL authentication of one connection: rejects all other requests until it is complete.

A connection of a SASL listener begins with a `SaslAuthenticator` as its service. After
authentication the service is the dispatcher, so the authenticator costs later requests nothing;
only if sessions expire, the authenticator remains the service, to check every request. The
permitted order of requests is that of KIP-43 and KIP-152. Responses to failures are delayed by a
time that does not depend on the work done, to slow down guessing of passwords.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol, TypeVar

from kohort.broker.config import BrokerConfig
from kohort.broker.core.security.addresses import FailureDelays
from kohort.broker.core.security.sasl import WRONG, Challenge, Done, SaslFailure
from kohort.broker.core.security.session import USER, Principal
from kohort.broker.network.service import (
    CloseConnection,
    ConnectionInfo,
    NewConnection,
    ResponseBuffers,
    Service,
    TokenAnswer,
)
from kohort.broker.network.timeouts import CloseReason
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.peer_log import PeerLog
from kohort.protocol.codec import Buffer
from kohort.protocol.errors import ErrorCode

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36

TOKEN_BYTES_MAX: Final = 64 * 1024
FRAME_BYTES_MAX: Final = TOKEN_BYTES_MAX + 34 * 1024
"""The largest frame before authentication: a token and a header with a client id of 32 kB."""

TOKENS_MAX: Final = 4
"""Maximum client tokens per authentication; SCRAM has two."""
REAUTHENTICATION_INTERVAL_MS: Final = 1_000
"""The minimum time between two reauthentications of a connection."""
NAME_CHARS_SHOWN: Final = 100
REFUSED_BYTES_MAX: Final = 4_096
"""Larger requests of unauthenticated clients are not parsed."""

_HEADER_BYTES: Final = 8
_ERROR_AT: Final = slice(8, 10)
"""Position of the error code in the ApiVersions response, after size and correlation id."""


T = TypeVar("T")

AuthenticationStep = Challenge | Done | Deferred[Done] | Deferred[Challenge | Done]


class Exchange(Protocol):
    user: str
    """The user name that the client claims; empty until the client has sent it."""

    def step(self, token: bytes) -> AuthenticationStep:
        """Process a client token.

        Raises:
            SaslFailure: authentication failed; a returned `Deferred` fails with it instead.
        """
        ...


class Dispatcher(Service, Protocol):
    def refuse(self, frame: Buffer, code: ErrorCode) -> ResponseBuffers:
        """Return the error response, None for acks=0. Raises CloseConnection if no response can
        carry `code`.
        """
        ...


@dataclass(slots=True, eq=False)
class SaslListener:
    name: str
    exchanges: Mapping[str, Callable[[str], Exchange]]
    """By mechanism, the function that starts an attempt, given the client's IP address."""
    config: Callable[[str], BrokerConfig]
    """Returns the settings of a mechanism of the listener."""
    dispatcher: Dispatcher
    clock: Clock
    log: PeerLog
    delays: FailureDelays
    count: Callable[[str, str, str], None]
    """Called with listener, mechanism and result of every attempt."""
    is_disabled: Callable[[str], bool]
    """Whether a user is rejected even with valid credentials."""

    def new_authenticator(self, connection: NewConnection) -> "SaslAuthenticator":
        return SaslAuthenticator(self, connection)


class SaslState(Enum):
    """What an authenticator accepts next."""

    START = auto()
    """Accepts ApiVersions and SaslHandshake."""
    REQUESTS = auto()
    """Accepts SaslAuthenticate with a token."""
    BARE_TOKENS = auto()
    """Accepts tokens without headers, after SaslHandshake v0."""
    AUTHENTICATED = auto()
    """Accepts all requests."""
    FAILED = auto()
    """Accepts no requests: the connection is closed after the response."""


class SaslAuthenticator:
    """The service of an unauthenticated connection, or of a connection whose session expires."""

    def __init__(self, listener: SaslListener, connection: NewConnection) -> None:
        self._listener = listener
        self._connection = connection
        self._state = SaslState.START
        self._knows_versions = False
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._awaited: Deferred[Any] | None = None
        """The last `Deferred` that the exchange returned, to be cancelled on a disconnect."""
        self._timer: asyncio.TimerHandle | None = None
        """Sends the delayed response."""
        self._token_count = 0
        self._authenticated_ms = 0
        self._is_again = False
        self._delay_response = False
        """Whether to delay the response to the current request, which has failed."""
        connection.info.authentication = self

    # The `Service` protocol.

    def serve(
        self, connection: ConnectionInfo, frame: Buffer
    ) -> ResponseBuffers | Deferred[ResponseBuffers]:
        if self._state is SaslState.BARE_TOKENS:
            return self._authenticate_bare(bytes(frame))
        key = int.from_bytes(frame[:2], "big", signed=True)
        if self._state is SaslState.AUTHENTICATED:
            return self._serve_authenticated(connection, key, frame)
        if len(frame) < _HEADER_BYTES or not self._is_expected(key):
            return self._reject_request(key, frame)
        answer = self._listener.dispatcher.serve(connection, frame)
        if isinstance(answer, Deferred):
            return answer.finally_(lambda later: self._finish(later.result()))
        if key == API_VERSIONS and answer is not None:
            self._knows_versions = b"".join(answer)[_ERROR_AT] == b"\0\0"
        return self._delayed(answer) if self._delay_response else self._finish(answer)

    def connection_lost(self, connection: ConnectionInfo) -> None:
        self._state = SaslState.FAILED
        if self._awaited is not None:
            # Cancels a queued password check, whose result nobody needs any more.
            self._awaited.cancel()
            self._awaited = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._listener.dispatcher.connection_lost(connection)

    # Called by the handlers.

    @property
    def mechanisms(self) -> Sequence[str]:
        return list(self._listener.exchanges)

    def handshake(self, mechanism: str, *, tokens_are_bare: bool) -> ErrorCode:
        now_ms = self._listener.clock.monotonic_ms()
        if self._state is SaslState.AUTHENTICATED:
            is_early = now_ms - self._authenticated_ms < REAUTHENTICATION_INTERVAL_MS
            if self._connection.info.session.expires_ms is None or (is_early and self._is_again):
                return ErrorCode.ILLEGAL_SASL_STATE
            self._is_again = True
        begin = self._listener.exchanges.get(mechanism)
        if begin is None:
            self._state = SaslState.FAILED
            self._delay_response = True
            self._listener.count(self._listener.name, "unknown", "failed")
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._mechanism, self._token_count = mechanism, 0
        self._exchange = begin(self._connection.ip)
        self._state = SaslState.BARE_TOKENS if tokens_are_bare else SaslState.REQUESTS
        return ErrorCode.NONE

    def authenticate(self, token: bytes) -> TokenAnswer | Deferred[TokenAnswer]:
        if self._exchange is None:
            return TokenAnswer(
                ErrorCode.ILLEGAL_SASL_STATE,
                "SaslAuthenticate request received after successful authentication",
            )
        arrived_ms = self._listener.clock.monotonic_ms()
        try:
            outcome = self._step(self._exchange, token)
        except SaslFailure as failure:
            return self._fail(failure, arrived_ms)
        if not isinstance(outcome, Deferred):
            return self._decide(outcome, arrived_ms)
        self._awaited = outcome
        answer: Deferred[TokenAnswer] = Deferred()
        outcome.add_done_callback(lambda later: self._on_result(later, arrived_ms, answer))
        return answer

    # Called by the connection.

    def failure_delay_ms(self) -> int:
        return self._delay_ms(self._mechanism)

    # Internal.

    def _serve_authenticated(
        self, connection: ConnectionInfo, key: int, frame: Buffer
    ) -> ResponseBuffers | Deferred[ResponseBuffers]:
        self._check_session(key)
        answer = self._listener.dispatcher.serve(connection, frame)
        if self._delay_response and not isinstance(answer, Deferred):
            # The request was a SaslHandshake with an unsupported mechanism.
            return self._delayed(answer)
        return answer

    def _authenticate_bare(self, token: bytes) -> ResponseBuffers | Deferred[ResponseBuffers]:
        answer = self.authenticate(token)
        if isinstance(answer, Deferred):
            return answer.finally_(lambda later: self._finish(_bare(later.result())))
        return self._finish(_bare(answer))

    def _step(self, exchange: Exchange, token: bytes) -> AuthenticationStep:
        session = self._connection.info.session
        self._token_count += 1
        if self._token_count > TOKENS_MAX or len(token) > TOKEN_BYTES_MAX:
            raise SaslFailure("too many tokens, or one that is too long")
        if session.mechanism not in {"", self._mechanism}:
            raise SaslFailure("the mechanism differs from the previous one")
        return exchange.step(token)

    def _on_result(
        self, later: Deferred[Any], arrived_ms: int, answer: Deferred[TokenAnswer]
    ) -> None:
        self._awaited = None
        try:
            if later.is_cancelled:
                # Cancelled because the client has disconnected: any answer will do.
                decided: TokenAnswer | Deferred[TokenAnswer]
                decided = TokenAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED)
            elif isinstance(later.error, SaslFailure):
                # The error is not raised: its traceback would create a reference cycle.
                decided = self._fail(later.error, arrived_ms)
            else:
                decided = self._decide(later.result(), arrived_ms)
        except Exception as error:  # noqa: BLE001 - becomes the error.
            answer.set_exception(error)
            return
        if isinstance(decided, Deferred):
            decided.add_done_callback(lambda done: answer.set_result(done.result()))
        else:
            answer.set_result(decided)

    def _decide(
        self, outcome: Challenge | Done, arrived_ms: int
    ) -> TokenAnswer | Deferred[TokenAnswer]:
        if isinstance(outcome, Challenge):
            return TokenAnswer(token=outcome.token)
        if self._listener.is_disabled(outcome.user):
            # A disabled user gets the text for a wrong password: another text would reveal that the
            # password is right.
            message = WRONG if self._mechanism == "PLAIN" else None
            return self._fail(SaslFailure("the user is disabled", message), arrived_ms)
        principal = Principal(USER, outcome.user)
        before = self._connection.info.session
        if before.mechanism and before.principal != principal:
            message = (
                "Cannot change principals during re-authentication from "
                f"{before.principal.type}.{before.principal.name}: "
                f"{principal.type}.{principal.name}"
            )
            return self._fail(SaslFailure("another principal than before", message), arrived_ms)
        limit_ms = self._listener.config(self._mechanism).connections_max_reauth_ms
        lifetimes = [
            lifetime_ms
            for lifetime_ms in (limit_ms, outcome.lifetime_ms)
            if lifetime_ms is not None and lifetime_ms > 0
        ]
        lifetime_ms = min(lifetimes, default=0)
        now_ms = self._listener.clock.monotonic_ms()
        self._authenticated_ms = now_ms
        self._exchange = None
        self._state = SaslState.AUTHENTICATED
        self._listener.count(self._listener.name, self._mechanism, "succeeded")
        session = before._replace(
            principal=principal,
            mechanism=self._mechanism,
            expires_ms=now_ms + lifetime_ms if lifetime_ms else None,
        )
        # Only a session that expires is checked before every request.
        self._connection.on_authenticated(session, self if lifetime_ms else None)
        return TokenAnswer(token=outcome.token, lifetime_ms=lifetime_ms)

    def _fail(self, failure: SaslFailure, arrived_ms: int) -> Deferred[TokenAnswer]:
        listener, connection = self._listener, self._connection
        claimed = self._exchange.user if self._exchange is not None else ""
        self._state, self._exchange = SaslState.FAILED, None
        listener.count(listener.name, self._mechanism, "failed")
        listener.log.note(
            "authentication",
            "Failed authentication of %r from %s with %s on listener %s: %s",
            claimed[:NAME_CHARS_SHOWN],
            connection.ip,
            self._mechanism,
            listener.name,
            # As text: a stored log record would keep the exception's frames alive.
            str(failure),
        )
        message = failure.client_message or (
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism}"
        )
        answer = TokenAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
        spent_ms = listener.clock.monotonic_ms() - arrived_ms
        return self._after_delay(self._delay_ms(self._mechanism) - spent_ms, answer)

    def _reject_request(self, key: int, frame: Buffer) -> Deferred[ResponseBuffers]:
        """Respond with an error if the client has sent a SaslHandshake, as in Kafka; else close."""
        may_respond = self._state is SaslState.REQUESTS and len(frame) <= REFUSED_BYTES_MAX
        text = f"a request with API key {key} before authentication"
        if self._state is SaslState.START:
            text += "; the client may not use SASL, check its security.protocol"
        close = self._close(text)
        if not may_respond:
            raise close
        answer = self._listener.dispatcher.refuse(frame, ErrorCode.ILLEGAL_SASL_STATE)
        if answer is None:
            raise close
        self._listener.log.note("authentication", "Rejected %s from %s", text, self._connection.ip)
        return self._delayed(answer)

    def _delayed(self, answer: ResponseBuffers) -> Deferred[ResponseBuffers]:
        later = self._after_delay(self._delay_ms(""), answer)
        return later.finally_(lambda done: self._finish(done.result()))

    def _after_delay(self, delay_ms: int, value: T) -> Deferred[T]:
        later: Deferred[T] = Deferred()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(delay_ms, 0) / 1000, later.set_result, value)
        return later

    def _delay_ms(self, mechanism: str) -> int:
        least_ms = self._listener.config(mechanism).connection_failed_authentication_delay_ms
        now_ms = self._listener.clock.monotonic_ms()
        return self._listener.delays.delay_ms(self._connection.ip, now_ms, least_ms)

    def _is_expected(self, key: int) -> bool:
        if self._state is SaslState.START:
            is_versions = key == API_VERSIONS and not self._knows_versions
            return is_versions or key == SASL_HANDSHAKE
        return self._state is SaslState.REQUESTS and key == SASL_AUTHENTICATE

    def _check_session(self, key: int) -> None:
        expires_ms = self._connection.info.session.expires_ms
        is_over = expires_ms is not None and self._listener.clock.monotonic_ms() >= expires_ms
        if is_over and key != SASL_HANDSHAKE:
            raise self._close("the session has expired without reauthentication")

    def _finish(self, answer: ResponseBuffers) -> ResponseBuffers:
        """Close the connection after the response to a failed attempt."""
        if self._state is SaslState.FAILED:
            raise CloseConnection(
                "not authenticated",
                answer=answer,
                reason=CloseReason.AUTHENTICATION,
                should_log=False,
            )
        return answer

    def _close(self, text: str) -> CloseConnection:
        self._state = SaslState.FAILED
        return CloseConnection(text, reason=CloseReason.AUTHENTICATION)


def _bare(answer: TokenAnswer) -> ResponseBuffers:
    """Return the server's token as a response without header; None after a failure."""
    if answer.error is not ErrorCode.NONE:
        return None
    return [len(answer.token).to_bytes(4, "big") + answer.token]

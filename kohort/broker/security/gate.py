"""The first service of a connection with SASL: it lets only authentication pass.

A connection of a listener with SASL begins with a `Gate` in place of the dispatcher and has the
dispatcher afterwards, so that later requests pay nothing; the gate stays, to check the time, only
where sessions end. The permitted order of requests follows KIP-43 and KIP-152. Failures are
answered late, by a delay that does not depend on the work, so that passwords cannot be tried fast.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol, TypeVar

from kohort.broker.config import BrokerConfig
from kohort.broker.core.security.exchange import Challenge, Done, SaslFailure
from kohort.broker.core.security.plain import WRONG
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
from kohort.broker.runtime.later import Later
from kohort.broker.runtime.peer_log import PeerLog
from kohort.protocol.codec import Buffer
from kohort.protocol.errors import ErrorCode

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36

TOKEN_BYTES_MAX: Final = 64 * 1024
FRAME_BYTES_MAX: Final = TOKEN_BYTES_MAX + 34 * 1024
"""The largest frame before authentication: a token, and a header with a client id of 32 kB."""

TOKENS_MAX: Final = 4
"""Bound on the tokens of one attempt; SCRAM has two."""
REAUTHENTICATION_INTERVAL_MS: Final = 1_000
"""The shortest time between two authentications of a connection."""
NAME_CHARS_SHOWN: Final = 100
REFUSED_BYTES_MAX: Final = 4_096
"""Larger requests are not parsed before their clients are authenticated."""

_HEADER_BYTES: Final = 8
_ERROR_AT: Final = slice(8, 10)
"""Position of the error in the answer to ApiVersions, after size and correlation id."""


T = TypeVar("T")

AuthenticationStep = Challenge | Done | Later[Done] | Later[Challenge | Done]


class Exchange(Protocol):
    """One attempt to authenticate, by one mechanism."""

    user: str
    """The claimed name, once it is known."""

    def step(self, token: bytes) -> AuthenticationStep:
        """Answer a token. Raises SaslFailure; a returned `Later` fails with it."""
        ...


class Dispatcher(Service, Protocol):
    """Serves all requests once a client is authenticated."""

    def refuse(self, frame: Buffer, code: ErrorCode) -> ResponseBuffers:
        """The error answer to a request that is not served; None if the request asks for no answer.

        Raises CloseConnection if the request has no such answer.
        """
        ...


class FailureDelays(Protocol):
    """How long the answer to a failure is delayed, by the address that fails."""

    def delay_ms(self, ip: str, now_ms: int, least_ms: int) -> int: ...


@dataclass(slots=True, eq=False)
class GateKeeper:
    """State that all gates of one listener share."""

    listener: str
    exchanges: Mapping[str, Callable[[str], Exchange]]
    """The function that begins an attempt of a client at an address, by mechanism."""
    config: Callable[[str], BrokerConfig]
    """The settings that apply to a mechanism of the listener."""
    dispatcher: Dispatcher
    clock: Clock
    log: PeerLog
    delays: FailureDelays
    count: Callable[[str, str, str], None]
    """Called with listener, mechanism and result of each attempt."""
    is_disabled: Callable[[str], bool]
    """Whether a user is refused even with valid credentials."""

    def new_gate(self, connection: NewConnection) -> "Gate":
        """The service of a new connection."""
        return Gate(self, connection)


class State(Enum):
    """The state of a gate: what it waits for."""

    START = auto()
    """ApiVersions or SaslHandshake."""
    REQUESTS = auto()
    """A token in a SaslAuthenticate."""
    BARE_TOKENS = auto()
    """A token that is the whole frame."""
    OPEN = auto()
    """Any request: the client is authenticated."""
    SHUT = auto()
    """No request: the connection is being closed."""


class Gate:
    """The service of a connection until its client is authenticated, or longer if sessions end."""

    def __init__(self, keeper: GateKeeper, connection: NewConnection) -> None:
        self._keeper = keeper
        self._connection = connection
        self._state = State.START
        self._knows_versions = False
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._awaited: Later[Any] | None = None
        """The result that the exchange is working on, or worked on last."""
        self._timer: asyncio.TimerHandle | None = None
        """Sends the delayed answer."""
        self._token_count = 0
        self._authenticated_ms = 0
        self._is_again = False
        """Whether this is not the first authentication of the connection."""
        self._is_told_late = False
        """Whether the answer to the current request is delayed like a failure."""
        connection.info.authentication = self

    # The service.

    def serve(
        self, connection: ConnectionInfo, frame: Buffer
    ) -> ResponseBuffers | Later[ResponseBuffers]:
        if self._state is State.BARE_TOKENS:
            return self._take_bare(bytes(frame))
        key = int.from_bytes(frame[:2], "big", signed=True)
        if self._state is State.OPEN:
            return self._serve_open(connection, key, frame)
        if len(frame) < _HEADER_BYTES or not self._is_expected(key):
            return self._refuse_request(key, frame)
        answer = self._keeper.dispatcher.serve(connection, frame)
        if isinstance(answer, Later):
            return answer.settle(lambda later: self._after(later.result()))
        if key == API_VERSIONS and answer is not None:
            self._knows_versions = b"".join(answer)[_ERROR_AT] == b"\0\0"
        return self._kept_back(answer) if self._is_told_late else self._after(answer)

    def connection_lost(self, connection: ConnectionInfo) -> None:
        self._state = State.SHUT
        if self._awaited is not None:
            # Other frames wait for their turn.
            self._awaited.cancel()
            self._awaited = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._keeper.dispatcher.connection_lost(connection)

    # For the handlers.

    @property
    def mechanisms(self) -> Sequence[str]:
        return list(self._keeper.exchanges)

    def choose(self, mechanism: str, *, tokens_are_bare: bool) -> ErrorCode:
        now_ms = self._keeper.clock.monotonic_ms()
        if self._state is State.OPEN:
            is_early = now_ms - self._authenticated_ms < REAUTHENTICATION_INTERVAL_MS
            if self._connection.info.session.expires_ms is None or (is_early and self._is_again):
                return ErrorCode.ILLEGAL_SASL_STATE
            self._is_again = True
        begin = self._keeper.exchanges.get(mechanism)
        if begin is None:
            self._state = State.SHUT
            self._is_told_late = True
            self._keeper.count(self._keeper.listener, "unknown", "failed")
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._mechanism, self._token_count = mechanism, 0
        self._exchange = begin(self._connection.ip)
        self._state = State.BARE_TOKENS if tokens_are_bare else State.REQUESTS
        return ErrorCode.NONE

    def take(self, token: bytes) -> TokenAnswer | Later[TokenAnswer]:
        if self._exchange is None:
            return TokenAnswer(
                ErrorCode.ILLEGAL_SASL_STATE,
                "SaslAuthenticate request received after successful authentication",
            )
        arrived_ms = self._keeper.clock.monotonic_ms()
        try:
            outcome = self._step(self._exchange, token)
        except SaslFailure as failure:
            return self._refuse(failure, arrived_ms)
        if not isinstance(outcome, Later):
            return self._decide(outcome, arrived_ms)
        self._awaited = outcome
        decided: Later[TokenAnswer | Later[TokenAnswer]] = outcome.settle(
            lambda later: self._decide_later(later, arrived_ms)
        )
        return _flattened(decided)

    # For the connection.

    def refusal_delay_ms(self) -> int:
        return self._delay_ms(self._mechanism)

    # Internal.

    def _serve_open(
        self, connection: ConnectionInfo, key: int, frame: Buffer
    ) -> ResponseBuffers | Later[ResponseBuffers]:
        self._check_session(key)
        answer = self._keeper.dispatcher.serve(connection, frame)
        if self._is_told_late and not isinstance(answer, Later):
            # Another authentication was begun, by a mechanism that is not supported.
            return self._kept_back(answer)
        return answer

    def _take_bare(self, token: bytes) -> ResponseBuffers | Later[ResponseBuffers]:
        answer = self.take(token)
        if isinstance(answer, Later):
            return answer.settle(lambda later: self._after(_bare(later.result())))
        return self._after(_bare(answer))

    def _step(self, exchange: Exchange, token: bytes) -> AuthenticationStep:
        session = self._connection.info.session
        self._token_count += 1
        if self._token_count > TOKENS_MAX or len(token) > TOKEN_BYTES_MAX:
            raise SaslFailure("too many tokens, or one that is too long")
        if session.mechanism not in {"", self._mechanism}:
            raise SaslFailure("another mechanism than at first")
        return exchange.step(token)

    def _decide_later(self, later: Later[Any], arrived_ms: int) -> TokenAnswer | Later[TokenAnswer]:
        self._awaited = None
        if later.is_cancelled:
            # The client is gone; there is nothing to answer.
            return TokenAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED)
        if isinstance(later.error, SaslFailure):
            # It is not raised: its traceback would refer to what refers to it.
            return self._refuse(later.error, arrived_ms)
        return self._decide(later.result(), arrived_ms)

    def _decide(
        self, outcome: Challenge | Done, arrived_ms: int
    ) -> TokenAnswer | Later[TokenAnswer]:
        if isinstance(outcome, Challenge):
            return TokenAnswer(token=outcome.token)
        if self._keeper.is_disabled(outcome.user):
            # With the text for a wrong password, so that a client does not learn that it is right.
            told = WRONG if self._mechanism == "PLAIN" else None
            return self._refuse(SaslFailure("the user is disabled", told), arrived_ms)
        principal = Principal(USER, outcome.user)
        before = self._connection.info.session
        if before.mechanism and before.principal != principal:
            told = (
                "Cannot change principals during re-authentication from "
                f"{before.principal.type}.{before.principal.name}: "
                f"{principal.type}.{principal.name}"
            )
            return self._refuse(SaslFailure("another principal than at first", told), arrived_ms)
        limit_ms = self._keeper.config(self._mechanism).connections_max_reauth_ms
        lifetimes = [one for one in (limit_ms, outcome.lifetime_ms) if one is not None and one > 0]
        lifetime_ms = min(lifetimes, default=0)
        now_ms = self._keeper.clock.monotonic_ms()
        self._authenticated_ms = now_ms
        self._exchange = None
        self._state = State.OPEN
        self._keeper.count(self._keeper.listener, self._mechanism, "succeeded")
        session = before._replace(
            principal=principal,
            mechanism=self._mechanism,
            expires_ms=now_ms + lifetime_ms if lifetime_ms else None,
        )
        # A session that ends is checked before each request; others need no gate.
        self._connection.let_in(session, self if lifetime_ms else None)
        return TokenAnswer(token=outcome.token, lifetime_ms=lifetime_ms)

    def _refuse(self, failure: SaslFailure, arrived_ms: int) -> Later[TokenAnswer]:
        """Shut the gate, and answer once the delay is over."""
        keeper, connection = self._keeper, self._connection
        claimed = self._exchange.user if self._exchange is not None else ""
        self._state, self._exchange = State.SHUT, None
        keeper.count(keeper.listener, self._mechanism, "failed")
        keeper.log.note(
            "authentication",
            "Refused %r of %s by %s on listener %s: %s",
            claimed[:NAME_CHARS_SHOWN],
            connection.ip,
            self._mechanism,
            keeper.listener,
            # Not the exception: a kept log record would keep all that its traceback refers to.
            str(failure),
        )
        told = failure.told or (
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism}"
        )
        answer = TokenAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, told)
        spent_ms = keeper.clock.monotonic_ms() - arrived_ms
        return self._given_after(self._delay_ms(self._mechanism) - spent_ms, answer)

    def _refuse_request(self, key: int, frame: Buffer) -> Later[ResponseBuffers]:
        """Kafka answers clients that have chosen a mechanism, and tells others nothing."""
        may_be_told = self._state is State.REQUESTS and len(frame) <= REFUSED_BYTES_MAX
        text = f"a request of key {key} before authentication"
        if self._state is State.START:
            text += ", as of a client without SASL; see its security.protocol"
        turned_away = self._turned_away(text)
        if not may_be_told:
            raise turned_away
        answer = self._keeper.dispatcher.refuse(frame, ErrorCode.ILLEGAL_SASL_STATE)
        if answer is None:
            raise turned_away
        self._keeper.log.note("authentication", "Refused %s of %s", text, self._connection.ip)
        return self._kept_back(answer)

    def _kept_back(self, answer: ResponseBuffers) -> Later[ResponseBuffers]:
        """A refusal that is sent once the delay is over."""
        later = self._given_after(self._delay_ms(""), answer)
        return later.settle(lambda done: self._after(done.result()))

    def _given_after(self, delay_ms: int, value: T) -> Later[T]:
        later: Later[T] = Later()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(delay_ms, 0) / 1000, later.give, value)
        return later

    def _delay_ms(self, mechanism: str) -> int:
        least_ms = self._keeper.config(mechanism).connection_failed_authentication_delay_ms
        now_ms = self._keeper.clock.monotonic_ms()
        return self._keeper.delays.delay_ms(self._connection.ip, now_ms, least_ms)

    def _is_expected(self, key: int) -> bool:
        if self._state is State.START:
            is_versions = key == API_VERSIONS and not self._knows_versions
            return is_versions or key == SASL_HANDSHAKE
        return self._state is State.REQUESTS and key == SASL_AUTHENTICATE

    def _check_session(self, key: int) -> None:
        expires_ms = self._connection.info.session.expires_ms
        is_over = expires_ms is not None and self._keeper.clock.monotonic_ms() >= expires_ms
        if is_over and key != SASL_HANDSHAKE:
            raise self._turned_away("the session is over, and the client has not come again")

    def _after(self, answer: ResponseBuffers) -> ResponseBuffers:
        """Close the connection after an answer that refuses."""
        if self._state is State.SHUT:
            raise CloseConnection(
                "not authenticated",
                answer=answer,
                reason=CloseReason.AUTHENTICATION,
                is_told=False,
            )
        return answer

    def _turned_away(self, text: str) -> CloseConnection:
        self._state = State.SHUT
        return CloseConnection(text, reason=CloseReason.AUTHENTICATION)


def _bare(answer: TokenAnswer) -> ResponseBuffers:
    """The answer as a token without a request around it; failures have no token."""
    if answer.error is not ErrorCode.NONE:
        return None
    return [len(answer.token).to_bytes(4, "big") + answer.token]


def _flattened(later: Later[TokenAnswer | Later[TokenAnswer]]) -> Later[TokenAnswer]:
    """A value that may itself arrive later, flattened to one `Later`."""
    flat: Later[TokenAnswer] = Later()

    def pass_on(done: Later[TokenAnswer]) -> None:
        if done.is_cancelled:
            flat.cancel()
        elif done.error is not None:
            flat.fail(done.error)
        else:
            flat.give(done.result())

    def on_first(done: Later[TokenAnswer | Later[TokenAnswer]]) -> None:
        if done.is_cancelled:
            flat.cancel()
        elif done.error is not None:
            flat.fail(done.error)
        else:
            value = done.result()
            if isinstance(value, Later):
                value.on_done(pass_on)
            else:
                flat.give(value)

    later.on_done(on_first)
    return flat

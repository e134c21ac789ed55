"""Sessions against a model of KIP-368: who is in, until when, and what a second authentication may
change; random clients, on virtual time.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple, cast

from kohort.broker.config import BrokerConfig
from kohort.broker.core.security.addresses import FailureDelays
from kohort.broker.core.security.sasl import Challenge, Done, SaslFailure
from kohort.broker.core.security.session import UNKNOWN, Session
from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.service import CloseConnection, ConnectionInfo, ResponseBuffers, Service
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.security.authenticator import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    TOKENS_MAX,
    AuthenticationStep,
    SaslListener,
)
from kohort.protocol.codec import Buffer
from kohort.protocol.errors import ErrorCode
from kohort.testing.virtual_clock import VirtualClock, VirtualClockLoop

METADATA = 3
USERS = ("alice", "bob")
MECHANISMS = ("PLAIN", "OAUTHBEARER")
DELAY_MS = 100
REAUTHENTICATION_MS = 1_000


class Passwords:
    """What users have now, and who is disabled; it changes under those who are in."""

    def __init__(self) -> None:
        self.current = dict.fromkeys(USERS, 0)
        self.disabled: set[str] = set()


class SomeExchange:
    """Takes tokens like ``alice,0,500,20``: who, by which password, for how long what it shows is
    good, and after how long a check; ``more`` is answered by a challenge.
    """

    def __init__(self, passwords: Passwords) -> None:
        self.user = ""
        self._passwords = passwords

    def step(self, token: bytes) -> AuthenticationStep:
        if token == b"more":
            return Challenge(b"go on")
        user, password, good_ms, work_ms = token.decode().split(",")
        self.user = user
        is_right = self._passwords.current[user] == int(password)
        done = Done(b"welcome", user, int(good_ms) or None)
        if work_ms == "0":
            if not is_right:
                raise SaslFailure("wrong")
            return done
        later: Deferred[Done] = Deferred()
        outcome = (
            (later.set_result, done) if is_right else (later.set_exception, SaslFailure("wrong"))
        )
        asyncio.get_running_loop().call_later(int(work_ms) / 1_000, *outcome)
        return later


class Dispatcher:
    """Answers what a gate lets through: an error, and who asked."""

    def serve(
        self, connection: ConnectionInfo, frame: Buffer
    ) -> ResponseBuffers | Deferred[ResponseBuffers]:
        key = int.from_bytes(frame[:2], "big", signed=True)
        version, text = frame[3], bytes(frame[8:])
        authenticator = connection.authentication
        assert authenticator is not None
        if key == SASL_HANDSHAKE:
            return answer(authenticator.handshake(text.decode(), tokens_are_bare=version == 0))
        if key == SASL_AUTHENTICATE:
            verdict = authenticator.authenticate(text)
            if isinstance(verdict, Deferred):
                told = verdict.map(lambda one: answer(one.error, one.lifetime_ms))
                assert isinstance(told, Deferred)
                return told
            return answer(verdict.error, verdict.lifetime_ms)
        name = connection.session.principal.name
        if not text:
            return answer(ErrorCode.NONE, name)
        later: Deferred[ResponseBuffers] = Deferred()
        work_s = int(text) / 1_000
        asyncio.get_running_loop().call_later(
            work_s, later.set_result, answer(ErrorCode.NONE, name)
        )
        return later

    def refuse(self, frame: Buffer, code: ErrorCode) -> ResponseBuffers:
        return answer(code, 0)

    def connection_lost(self, connection: ConnectionInfo) -> None:
        """Nothing waits."""


def answer(error: ErrorCode, said: object = "") -> ResponseBuffers:
    return [bytes(8), error.to_bytes(2, "big", signed=True), str(said).encode()]


class SomeConnection:
    """What a gate sees of one."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.ip = "127.0.0.1"
        self.info = ConnectionInfo("/127.0.0.1", UNKNOWN)
        self._dispatcher = dispatcher
        self.service: Service = dispatcher

    def on_authenticated(self, session: Session, service: Service | None = None) -> None:
        self.info.session = session
        self.service = service or self._dispatcher


class Heard(NamedTuple):
    """What a client notices of a frame that it has sent."""

    error: ErrorCode | None
    """The error of the answer; None for no answer."""
    said: str = ""
    closes: bool = False
    after_ms: int = 0


class At(Enum):
    START = auto()
    CHOSEN = auto()
    CHOSEN_BARE = auto()
    IN = auto()


class Model:
    """The rules of one connection; `limit_ms` is connections.max.reauth.ms."""

    def __init__(self, limit_ms: int, passwords: Passwords) -> None:
        self.at = At.START
        self.is_closed = False
        self.disabled_count = 0
        """Times that somebody was refused for being disabled and for nothing else."""
        self._limit_ms = limit_ms
        self._passwords = passwords
        self._knows_versions = False
        self._chosen = ""
        self._tokens = 0
        self._user = self._mechanism = ""
        self._expires_ms: int | None = None
        self._came_ms = 0
        self._came_again = False

    def hears(self, now_ms: int, key: int, version: int, text: str) -> Heard:
        heard = self._hears(now_ms, key, version, text)
        self.is_closed |= heard.closes
        return heard

    def _hears(self, now_ms: int, key: int, version: int, text: str) -> Heard:
        if self.at is At.CHOSEN_BARE:
            # Nothing says why somebody is refused.
            heard = self._token(now_ms, text)
            return Heard(None, closes=heard.closes, after_ms=heard.after_ms)
        if self.at is At.CHOSEN:
            if key == SASL_AUTHENTICATE:
                return self._token(now_ms, text)
            return Heard(ErrorCode.ILLEGAL_SASL_STATE, "0", closes=True, after_ms=DELAY_MS)
        if key == SASL_HANDSHAKE:
            return self._handshake(now_ms, version, text)
        return self._request(now_ms, key, text) if self.at is At.IN else self._stranger(key)

    def _stranger(self, key: int) -> Heard:
        if key == API_VERSIONS and not self._knows_versions:
            self._knows_versions = True
            return Heard(ErrorCode.NONE, "ANONYMOUS")
        return Heard(None, closes=True)

    def _request(self, now_ms: int, key: int, text: str) -> Heard:
        if self._expires_ms is not None and now_ms >= self._expires_ms:
            return Heard(None, closes=True)
        if key == SASL_AUTHENTICATE:
            return Heard(ErrorCode.ILLEGAL_SASL_STATE, "0")
        return Heard(ErrorCode.NONE, self._user, after_ms=int(text or 0))

    def _handshake(self, now_ms: int, version: int, mechanism: str) -> Heard:
        if self.at is At.IN:
            is_early = self._came_again and now_ms - self._came_ms < REAUTHENTICATION_MS
            if self._expires_ms is None or is_early:
                return Heard(ErrorCode.ILLEGAL_SASL_STATE)
            self._came_again = True
        if mechanism not in MECHANISMS:
            return Heard(ErrorCode.UNSUPPORTED_SASL_MECHANISM, closes=True, after_ms=DELAY_MS)
        self.at = At.CHOSEN if version else At.CHOSEN_BARE
        self._chosen, self._tokens = mechanism, 0
        return Heard(ErrorCode.NONE)

    def _token(self, now_ms: int, token: str) -> Heard:
        self._tokens += 1
        refused = Heard(ErrorCode.SASL_AUTHENTICATION_FAILED, "0", closes=True, after_ms=DELAY_MS)
        if self._tokens > TOKENS_MAX or self._mechanism not in {"", self._chosen}:
            return refused
        if token == "more":
            return Heard(ErrorCode.NONE, "0")
        user, password, good_ms, work_ms = token.split(",")
        refused = refused._replace(after_ms=max(DELAY_MS, int(work_ms)))
        if self._passwords.current[user] != int(password) or self._user not in {"", user}:
            return refused
        if user in self._passwords.disabled:
            self.disabled_count += 1
            return refused
        lifetime_ms = min((one for one in (self._limit_ms, int(good_ms)) if one), default=0)
        self._came_ms = now_ms + int(work_ms)
        self._expires_ms = self._came_ms + lifetime_ms if lifetime_ms else None
        self._user, self._mechanism, self.at = user, self._chosen, At.IN
        return Heard(ErrorCode.NONE, str(lifetime_ms), after_ms=int(work_ms))


class Client:
    """A connection of random frames, beside its model."""

    def __init__(self, world: "World") -> None:
        self.world = world
        limit_ms = world.chance.choice((0, 0, 500, 3_000))
        self.model = Model(limit_ms, world.passwords)
        dispatcher = Dispatcher()
        self.connection = SomeConnection(dispatcher)
        config = BrokerConfig(
            connections_max_reauth_ms=limit_ms, connection_failed_authentication_delay_ms=DELAY_MS
        )
        sasl_listener = SaslListener(
            name="SASL",
            exchanges=dict.fromkeys(MECHANISMS, world.new_exchange),
            config=lambda _: config,
            dispatcher=dispatcher,
            clock=world.clock,
            log=world.log,
            delays=FailureDelays(),
            count=lambda *_: None,
            is_disabled=world.passwords.disabled.__contains__,
        )
        self.connection.service = sasl_listener.new_authenticator(cast(Connection, self.connection))

    async def say(self, key: int, version: int, text: str) -> None:
        """Send a frame, and hear what the model says."""
        is_bare = self.model.at is At.CHOSEN_BARE
        head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big") + bytes(4)
        frame = text.encode() if is_bare else head + text.encode()
        before_ms = self.world.clock.monotonic_ms()
        wanted = self.model.hears(before_ms, key, version, text)
        heard = await self._heard(frame, is_bare=is_bare)
        after_ms = self.world.clock.monotonic_ms() - before_ms
        assert heard._replace(after_ms=after_ms) == wanted, (key, version, text)
        self.world.seen[key, heard.error, heard.closes] += 1

    async def _heard(self, frame: bytes, *, is_bare: bool) -> Heard:
        closes = False
        try:
            told = self.connection.service.serve(self.connection.info, frame)
            parts = await told if isinstance(told, Deferred) else told
        except CloseConnection as error:
            parts, closes = error.answer, True
        if parts is None or is_bare:
            return Heard(None, closes=closes)
        joined = b"".join(bytes(part) for part in parts if isinstance(part, bytes))
        error_code = ErrorCode(int.from_bytes(joined[8:10], "big", signed=True))
        return Heard(error_code, joined[10:].decode(), closes)


class World:
    def __init__(self, clock: VirtualClock, seed: int) -> None:
        self.clock = clock
        self.chance = random.Random(seed)
        self.passwords = Passwords()
        self.log = PeerLog(logging.getLogger("peers"), clock)
        self.seen: Counter[tuple[int, ErrorCode | None, bool]] = Counter()
        self.disabled_count = 0

    def new_exchange(self, _ip: str) -> SomeExchange:
        return SomeExchange(self.passwords)

    async def run(self, steps: int) -> None:
        client = Client(self)
        for _ in range(steps):
            if client.model.is_closed or self.chance.random() < 0.05:
                self.disabled_count += client.model.disabled_count
                client.connection.service.connection_lost(client.connection.info)
                client = Client(self)
            await self._step(client)

    async def _step(self, client: Client) -> None:
        pick = self.chance.random()
        if pick < 0.15:
            await asyncio.sleep(self.chance.choice((1, 100, 499, 500, 999, 1_000, 2_999)) / 1_000)
        elif pick < 0.18:
            self.passwords.current[self.chance.choice(USERS)] ^= 1
        elif pick < 0.2:
            self.passwords.disabled ^= {self.chance.choice(USERS)}
        else:
            await client.say(*self._frame(client.model.at))

    def _frame(self, at: At) -> tuple[int, int, str]:
        choose = self.chance.choice
        right = {
            At.START: SASL_HANDSHAKE,
            At.CHOSEN: SASL_AUTHENTICATE,
            At.CHOSEN_BARE: SASL_AUTHENTICATE,
            At.IN: choose((METADATA, SASL_HANDSHAKE)),
        }[at]
        any_key = choose((METADATA, API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE))
        key = right if self.chance.random() < 0.9 else any_key
        if key == SASL_HANDSHAKE and at is not At.CHOSEN_BARE:
            return key, choose((0, 1, 1, 1)), choose((*MECHANISMS * 5, "GSSAPI"))
        if key == SASL_AUTHENTICATE or at is At.CHOSEN_BARE:
            return key, 2, self._token()
        return key, 0, choose(("", "", "700")) if at is At.IN else ""

    def _token(self) -> str:
        choose: Callable[[tuple[int, ...]], int] = self.chance.choice
        if self.chance.random() < 0.4:
            return "more"
        user = self.chance.choice(("alice", "alice", "alice", "bob"))
        password = self.passwords.current[user]
        if self.chance.random() < 0.1:
            password ^= 1
        return f"{user},{password},{choose((0, 0, 400, 10_000))},{choose((0, 0, 30, 250))}"


def test_sessions_are_those_of_the_model(long_form: bool) -> None:
    clock = VirtualClock()
    world = World(clock, seed=1)
    with asyncio.Runner(loop_factory=lambda: VirtualClockLoop(clock)) as runner:
        runner.run(world.run(1_000_000 if long_form else 5_000))
    # Everything has happened that there are rules for.
    assert len(world.seen) >= 14, world.seen
    assert world.disabled_count >= 14

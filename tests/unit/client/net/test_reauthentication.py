"""Connections that authenticate again before their session ends, on virtual time; the broker's part
is played after KIP-368.
"""

import asyncio
import traceback
from collections.abc import Iterable
from itertools import pairwise

import pytest

from kohort.client.net.config import ConnectionConfig
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.loop_tokens import token_for
from kohort.client.net.security import SecurityConfig
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.framing import read_request_prefix, response_frame
from tests.support import messages as m
from tests.support.virtual_time import virtual

VERSIONS, HANDSHAKE, AUTHENTICATE, HEARTBEAT = 18, 17, 36, 12
REQUEST = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
LIFETIME_S = 100.0
LATENCY_S = 0.001


class Broker(asyncio.Transport):
    """Executes one request after another, and closes the connection when the rules say so."""

    def __init__(self, connection: BrokerConnection) -> None:
        super().__init__()
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._working = self._loop.create_task(self._work())
        self._working.add_done_callback(self._raise)
        self._end_s = float("inf")
        self._is_negotiating = True
        self.asked: list[int] = []
        self.tokens: list[str] = []
        self.lifetime_s = LIFETIME_S
        self.refused = ""
        """The token that is refused."""
        self.parked = asyncio.Event()
        """Not set: heartbeats are answered only when it is."""
        self.parked.set()
        self.broke_rule: str | None = None
        connection.connection_made(self)

    @staticmethod
    def _raise(done: asyncio.Task[None]) -> None:
        """A mistake of the test's must not look like a broker that does not answer."""
        if not done.cancelled() and (error := done.exception()) is not None:
            traceback.print_exception(error)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        frame = b"".join(list_of_data)
        self._queue.put_nowait(frame[4:])

    def abort(self) -> None:
        self._working.cancel()
        self._loop.call_soon(self._connection.connection_lost, None)

    async def _work(self) -> None:
        while True:
            frame = await self._queue.get()
            await asyncio.sleep(LATENCY_S)
            header, position = read_request_prefix(frame)
            key, version = header.api_key, header.api_version
            self.asked.append(key)
            answer = await self._answer(key, version, frame[position:])
            if answer is None:
                self._connection.connection_lost(None)
                return
            # Of what is asked here only SaslAuthenticate has tags.
            has_tags = key == AUTHENTICATE
            body = codec(type(answer), version).encode(answer)
            self._send(response_frame(header.correlation_id, body, header_has_tags=has_tags))

    async def _answer(self, key: int, version: int, body: bytes) -> object | None:
        now_s = self._loop.time()
        if key == VERSIONS:
            apis = ((VERSIONS, 0, 3), (HANDSHAKE, 0, 1), (AUTHENTICATE, 0, 2), (HEARTBEAT, 0, 0))
            return m.ApiVersionsResponse(
                error_code=0,
                api_keys=[
                    m.ApiVersion(api_key=key, min_version=low, max_version=high)
                    for key, low, high in apis
                ],
            )
        if key == HANDSHAKE:
            self._is_negotiating = True
            return m.SaslHandshakeResponse(error_code=0, mechanisms=["OAUTHBEARER"])
        if key == AUTHENTICATE:
            request, _ = codec(m.SaslAuthenticateRequest, version).decode(body[1:])
            return self._authenticated(bytes(request.auth_bytes))
        if self._is_negotiating or now_s > self._end_s:
            self.broke_rule = "it is negotiated" if self._is_negotiating else "the session is over"
            return None
        await self.parked.wait()
        return m.HeartbeatResponse(error_code=0)

    def _authenticated(self, data: bytes) -> object:
        if data == b"\x01":
            return m.SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message='{"status":"invalid_token"}',
                auth_bytes=b"",
            )
        text = data.decode()
        assert text.startswith("n,,\x01auth=Bearer ")
        token = text.removeprefix("n,,\x01auth=Bearer ").removesuffix("\x01\x01")
        self.tokens.append(token)
        if token == self.refused:
            return m.SaslAuthenticateResponse(
                error_code=0, error_message=None, auth_bytes=b'{"status":"invalid_token"}'
            )
        self._is_negotiating = False
        self._end_s = self._loop.time() + self.lifetime_s
        return m.SaslAuthenticateResponse(
            error_code=0,
            error_message=None,
            auth_bytes=b"",
            session_lifetime_ms=int(self.lifetime_s * 1000),
        )

    def _send(self, data: bytes) -> None:
        view = self._connection.get_buffer(-1)
        view[: len(data)] = data
        self._connection.buffer_updated(len(data))


class Tokens:
    """Numbers them."""

    def __init__(self) -> None:
        self.count = 0
        self.failure: Exception | None = None
        self.takes_s = 0.0

    async def token(self) -> str:
        await asyncio.sleep(self.takes_s)
        if self.failure is not None:
            raise self.failure
        self.count += 1
        return f"token-{self.count}"


async def connected(tokens: Tokens) -> tuple[BrokerConnection, Broker]:
    security = SecurityConfig(
        "SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=tokens
    )
    connection = BrokerConnection("broker:1", ConnectionConfig(security=security))
    broker = Broker(connection)
    await connection.greet(await token_for(security, 30))
    return connection, broker


@virtual
async def test_requests_go_on_while_a_token_is_waited_for() -> None:
    tokens = Tokens()
    connection, broker = await connected(tokens)
    await asyncio.sleep(0.95 * LIFETIME_S)
    tokens.takes_s = 3
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await connection.call(REQUEST)
    assert loop.time() - began_s < 0.1
    assert len(broker.tokens) == 1
    await asyncio.sleep(4)
    assert len(broker.tokens) == 2
    connection.close()


@virtual
async def test_a_parked_request_is_answered_first_and_those_after_it_later() -> None:
    connection, broker = await connected(Tokens())
    broker.parked.clear()
    join = asyncio.create_task(connection.call(REQUEST, timeout_ms=300_000))
    await asyncio.sleep(0.96 * LIFETIME_S)
    later = asyncio.create_task(connection.call(REQUEST, timeout_ms=300_000))
    # Longer than the timeout of a handshake, and beyond the end of the session.
    await asyncio.sleep(LIFETIME_S)
    assert not connection.is_closed
    assert connection.in_flight_count == 2
    broker.parked.set()
    assert (await join).error_code == 0
    assert (await later).error_code == 0
    assert broker.asked[-4:] == [HEARTBEAT, HANDSHAKE, AUTHENTICATE, HEARTBEAT]
    connection.close()


@virtual
async def test_a_provider_that_fails_for_a_while_does_not_cost_the_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tokens = Tokens()
    connection, broker = await connected(tokens)
    await asyncio.sleep(0.95 * LIFETIME_S)
    tokens.failure = OSError("the issuer is away")
    await connection.call(REQUEST)
    await asyncio.sleep(0.1)
    assert "the session could not be renewed yet: " in caplog.text
    assert "the issuer is away" in caplog.text
    tokens.failure = None
    await asyncio.sleep(1.5)
    await connection.call(REQUEST)
    await asyncio.sleep(0.1)
    assert len(broker.tokens) == 2
    await asyncio.sleep(0.5 * LIFETIME_S)
    await connection.call(REQUEST)
    assert broker.broke_rule is None
    connection.close()


@virtual
async def test_a_provider_that_fails_beyond_the_session_ends_the_connection() -> None:
    tokens = Tokens()
    connection, broker = await connected(tokens)
    tokens.failure = OSError("the issuer is away")
    await asyncio.sleep(LIFETIME_S + 1)
    with pytest.raises(DisconnectedError, match=r"session has ended: .* the issuer is away"):
        await connection.call(REQUEST)
    assert connection.is_closed
    assert broker.broke_rule is None


@virtual
async def test_a_token_that_is_refused_ends_the_connection_and_is_not_offered_again() -> None:
    tokens = Tokens()
    connection, broker = await connected(tokens)
    broker.refused = "token-2"
    await asyncio.sleep(LIFETIME_S + 1)
    with pytest.raises(DisconnectedError, match=r'{"status":"invalid_token"}'):
        await connection.call(REQUEST)
    assert connection.is_closed
    assert broker.tokens == ["token-1", "token-2"]


@virtual
async def test_sessions_shorter_than_the_broker_renews_them_are_renewed_when_it_does() -> None:
    tokens = Tokens()
    connection, broker = await connected(tokens)
    broker.lifetime_s = 0.3
    await asyncio.sleep(LIFETIME_S + 1)
    loop = asyncio.get_running_loop()
    times_s = []
    for _ in range(5):
        await connection.call(REQUEST)
        times_s.append(loop.time())
        await asyncio.sleep(0.35)
    assert broker.broke_rule is None
    assert all(after - before >= 1 for before, after in pairwise(times_s))
    connection.close()


@virtual
async def test_a_connection_that_is_closed_meanwhile_ends_everything() -> None:
    tokens = Tokens()
    connection, _ = await connected(tokens)
    await asyncio.sleep(LIFETIME_S + 1)
    tokens.takes_s = 20
    call = asyncio.create_task(connection.call(REQUEST))
    await asyncio.sleep(5)
    connection.close("enough")
    with pytest.raises(DisconnectedError, match="enough"):
        await call
    await connection.wait_closed()
    assert connection.in_flight_count == 0
    assert connection._renewing is None

"""Issuers of tokens that are out of order: a broker starts, and answers every login."""

import asyncio
import socket
import ssl
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import pytest

from kohort.broker.config import load
from kohort.broker.core.security.sasl import Done, SaslFailure
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.security.tokens import FETCH_AGAIN_MS, KEYS_BYTES_MAX, Tokens, fetch_keys
from kohort.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kohort.testing.virtual_clock import VirtualClock
from tests.integration.test_oauth import ELLIPTIC, offer, published, settings, token
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.certificates import Authority
from tests.support.network.issuer import HEAD, Issuer, Serve, saying, sized
from tests.support.network.wire import RawClient

CHUNKED: Final = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LIMIT_S: Final = 0.5
PATIENT_S: Final = 20.0
DRIP_S: Final = 0.05
KEEPS_SENDING: Final = bytes(64 * 1024)
HOUR_MS: Final = 3_600_000

T = TypeVar("T")


def dripping(begin: bytes, drop: bytes) -> Serve:
    """Say the beginning, and then drop after drop for ever."""

    def serve(client: socket.socket) -> None:
        client.sendall(begin)
        while True:
            time.sleep(DRIP_S)
            client.sendall(drop)

    return serve


def flooding(begin: bytes, flood: bytes) -> Serve:
    """Say the beginning, and then as much as the peer takes."""

    def serve(client: socket.socket) -> None:
        client.sendall(begin)
        while True:
            client.sendall(flood)

    return serve


DEEP: Final = b'{"keys":' + b"[" * 400_000
BAD: Final[dict[str, Serve]] = {
    "leaves at once": saying(b""),
    "garbage": saying(b"\x16\x03\x01 what is this\r\n\r\n"),
    "garbage status": saying(b"HTTP/1.1 two hundred\r\n\r\n"),
    "status alone": saying(b"HTTP/1.1 200 OK\r\n"),
    "truncated chunk": saying(CHUNKED + b"ffff\r\n{"),
    "no chunk": saying(CHUNKED + b"zz\r\n{"),
    "negative length": saying(HEAD + b"Content-Length: -5\r\n\r\n{}"),
    "truncated body": saying(HEAD + b"Content-Length: 500\r\n\r\n{"),
    "ten megabytes": saying(sized(bytes(10_000_000))),
    "endless body": flooding(HEAD + b"\r\n", KEEPS_SENDING),
    "endless chunks": flooding(CHUNKED, b"10000\r\n" + KEEPS_SENDING + b"\r\n"),
    "endless headers": flooding(HEAD, b"x: y\r\n" * 1_000),
    "endless line": flooding(HEAD + b"x: ", b"y" * 65_536),
    "deep": saying(sized(DEEP)),
    "another encoding": saying(sized(b"\xff\xfe\xfd")),
    "no keys": saying(sized(b'{"keys": []}')),
    "keys of no use": saying(sized(b'{"keys": [{"kty": ["RSA"]}, {"kty": "OKP", "crv": 5}, 7]}')),
    "an error": saying(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
}
SLOW: Final[dict[str, Serve]] = {
    "silent": lambda client: time.sleep(60),
    "drips a body": dripping(HEAD + b"Content-Length: 100000\r\n\r\n{", b" "),
    "drips chunks": dripping(CHUNKED, b"1\r\n \r\n"),
    "drips without a length": dripping(HEAD + b'\r\n{"keys": [', b" "),
}


@pytest.mark.parametrize("kind", [*BAD, *SLOW])
def test_a_fetch_fails_in_time_and_in_little_memory(kind: str) -> None:
    begun_s = time.monotonic()
    with Issuer((BAD | SLOW)[kind]) as issuer:
        tracemalloc.start()
        try:
            # Keys are looked for later: these are the only errors that are expected until then.
            data = fetch_keys(issuer.url, LIMIT_S)
        except (OSError, ValueError):
            pass
        else:
            assert len(data) <= KEYS_BYTES_MAX
            assert kind not in SLOW
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    # A loaded machine is late, too; by the time of each read it would be more than a minute.
    assert time.monotonic() - begun_s < LIMIT_S + 20
    assert most_bytes < 8 * KEYS_BYTES_MAX
    assert len(issuer.asked) == 1


@pytest.mark.parametrize("to", ["itself", "another"])
def test_no_redirect_is_followed(to: str) -> None:
    with Issuer(saying(b"")) as other, Issuer(saying(b"")) as issuer:
        where = issuer.url if to == "itself" else other.url
        issuer.serve = saying(b"HTTP/1.1 302 Go\r\nLocation: %s\r\n\r\n" % where.encode())
        with pytest.raises(OSError, match="302"):
            fetch_keys(issuer.url, PATIENT_S)
        assert (len(issuer.asked), len(other.asked)) == (1, 0)


def test_keys_come_over_tls_and_from_no_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("issuer", "IP:127.0.0.1"))

    def serve(client: socket.socket) -> None:
        # The hello was taken for the request; it is not lost.
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        incoming.write(issuer.asked[-1])
        tls = context.wrap_bio(incoming, outgoing, server_side=True)

        def until_done(step: Callable[[], object]) -> None:
            while True:
                try:
                    step()
                except ssl.SSLWantReadError:
                    client.sendall(outgoing.read())
                    incoming.write(client.recv(65_536))
                else:
                    client.sendall(outgoing.read())
                    return

        until_done(tls.do_handshake)
        until_done(lambda: tls.read(65_536))
        until_done(lambda: tls.write(sized(b'{"keys": []}')))

    with Issuer(serve) as issuer:
        url = issuer.url.replace("http:", "https:")
        with pytest.raises(OSError, match="certificate"):
            fetch_keys(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.directory / "ca.pem"))
        assert fetch_keys(url) == b'{"keys": []}'


@pytest.fixture
def keys(tmp_path: Path) -> bytes:
    published(tmp_path / "jwks.json", {"e": ELLIPTIC})
    return sized((tmp_path / "jwks.json").read_bytes())


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in {"an error", "endless body"} else pytest.mark.long)
        for kind in [*BAD, "drips a body"]
    ],
)
def test_a_broker_starts_answers_logins_and_knows_the_keys_when_they_come(
    tmp_path: Path, keys: bytes, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Issuer((BAD | SLOW)[kind]) as issuer,
        BrokerThread(tmp_path / "data", overrides=settings(issuer.url)) as broker,
    ):
        assert "has no token keys yet" in caplog.text
        (tokens,) = broker.broker.listeners.tokens
        tokens._tried_ms -= FETCH_AGAIN_MS
        with RawClient(broker.port) as client:
            assert offer(client, token()).auth_bytes == b'{"status":"invalid_token"}'
        assert "Cannot fetch the token keys" in caplog.text
        assert len(issuer.asked) == 2
        issuer.serve = saying(keys)
        tokens._tried_ms -= FETCH_AGAIN_MS
        with RawClient(broker.port) as client:
            assert not offer(client, token()).auth_bytes
            assert client.call(MetadataRequest(topics=[]), 9, MetadataResponse).brokers
    assert "Traceback" not in caplog.text


class Listener:
    """The tokens of a listener, on a clock that moves as it is told."""

    def __init__(self, issuer: Issuer, executor: ThreadPoolExecutor) -> None:
        self.clock = VirtualClock()
        given = [f"{name}={value}" for name, value in settings(issuer.url).items()]
        config = load(overrides=given, environment={}).config
        self.tokens = Tokens("L", config, clock=self.clock, executor=executor)

    def token(self, kid: str = "e") -> str:
        now_s = self.clock.wall_ms() // 1000
        return token(kid=kid, iat=now_s, exp=now_s + 3_600)

    async def admits(self, kid: str = "e") -> bool:
        try:
            outcome = self.tokens.check(self.token(kid))
            done = await finished(outcome) if isinstance(outcome, Deferred) else outcome
        except SaslFailure:
            return False
        assert done.user == "alice"
        return True

    async def fetched(self) -> None:
        """Wait for the fetch under way, if there is one."""
        if self.tokens._fetching is not None:
            await finished(self.tokens._fetching)


async def finished(later: Deferred[T]) -> T:
    async with asyncio.timeout(30):
        return await later


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


@pytest.mark.parametrize("kind", ["an error", "truncated chunk", "deep", "ten megabytes"])
async def test_old_keys_serve_for_a_day_while_their_source_is_broken(
    keys: bytes, kind: str, executor: ThreadPoolExecutor
) -> None:
    with Issuer(saying(keys)) as issuer:
        listener = Listener(issuer, executor)
        issuer.serve = BAD[kind]
        assert await listener.admits()
        assert len(issuer.asked) == 1
        for hour in range(1, 24):
            listener.clock.advance(HOUR_MS)
            assert await listener.admits()
            await listener.fetched()
            # Each hour it is asked, and for other tokens once in ten seconds.
            assert len(issuer.asked) == 1 + hour
            assert await listener.admits()
            assert len(issuer.asked) == 1 + hour
        listener.clock.advance(HOUR_MS - 1)
        assert await listener.admits()
        await listener.fetched()
        listener.clock.advance(1)
        # Also right after a fetch, when there is none to wait for.
        assert not await listener.admits()
        listener.clock.advance(FETCH_AGAIN_MS)
        # Also after a fetch that it has waited for.
        assert not await listener.admits()
        issuer.serve = saying(keys)
        listener.clock.advance(FETCH_AGAIN_MS)
        assert await listener.admits()


async def test_a_key_that_is_not_known_waits_for_one_fetch_and_all_wait_for_the_same(
    keys: bytes, executor: ThreadPoolExecutor
) -> None:
    with Issuer(saying(keys)) as issuer:
        listener = Listener(issuer, executor)
        listener.clock.advance(FETCH_AGAIN_MS)
        outcomes = [listener.tokens.check(listener.token(f"k{number}")) for number in range(50)]
        waiting: list[Deferred[Done]] = [one for one in outcomes if isinstance(one, Deferred)]
        assert len(waiting) == 50
        for one in waiting:
            with pytest.raises(SaslFailure, match="not known"):
                await finished(one)
        assert len(issuer.asked) == 2
        assert not await listener.admits("k1")
        assert len(issuer.asked) == 2


async def test_a_fault_in_a_fetch_leaves_no_login_waiting(
    keys: bytes, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> bytes:
        raise ZeroDivisionError

    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: faults.append(told))
    with Issuer(saying(keys)) as issuer:
        listener = Listener(issuer, executor)
        monkeypatch.setattr("kohort.broker.security.tokens.fetch_keys", broken)
        listener.clock.advance(FETCH_AGAIN_MS)
        assert not await listener.admits("new")
        assert await listener.admits()
    assert len(faults) == 1

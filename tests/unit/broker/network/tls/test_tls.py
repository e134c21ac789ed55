"""TLS without a socket: the pump, and the connection behind it, fed in every size of pieces."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker.core.security.session import ANONYMOUS
from kohort.broker.network.connection.limits import NetworkLimits
from kohort.broker.network.timeouts import CloseReason
from kohort.broker.network.tls.handshakes import THREADS
from kohort.broker.network.tls.pump import RECORD_BYTES, TlsError, TlsPump
from tests.support.brokers.certificates import Authority
from tests.support.network.wire import framed
from tests.support.waiting import turns
from tests.unit.broker.network.edge import Edge, bodies
from tests.unit.broker.network.tls_edge import Client, Peer, server_context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def key_store(authority: Authority) -> Path:
    return authority.issue("broker", "DNS:localhost")


@pytest.fixture
def context(key_store: Path) -> ssl.SSLContext:
    return server_context(key_store)


def do_handshake(pump: TlsPump, client: Client, piece_bytes: int) -> None:
    to_pump = client.take(b"")
    for _ in range(10):
        for piece in pieces(to_pump, piece_bytes):
            pump.feed(memoryview(piece))
            if not pump.is_established:
                pump.do_handshake()
        to_pump = client.take(pump.take_output())
        if pump.is_established and client.is_established and not to_pump:
            return


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("piece_bytes", [1, 5, RECORD_BYTES])
def test_a_handshake_and_records_may_come_in_pieces_of_any_size(
    authority: Authority, context: ssl.SSLContext, version: ssl.TLSVersion, piece_bytes: int
) -> None:
    pump, client = TlsPump(context), Client(authority, version=version)
    do_handshake(pump, client, piece_bytes)
    assert pump.is_established
    place, found = memoryview(bytearray(100)), b""
    for piece in pieces(client.send(b"hello" * 1_000), piece_bytes):
        pump.feed(memoryview(piece))
        while count := pump.read_into(place):
            found += place[:count]
    assert found == b"hello" * 1_000
    pump.write(memoryview(b"good day"))
    client.take(pump.take_output())
    assert client.plain == b"good day"


def test_a_hello_that_is_cut_anywhere_is_waited_for(
    authority: Authority, context: ssl.SSLContext
) -> None:
    hello = Client(authority).take(b"")
    for cut in range(len(hello)):
        pump = TlsPump(context)
        pump.feed(memoryview(hello[:cut]))
        pump.do_handshake()
        assert not pump.is_established


def test_what_is_not_tls_is_refused_with_an_alert(context: ssl.SSLContext) -> None:
    pump = TlsPump(context)
    pump.feed(memoryview(b"\0\0\0\x14\0\x12\0\x03" + bytes(100)))
    with pytest.raises(TlsError, match=r"^a client without TLS on a port with TLS; see its secu"):
        pump.do_handshake()


def test_a_client_that_does_not_trust_the_broker_is_told_of_as_that(
    context: ssl.SSLContext, tmp_path: Path
) -> None:
    pump, client = TlsPump(context), Client(Authority(tmp_path))
    pump.feed(memoryview(client.take(b"")))
    pump.do_handshake()
    with pytest.raises(ssl.SSLCertVerificationError):
        client.take(pump.take_output())
    pump.feed(memoryview(client.alert()))
    told = "^the client rejects this broker's certificate: its trust store lacks the authority"
    with pytest.raises(TlsError, match=told):
        pump.do_handshake()


def test_a_record_that_was_changed_is_refused(
    authority: Authority, context: ssl.SSLContext
) -> None:
    pump, client = TlsPump(context), Client(authority)
    do_handshake(pump, client, RECORD_BYTES)
    record = bytearray(client.send(b"hello"))
    record[-1] ^= 1
    pump.feed(memoryview(record))
    with pytest.raises(TlsError, match="mac"):
        pump.read_into(memoryview(bytearray(100)))
    assert pump.take_output()


@pytest.fixture
async def edge() -> Edge:
    return Edge(NetworkLimits(socket_request_max_bytes=1 << 22))


@pytest.fixture
async def peer(edge: Edge, authority: Authority, context: ssl.SSLContext) -> Peer:
    return Peer(edge, authority, context)


async def test_a_client_is_let_in_when_the_handshake_is_over(peer: Peer, edge: Edge) -> None:
    assert peer.connection.info.session.principal == ANONYMOUS
    await peer.do_handshake()
    assert peer.connection.info.session.principal.name == "TLSv1.3"
    assert await peer.ask(b"one", b"two") == [b"one", b"two"]


async def test_a_large_request_and_a_large_answer_pass(peer: Peer, edge: Edge) -> None:
    await peer.do_handshake()
    large = b"large" + bytes(3_000_000)
    edge.service.response = bytes(2_000_000)
    (first, *_) = await peer.ask(b"one", large)
    assert first == b"one"
    assert edge.service.begun == [b"one", large[:100]]
    assert edge.metrics.sent_bytes == 4 + 3 + 4 + 100 + 2_000_000
    assert edge.server.memory.used_bytes == 0


async def test_who_does_not_read_stops_being_served(peer: Peer, edge: Edge) -> None:
    await peer.do_handshake()
    peer.transport.takes_all = False
    edge.service.response = bytes(1_000_000)
    for _ in range(10):
        peer.transport.send(peer.client.send(framed(b"large")))
        for _ in range(6):
            await asyncio.sleep(0)
    held = peer.transport.get_write_buffer_size()
    # What the transport has is one slice above its limit at most; the rest is not encrypted.
    assert held < (2 << 20) + 3 * 65_536
    assert len(edge.service.begun) == 2
    assert edge.server.unsent.total_bytes > 0
    peer.transport.takes_all = True
    for _ in range(60):
        peer.transport.take(1 << 30)
        await asyncio.sleep(0)
    peer.answer()
    assert len(peer.client.plain) == 10 * (4 + 5 + 1_000_000)


async def test_a_client_without_a_principal_is_closed_and_counted(peer: Peer, edge: Edge) -> None:
    peer.side.refuses = True
    await peer.do_handshake()
    await asyncio.sleep(0)
    assert peer.transport.is_lost
    assert edge.metrics.closed[CloseReason.TLS] == 1


async def test_nonsense_ends_the_connection_with_an_alert(peer: Peer, edge: Edge) -> None:
    peer.transport.send(framed(b"\0\x12\0\x03" + bytes(50)))
    for _ in range(4):
        await asyncio.sleep(0)
    assert peer.transport.is_lost
    assert edge.metrics.closed[CloseReason.TLS] == 1


async def test_a_client_that_says_goodbye_is_answered_likewise(peer: Peer) -> None:
    await peer.do_handshake()
    with pytest.raises(ssl.SSLWantReadError):
        peer.client.tls.unwrap()
    peer.transport.send(peer.client._out.read())
    await asyncio.sleep(0)
    peer.client._in.write(bytes(peer.transport.taken))
    peer.client.tls.unwrap()
    await asyncio.sleep(0)
    assert peer.transport.is_lost


async def test_a_client_that_says_goodbye_and_does_not_read_stops_no_other(
    peer: Peer, edge: Edge
) -> None:
    await peer.do_handshake()
    peer.transport.takes_all = False
    edge.service.response = bytes(4_000_000)
    peer.transport.send(peer.client.send(framed(b"large")))
    for _ in range(6):
        await asyncio.sleep(0)
    with pytest.raises(ssl.SSLWantReadError):
        peer.client.tls.unwrap()
    peer.transport.send(peer.client._out.read())
    peer.transport.takes_all = True
    for _ in range(60):
        peer.transport.take(1 << 30)
        await asyncio.sleep(0)
    with pytest.raises(ssl.SSLZeroReturnError):
        peer.answer()
    assert len(peer.client.plain) == 4 + 5 + 4_000_000
    assert peer.transport.is_lost


async def test_a_fault_in_one_handshake_ends_its_connection_and_no_other(
    edge: Edge, authority: Authority, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    broken, whole = (Peer(edge, authority, context) for _ in range(2))
    broken.side.fault = ZeroDivisionError()
    await broken.do_handshake()
    await whole.do_handshake()
    assert broken.transport.is_lost
    assert edge.metrics.closed[CloseReason.FAULT] == 1
    assert await whole.ask(b"one") == [b"one"]
    assert "Internal error" in caplog.text


async def test_who_is_in_does_not_wait_for_those_who_shake_hands(
    peer: Peer, edge: Edge, authority: Authority, context: ssl.SSLContext
) -> None:
    await peer.do_handshake()
    tls = peer.tls
    tls.pause_reading()
    # It reads all the same, as transports may once more.
    data = peer.client.send(framed(b"one"))
    tls.get_buffer(-1)[: len(data)] = data
    tls.buffer_updated(len(data))
    arriving = [Peer(edge, authority, context) for _ in range(100)]
    for one in arriving:
        one.transport.send(one.client.take(b""))
    tls.resume_reading()
    for _ in range(5):
        await asyncio.sleep(0)
    peer.answer()
    assert bodies(peer.client.plain) == [b"one"]
    waiting = [one for one in arriving if not one.transport.taken]
    assert len(waiting) > 50


async def test_addresses_take_turns_at_shaking_hands(
    edge: Edge, authority: Authority, context: ssl.SSLContext
) -> None:
    crowd = [Peer(edge, authority, context, "127.0.0.2") for _ in range(50)]
    one = Peer(edge, authority, context)
    for peer in (*crowd, one):
        peer.transport.send(peer.client.take(b""))
    await turns(2)
    assert one.transport.taken
    assert sum(bool(peer.transport.taken) for peer in crowd) <= 2 * THREADS


async def test_who_is_gone_takes_no_turn_at_shaking_hands(
    edge: Edge, authority: Authority, context: ssl.SSLContext
) -> None:
    peers = [Peer(edge, authority, context) for _ in range(50)]
    for peer in peers:
        peer.transport.send(peer.client.take(b""))
    for peer in peers[:-1]:
        peer.transport.lose()
    for _ in range(3):
        await asyncio.sleep(0)
    assert peers[-1].transport.taken

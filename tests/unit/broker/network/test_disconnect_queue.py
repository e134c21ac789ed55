"""Clients that end their connections or are late: few are closed in a turn, and each is closed."""

import asyncio
import ssl
from pathlib import Path

import pytest

from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.connection.limits import NetworkLimits
from kohort.broker.network.iteration import DISCONNECTS_PER_SLICE
from kohort.broker.network.service import Listener
from kohort.broker.network.timeouts import CloseReason
from kohort.broker.network.tls.connection import TlsConnection
from kohort.broker.runtime.slices import ITERATIONS_BETWEEN
from tests.support.brokers.certificates import Authority
from tests.support.network.memory_transport import MemoryTransport
from tests.support.network.wire import framed
from tests.support.waiting import turns
from tests.unit.broker.network.edge import Edge, bodies


@pytest.fixture
async def edge() -> Edge:
    return Edge(NetworkLimits())


class _Stuck(asyncio.Transport):
    """Raises when it is closed."""

    def __init__(self, closed: list["_Stuck"]) -> None:
        super().__init__()
        self._closed = closed

    def close(self) -> None:
        self._closed.append(self)
        raise RuntimeError("as the loop's might")


async def most_closed_in_a_turn(edge: Edge, crowd: list[MemoryTransport]) -> int:
    """The most of a crowd that ends at once, while another client is answered in every turn."""
    other = edge.connect()
    for peer in crowd:
        peer.end()
    most = lost = 0
    for turn in range(1, (len(crowd) // DISCONNECTS_PER_SLICE + 1) * ITERATIONS_BETWEEN + 2):
        other.send(framed(b"one"))
        await turns(1)
        assert len(bodies(other.taken)) == turn
        lost_now = sum(peer.is_lost for peer in crowd)
        most, lost = max(most, lost_now - lost), lost_now
    assert lost == len(crowd)
    assert edge.server.connection_count == 1
    return most


async def test_of_many_who_end_at_once_few_are_closed_in_a_turn(edge: Edge) -> None:
    crowd = [edge.connect() for _ in range(20 * DISCONNECTS_PER_SLICE)]
    assert await most_closed_in_a_turn(edge, crowd) == DISCONNECTS_PER_SLICE
    assert edge.metrics.closed == {"client": len(crowd)}
    assert len(edge.server.disconnects) == 0


async def test_of_many_with_tls_few_are_closed_in_a_turn(edge: Edge, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Authority(tmp_path).issue("broker", "DNS:localhost"))
    crowd = []
    for _ in range(5 * DISCONNECTS_PER_SLICE):
        inner = Connection(edge.server, Listener("SSL"))
        outer = TlsConnection(edge.server, inner, context, lambda *_: None)
        crowd.append(MemoryTransport(outer))
    assert await most_closed_in_a_turn(edge, crowd) == DISCONNECTS_PER_SLICE


async def test_a_client_that_ends_alone_is_gone_after_two_scheduler(edge: Edge) -> None:
    peer = edge.connect()
    peer.send(framed(b"park"))
    await turns()
    peer.end()
    await turns(2)
    assert edge.service.parked[b"park"].is_cancelled
    assert edge.server.connection_count == 0


async def test_what_was_sent_before_the_end_is_answered(edge: Edge) -> None:
    peer = edge.connect()
    peer.send(framed(b"one"))
    peer.end()
    await turns(3)
    assert bodies(peer.taken) == [b"one"]
    assert peer.is_lost


async def test_an_end_is_read_once_more_by_a_connection_that_reads_again(edge: Edge) -> None:
    peer = edge.connect()
    crowd = [edge.connect() for _ in range(DISCONNECTS_PER_SLICE)]
    for one in (*crowd, peer):
        one.end()
    peer.pause_reading()
    peer.resume_reading()
    await turns(6)
    assert peer.is_lost
    assert edge.metrics.closed == {"client": len(crowd) + 1}


async def test_who_is_closed_for_another_reason_meanwhile_is_closed_once(edge: Edge) -> None:
    peers, connections = [], []
    for _ in range(2 * DISCONNECTS_PER_SLICE):
        peers.append(edge.connect())
        connections.append(edge.connection)
    for peer in peers:
        peer.end()
    connections[-1].abort(CloseReason.SHUTDOWN)
    await turns(6)
    assert all(peer.is_lost for peer in peers)
    assert edge.metrics.closed == {"client": len(peers) - 1, "shutdown": 1}


@pytest.mark.parametrize("count", [1, 2, DISCONNECTS_PER_SLICE + 1])
async def test_a_transport_that_cannot_be_closed_keeps_none_waiting(
    edge: Edge, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    disconnects, closed = edge.server.disconnects, list[_Stuck]()
    for _ in range(count):
        disconnects.add(_Stuck(closed))
    await turns(50)
    assert len(disconnects) == 0
    assert len(closed) == len(set(closed)) == count
    assert len(caplog.records) == count
    last = edge.connect()
    last.end()
    await turns(2)
    assert last.is_lost


async def test_of_many_who_are_late_at_once_few_are_closed_in_a_turn(edge: Edge) -> None:
    await edge.server.listen([], Listener("PLAINTEXT"))
    listener = Listener("SASL_PLAINTEXT", new_service=lambda _: edge.service)
    count = 5 * DISCONNECTS_PER_SLICE + 1
    crowd = [MemoryTransport(Connection(edge.server, listener)) for _ in range(count)]
    while not any(peer.is_lost for peer in crowd):
        await turns()
        edge.clock.advance(1_000)
        edge.server._begin_check()
    lost = []
    for _ in range(6):
        lost.append(sum(peer.is_lost for peer in crowd))
        await turns(1)
    assert lost == [*range(DISCONNECTS_PER_SLICE, count, DISCONNECTS_PER_SLICE), count]
    assert edge.metrics.closed == {"authentication_timeout": count}
    await edge.server.close(0)

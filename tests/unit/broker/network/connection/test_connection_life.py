"""How a connection begins and ends: refused, closed by either side, late, or gone."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.connection.limits import NetworkLimits
from kohort.broker.network.service import Listener
from kohort.testing.virtual_clock import VirtualClock, VirtualClockLoop
from tests.support.network.wire import framed
from tests.support.waiting import turns
from tests.unit.broker.network.edge import Edge, bodies


@pytest_asyncio.fixture
async def edge() -> AsyncIterator[Edge]:
    edge = Edge(NetworkLimits())
    yield edge
    await edge.server.close(100)


async def test_a_promise_to_a_client_that_is_gone_is_forgotten(edge: Edge) -> None:
    peer = edge.connect()
    peer.send(framed(b"promise 1"))
    await turns()
    promise = edge.service.promised[b"promise 1"]
    peer.lose()
    await turns()
    assert promise.is_cancelled
    assert edge.metrics.waiting_count == 0


async def test_a_request_that_can_only_be_answered_by_closing_closes_after_earlier_answers(
    edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    peer = edge.connect("10.1.2.3")
    peer.send(framed(b"one") + framed(b"close") + framed(b"three"))
    await turns()
    assert bodies(peer.taken) == [b"one"]
    assert peer.is_lost
    assert edge.service.begun == [b"one", b"close"]
    assert caplog.messages == ["Closed the connection of 10.1.2.3: as asked"]
    assert edge.metrics.closed == {"bad_request": 1}


async def test_a_size_that_is_none_closes_the_connection_and_says_so(
    edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    peer = edge.connect()
    peer.send(framed(b"one") + b"GET / HTTP/1.1\r\n\r\n")
    await turns()
    assert bodies(peer.taken) == [b"one"]
    assert peer.is_lost
    assert "HTTP" in caplog.text
    assert edge.metrics.rejected == {"bad_frame": 1}


async def test_a_fault_of_ours_ends_one_connection_loudly_and_no_other(
    edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    peer, other = edge.connect(), edge.connect()
    peer.send(framed(b"fault"))
    await turns()
    assert peer.is_lost
    assert "a fault of ours" in caplog.text
    assert edge.metrics.closed == {"fault": 1}
    other.send(framed(b"one"))
    await turns()
    assert bodies(other.taken) == [b"one"]


async def test_a_fault_in_a_late_answer_ends_the_connection_instead_of_leaving_it_hanging(
    edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    peer = edge.connect()
    peer.send(framed(b"park, fault") + framed(b"two"))
    await turns()
    edge.service.parked[b"park, fault"].set_result(None)
    await turns()
    assert peer.is_lost
    assert edge.service.begun == [b"park, fault"]
    assert "a fault of ours" in caplog.text
    assert edge.metrics.closed == {"fault": 1}


async def test_a_client_that_is_gone_has_its_request_cancelled_and_everything_given_back(
    edge: Edge,
) -> None:
    peer = edge.connect()
    info = edge.connection.info
    peer.send(framed(b"park") + framed(bytes(100)) + framed(bytes(500_000))[:400_000])
    await turns()
    assert edge.server.memory.used_bytes > 0
    peer.lose()
    await turns()
    assert edge.service.parked[b"park"].is_cancelled
    assert edge.service.lost == [info]
    assert edge.server.memory.used_bytes == 0
    assert edge.server.connection_count == 0
    assert edge.metrics.waiting_count == 0
    assert edge.metrics.connection_count == 0


async def connect_and_leave(edge: Edge, begin: bytes, count: int) -> None:
    for _ in range(count):
        peer = edge.connect()
        peer.send(begin)
        peer.lose()
        await turns()


async def test_a_connection_that_is_gone_is_not_left_to_the_garbage_collector(edge: Edge) -> None:
    """Which runs seldom in a broker: thousands of connections would wait for it."""
    gc.collect()
    gc.disable()
    try:
        for begin in (b"", framed(b"one"), framed(b"park"), framed(bytes(500_000))[:300_000]):
            await connect_and_leave(edge, begin, 100)
            edge.service.forget()
            del edge.connection
        assert gc.collect() < 100
    finally:
        gc.enable()


async def test_a_late_failure_of_a_lost_clients_request_is_seen(
    edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    peer = edge.connect()
    peer.send(framed(b"stubborn"))
    await turns()
    peer.lose()
    await turns()
    assert "too late" in caplog.text


async def test_an_error_in_the_check_of_one_connection_ends_no_other_check(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    edge = Edge(NetworkLimits(connections_max_idle_ms=60_000))
    await edge.server.listen([], Listener("PLAINTEXT"))
    peers, connections = [], []
    for _ in range(3):
        peers.append(edge.connect())
        connections.append(edge.connection)
    broken = connections[0]

    def check(connection: Connection, now_ms: int) -> None:
        if connection is broken:
            raise RuntimeError("unforeseen")
        works(connection, now_ms)

    works = Connection.check
    monkeypatch.setattr(Connection, "check", check)
    edge.clock.advance(1_000)
    edge.server._begin_check()
    await turns()
    assert [peer.is_lost for peer in peers] == [True, False, False]
    assert "Internal error; the connection of" in caplog.text
    assert edge.server._check_handle is not None
    for _ in range(61):
        edge.clock.advance(1_000)
        edge.server._begin_check()
        await turns()
    assert all(peer.is_lost for peer in peers)
    await edge.server.close(0)


def test_a_client_is_not_late_with_what_we_had_no_time_to_read() -> None:
    clock = VirtualClock()

    async def stand_still() -> None:
        edge = Edge(NetworkLimits(kohort_frame_timeout_ms=60_000), clock)
        await edge.server.listen([], Listener("PLAINTEXT"))
        peer = edge.connect()
        peer.send(framed(b"abc")[:5])
        await asyncio.sleep(50)
        clock.advance(200_000)  # The loop is held up, or the machine.
        is_lost = []
        for wait_s in (5, 8):
            await asyncio.sleep(wait_s)
            is_lost.append(peer.is_lost)
        assert is_lost == [False, True]
        assert edge.metrics.closed == {"frame_timeout": 1}
        await edge.server.close(0)

    with asyncio.Runner(loop_factory=lambda: VirtualClockLoop(clock)) as runner:
        runner.run(stand_still())


async def test_a_client_that_waits_for_us_is_not_closed() -> None:
    edge = Edge(NetworkLimits(connections_max_idle_ms=60_000, kohort_frame_timeout_ms=60_000))
    peer = edge.connect()
    peer.send(framed(b"park") + framed(bytes(400_000))[:300_000])
    await turns()
    for _ in range(600):
        edge.connection.check(edge.clock.advance(1_000))
    assert not peer.is_lost
    peer.lose()
    await turns()


async def test_stopping_answers_the_request_under_way_and_begins_no_other(edge: Edge) -> None:
    idle, busy = edge.connect(), edge.connect()
    busy.send(framed(b"park") + framed(b"two"))
    closing = asyncio.create_task(edge.server.close(10_000))
    await turns()
    assert [idle.is_lost, busy.is_lost] == [True, False]
    edge.service.parked[b"park"].set_result(None)
    await closing
    assert [idle.is_lost, busy.is_lost] == [True, True]
    assert bodies(busy.taken) == [b"park"]
    assert edge.metrics.closed == {"shutdown": 2}


async def test_stopping_does_not_wait_for_clients_that_do_not_read(edge: Edge) -> None:
    edge.service.response = bytes(100)
    peer = edge.connect()
    peer.takes_all = False
    peer.send(framed(b"large"))
    await edge.server.close(50)
    assert peer.is_lost
    assert edge.server.connection_count == 0


async def test_refused_connections_are_closed_at_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    edge = Edge(NetworkLimits(max_connections=1))
    first, second = edge.connect(), edge.connect("10.9.9.9")
    second.send(framed(b"one"))
    await turns()
    assert (first.is_lost, second.is_lost) == (False, True)
    assert edge.service.begun == []
    assert edge.metrics.refused == {"max.connections": 1}
    assert caplog.messages == ["Refused a connection from 10.9.9.9 because of max.connections"]
    first.lose()
    await turns()
    third = edge.connect()
    third.send(framed(b"one"))
    await turns()
    assert bodies(third.taken) == [b"one"]
    await edge.server.close(100)

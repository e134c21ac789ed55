"""One connection: its requests, their order, and what a client that does not read may cost."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kohort.broker.network.connection.frames import FrameReader
from kohort.broker.network.connection.limits import (
    REQUESTS_PER_ITERATION,
    WRITE_HIGH_WATER_BYTES,
    NetworkLimits,
)
from kohort.broker.network.service import Listener
from tests.support.network.wire import framed
from tests.support.waiting import turns
from tests.unit.broker.network.edge import Edge, bodies


@pytest_asyncio.fixture
async def edge() -> AsyncIterator[Edge]:
    edge = Edge(NetworkLimits())
    yield edge
    await edge.server.close(100)


async def test_a_request_is_answered_in_the_same_turn_with_one_write(edge: Edge) -> None:
    peer = edge.connect()
    peer.send(framed(b"one") + framed(b"two") + framed(b"three"))
    await turns(1)
    assert bodies(peer.taken) == [b"one", b"two", b"three"]
    assert peer.write_count == 1


async def test_who_keeps_a_promise_is_not_made_to_execute_what_comes_next(edge: Edge) -> None:
    peer = edge.connect()
    peer.send(framed(b"promise 1") + framed(b"two"))
    await turns()
    edge.service.promised[b"promise 1"].set_result(None)
    assert edge.service.begun == [b"promise 1"]
    assert not peer.taken
    # All that was answered in a turn is written at its end, and what comes next is executed.
    await turns(1)
    assert bodies(peer.taken) == [b"promise 1", b"two"]
    assert edge.metrics.waiting_count == 0


async def test_a_promise_that_is_kept_already_does_not_overtake_answers(edge: Edge) -> None:
    peer = edge.connect()
    requests = [b"one", b"promise, kept", b"three"]
    peer.send(b"".join(map(framed, requests)))
    await turns()
    assert bodies(peer.taken) == requests


async def test_a_transport_of_asyncio_serves_it_as_one_of_uvloop_does(edge: Edge) -> None:
    assert isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop)
    server = socket.create_server(("127.0.0.1", 0))
    await edge.server.listen([server], Listener("PLAINTEXT"))
    reader, writer = await asyncio.open_connection(*server.getsockname())
    writer.write(framed(b"one"))
    assert await reader.readexactly(7) == framed(b"one")
    writer.close()
    await writer.wait_closed()


async def test_the_next_request_is_not_begun_before_the_one_before_it_is_answered(
    edge: Edge,
) -> None:
    peer = edge.connect()
    peer.send(framed(b"park 1") + framed(b"two") + framed(b"park 3"))
    peer.send(framed(b"four"))
    await turns()
    assert edge.service.begun == [b"park 1"]
    assert edge.metrics.waiting_count == 1
    edge.service.parked[b"park 1"].set_result(None)
    await turns()
    assert edge.service.begun == [b"park 1", b"two", b"park 3"]
    edge.service.parked[b"park 3"].set_result(None)
    await turns()
    assert bodies(peer.taken) == [b"park 1", b"two", b"park 3", b"four"]
    assert edge.metrics.waiting_count == 0


async def test_a_request_without_an_answer_holds_nothing_up(edge: Edge) -> None:
    peer = edge.connect()
    peer.send(framed(b"silent") + framed(b"park, silent") + framed(b"last"))
    await turns()
    edge.service.parked[b"park, silent"].set_result(None)
    await turns()
    assert bodies(peer.taken) == [b"last"]


async def test_what_a_client_sends_ahead_stays_in_its_socket(edge: Edge) -> None:
    peer = edge.connect()
    peer.send(framed(b"park"))
    await turns()
    for _ in range(100):
        peer.send(framed(bytes(50_000)))
    assert peer.unread_bytes > 4_500_000
    assert edge.server.memory.used_bytes < 400_000
    edge.service.parked[b"park"].set_result(None)
    await turns(300)
    assert len(bodies(peer.taken)) == 101
    assert edge.server.memory.used_bytes == 0


async def test_one_large_frame_is_received_while_the_one_before_it_is_executed(
    edge: Edge,
) -> None:
    peer = edge.connect()
    peer.send(framed(b"park") + framed(bytes(3_000_000)) + framed(bytes(2_000_000)))
    await turns()
    assert 1_500_000 < peer.unread_bytes <= 2_000_004
    assert edge.service.begun == [b"park"]
    edge.service.parked[b"park"].set_result(None)
    await turns(300)
    assert len(edge.service.begun) == 3


async def test_a_client_that_does_not_read_gets_no_further_request_executed(edge: Edge) -> None:
    edge.service.response = bytes(300_000)
    peer = edge.connect()
    peer.takes_all = False
    for number in range(200):
        peer.send(framed(b"large %d" % number))
    await turns(100)
    begun = len(edge.service.begun)
    assert begun <= 5
    assert peer.get_write_buffer_size() <= WRITE_HIGH_WATER_BYTES + 2 * 300_000
    assert edge.server.unsent.total_bytes == peer.get_write_buffer_size()
    peer.take(WRITE_HIGH_WATER_BYTES)
    await turns()
    assert len(edge.service.begun) > begun
    peer.takes_all = True
    for _ in range(100):
        peer.take(1)
        await turns()
    assert len(edge.service.begun) == 200
    assert edge.server.unsent.total_bytes == 0


async def test_a_flood_of_one_client_leaves_the_others_their_scheduler(edge: Edge) -> None:
    flood, other = edge.connect(), edge.connect()
    flood.send(framed(b"flood") * 5_000)
    assert len(edge.service.begun) == REQUESTS_PER_ITERATION
    other.send(framed(b"other"))
    await turns(1)
    assert bodies(other.taken) == [b"other"]
    await turns(5_000 // REQUESTS_PER_ITERATION + 5)
    assert len(bodies(flood.taken)) == 5_000


async def test_memory_that_is_short_stops_the_reading_of_large_frames_only() -> None:
    edge = Edge(NetworkLimits(queued_max_request_bytes=1_000_000))
    parked, overdrawn, starved, small = (edge.connect() for _ in range(4))
    parked.send(framed(b"park".ljust(900_000)))
    stream = framed(b"large frame".ljust(700_000))
    for peer in (overdrawn, starved):
        for start in range(0, len(stream), 100_000):
            peer.send(stream[start : start + 100_000])
    await turns()
    assert len(bodies(overdrawn.taken)) == 1, "one may exceed the budget"
    small.send(framed(b"small"))
    await turns()
    assert bodies(small.taken) == [b"small"]
    # The first to exceed has ended, so the second could go on.
    assert len(bodies(starved.taken)) == 1
    second = edge.connect()
    overdrawn.send(stream[:200_000])
    second.send(stream[:200_000])
    second.send(stream[200_000:])
    await turns()
    assert second.unread_bytes > 0
    assert not second.is_reading()
    overdrawn.send(stream[200_000:])
    await turns()
    assert len(bodies(overdrawn.taken)) == 2
    assert len(bodies(second.taken)) == 1
    assert edge.server.memory.used_bytes == 900_000
    (parked_one,) = edge.service.parked.values()
    parked_one.set_result(None)
    await edge.server.close(100)


async def test_who_cannot_make_room_ends_and_not_who_gave_memory_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    edge = Edge(NetworkLimits(queued_max_request_bytes=100_000))
    first, starved, other = (edge.connect() for _ in range(3))
    stream = framed(b"large frame".ljust(700_000))
    first.send(stream[:100_000])
    starved.send(stream[:100_000])
    assert not starved.is_reading()

    def no_memory(reader: FrameReader) -> None:
        raise MemoryError

    monkeypatch.setattr(FrameReader, "grow", no_memory)
    first.send(stream[100_000:])
    other.send(framed(b"one"))
    await turns()
    assert starved.is_lost
    assert (len(bodies(first.taken)), bodies(other.taken)) == (1, [b"one"])
    assert edge.metrics.closed == {"fault": 1}
    assert edge.server.memory.used_bytes == 0
    await edge.server.close(100)


async def test_slow_readers_are_closed_when_their_responses_take_too_much_memory() -> None:
    edge = Edge(NetworkLimits(kohort_unsent_max_bytes=5_000_000))
    edge.service.response = bytes(2_000_000)
    peers = [edge.connect() for _ in range(4)]
    for peer in peers:
        peer.takes_all = False
        peer.send(framed(b"large"))
    await turns()
    assert [peer.is_lost for peer in peers] == [True, True, False, False]
    assert edge.metrics.closed == {"slow_reader": 2}
    for peer in peers:
        peer.lose()
    await turns()


async def test_bytes_are_counted_both_ways(edge: Edge) -> None:
    peer = edge.connect()
    peer.send(framed(b"four") + framed(b"five"))
    await turns()
    assert edge.metrics.received_bytes == 16
    assert edge.metrics.sent_bytes == 16


@pytest.mark.parametrize("buffer_bytes", [5, 64, 4_096])
async def test_many_who_send_ahead_get_their_own_answers(edge: Edge, buffer_bytes: int) -> None:
    """Reads that end within a size field, and the next one finds nothing."""
    edge.server.receive_buffer = memoryview(bytearray(buffer_bytes))
    rng = random.Random(buffer_bytes)
    peers = [edge.connect() for _ in range(8)]
    sent: list[list[bytes]] = [[] for _ in peers]
    ahead = [b"" for _ in peers]
    for number in range(400):
        one = rng.randrange(len(peers))
        body = b"%d of %d" % (number, one) + bytes(rng.randrange(3_000))
        sent[one].append(body[:100])
        ahead[one] += framed(body)
        # Sometimes within the size of the last one.
        cut = max(0, len(ahead[one]) - rng.choice((0, len(body) + 1, len(body) + 3)))
        peers[one].send(ahead[one][:cut])
        ahead[one] = ahead[one][cut:]
        if rng.random() < 0.3:
            await turns(3)
    for peer, rest in zip(peers, ahead, strict=True):
        peer.send(rest)
    await turns(400)
    assert [bodies(peer.taken) for peer in peers] == sent
    assert edge.server.memory.used_bytes == 0


async def test_many_who_are_behind_by_less_than_what_stops_one_are_bounded_together() -> None:
    edge = Edge(NetworkLimits(kohort_unsent_max_bytes=5_000_000))
    edge.service.response = bytes(WRITE_HIGH_WATER_BYTES // 2)
    peers = [edge.connect() for _ in range(20)]
    for peer in peers:
        peer.takes_all = False
        peer.send(framed(b"large"))
    await turns()
    for connection in list(edge.server._connections):
        connection.check(1_000)
    await turns()
    assert 0 < edge.server.unsent.total_bytes <= 5_000_000
    assert edge.server.unsent.total_bytes == sum(
        peer.get_write_buffer_size() for peer in peers if not peer.is_lost
    )
    assert edge.metrics.closed == {"slow_reader": 11}
    await edge.server.close(100)


async def test_an_answer_to_what_was_under_way_when_its_client_fell_behind_counts(
    edge: Edge,
) -> None:
    edge.service.response = bytes(WRITE_HIGH_WATER_BYTES * 2 // 3)
    peer = edge.connect()
    peer.takes_all = False
    peer.send(framed(b"large"))
    await turns()
    peer.send(framed(b"large") + framed(b"park"))
    await turns()
    before_bytes = edge.server.unsent.total_bytes
    assert before_bytes == peer.get_write_buffer_size() > WRITE_HIGH_WATER_BYTES
    edge.service.parked[b"park"].set_result(None)
    await turns()
    assert edge.server.unsent.total_bytes == peer.get_write_buffer_size() > before_bytes

"""A turn ends by time as well, and then clients take turns, not their connections."""

import asyncio
import logging

import pytest

from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.connection.limits import SMALL_BYTES, NetworkLimits
from kohort.broker.network.iteration import ITERATION_MS
from kohort.broker.network.server.server import NetworkServer
from kohort.broker.network.service import ConnectionInfo, Listener, ResponseBuffers
from kohort.broker.runtime.peer_log import PeerLog
from kohort.protocol.codec import Buffer
from kohort.testing.virtual_clock import VirtualClock
from tests.support.network.memory_transport import MemoryTransport

SLOW, QUICK = b"slow", b"quick"
GREEDY, OTHER = "10.0.0.1", "10.0.0.2"


class Working:
    """Executes requests in the order that it notes, each in its time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.executed: list[str] = []
        self.server = NetworkServer(
            self,
            NetworkLimits(),
            clock=self.clock,
            metrics=EdgeMetrics(),
            log=PeerLog(logging.getLogger("peers"), self.clock),
        )

    def serve(self, connection: ConnectionInfo, frame: Buffer) -> ResponseBuffers:
        word = bytes(frame).rstrip(b"\0")
        self.executed.append(connection.session.host)
        if word == SLOW:
            self.clock.advance(ITERATION_MS)
        return [word]

    def connection_lost(self, connection: ConnectionInfo) -> None:
        """Nothing is kept of it."""

    def peer(self, ip: str) -> MemoryTransport:
        return MemoryTransport(Connection(self.server, Listener("PLAINTEXT")), ip=ip)


def ask(peer: MemoryTransport, word: bytes, size: int = 0) -> None:
    body = word.ljust(size, b"\0")
    peer.send(len(body).to_bytes(4, "big") + body)


@pytest.mark.parametrize("size", [0, SMALL_BYTES + 1], ids=["small", "large"])
async def test_a_client_waits_for_one_request_of_another_and_not_for_a_hundred(size: int) -> None:
    service = Working()
    greedy, other = [service.peer(GREEDY) for _ in range(100)], service.peer(OTHER)
    for peer in greedy:
        ask(peer, SLOW, size)
    ask(other, SLOW, size)
    # A large one is executed as it is read, as long as the turn has time.
    assert service.executed == ([GREEDY] if size else [])
    for _ in range(4):
        await asyncio.sleep(0)
    assert OTHER in service.executed[:4]
    assert other.taken == SLOW
    ask(other, QUICK)
    for _ in range(4):
        await asyncio.sleep(0)
    assert other.taken == SLOW + QUICK
    for _ in range(200):
        await asyncio.sleep(0)
    assert [peer.taken for peer in greedy] == [SLOW] * 100


async def test_who_has_little_to_do_is_not_backlog() -> None:
    service = Working()
    peers = [service.peer(f"10.0.1.{number}") for number in range(50)]
    for _ in range(3):
        service.executed.clear()
        for peer in peers:
            ask(peer, QUICK)
        await asyncio.sleep(0)
        assert service.executed == [f"10.0.1.{number}" for number in range(50)]


async def test_each_turn_executes_something_and_the_order_of_a_connection_is_kept() -> None:
    service = Working()
    first, second = service.peer(GREEDY), service.peer(GREEDY)
    for number in range(5):
        for peer in (first, second):
            ask(peer, SLOW if number % 2 else QUICK)
    for _ in range(30):
        await asyncio.sleep(0)
    wanted = b"".join(SLOW if number % 2 else QUICK for number in range(5))
    assert first.taken == second.taken == wanted


async def test_a_connection_that_is_lost_while_it_is_held_up_takes_no_turn() -> None:
    service = Working()
    peers = [service.peer(GREEDY) for _ in range(4)]
    for peer in peers:
        ask(peer, SLOW)
    await asyncio.sleep(0)
    assert len(service.executed) == 1
    peers[3].lose()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(service.executed) == 3

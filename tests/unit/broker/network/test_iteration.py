import asyncio
import logging

from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.connection.limits import SMALL_BYTES, NetworkLimits
from kohort.broker.network.iteration import (
    CONNECTIONS_PER_ITERATION,
    UNAUTHENTICATED_PER_ITERATION,
    UNWRITTEN_MAX_BYTES,
    IterationScheduler,
)
from kohort.broker.network.server.server import NetworkServer
from kohort.broker.network.service import ConnectionInfo, Listener, NewConnection, ResponseBuffers
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.peer_log import PeerLog
from kohort.protocol.codec import Buffer
from kohort.testing.virtual_clock import VirtualClock
from tests.support.network.memory_transport import MemoryTransport


class Counting:
    """Answers with as many bytes as the request says; knows what was written before each."""

    def __init__(self) -> None:
        self.peers: list[MemoryTransport] = []
        self.written_before: list[int] = []
        self.parked: list[Deferred[None]] = []
        self.server: NetworkServer | None = None
        self.scheduler: IterationScheduler | None = None
        self.left_after: list[int] = []
        """For each work that was left for after an answer, how much was executed by then."""

    def serve(
        self, connection: ConnectionInfo, frame: Buffer
    ) -> ResponseBuffers | Deferred[ResponseBuffers]:
        del connection
        self.written_before.append(sum(peer.write_count for peer in self.peers))
        word, _, size = bytes(frame).rpartition(b" ")
        answer: ResponseBuffers = [bytes(int(size))]
        if word == b"leave work":
            assert self.scheduler is not None
            self.scheduler.after_writes(
                lambda: self.left_after.append(len(self.written_before)),
            )
        if word == b"park":
            parked: Deferred[None] = Deferred()
            self.parked.append(parked)
            return parked.finally_(lambda _: answer)
        return answer

    def connection_lost(self, connection: ConnectionInfo) -> None:
        """Nothing is kept of it."""


class Bouncer:
    """The first service of a connection: lets its client in at the word."""

    def __init__(self, service: Counting, connection: NewConnection) -> None:
        self._service = service
        self._connection = connection

    def serve(
        self, connection: ConnectionInfo, frame: Buffer
    ) -> ResponseBuffers | Deferred[ResponseBuffers]:
        if frame == b"come in 7":
            self._connection.on_authenticated(connection.session)
        return self._service.serve(connection, frame)

    def connection_lost(self, connection: ConnectionInfo) -> None:
        """Nothing is kept of it."""


def arriving(*ips: str) -> tuple[Counting, list[MemoryTransport]]:
    """Connections of a listener that lets clients in later."""
    service, _ = connected(0)
    listener = Listener("SASL_PLAINTEXT", new_service=lambda one: Bouncer(service, one))
    assert service.server is not None
    service.peers += [MemoryTransport(Connection(service.server, listener), ip=ip) for ip in ips]
    return service, service.peers


def connected(count: int) -> tuple[Counting, list[MemoryTransport]]:
    service, clock = Counting(), VirtualClock()
    server = NetworkServer(
        service,
        NetworkLimits(),
        clock=clock,
        metrics=EdgeMetrics(),
        log=PeerLog(logging.getLogger("peers"), clock),
    )
    service.server = server
    service.scheduler = server.scheduler
    service.peers = [
        MemoryTransport(Connection(server, Listener("PLAINTEXT"))) for _ in range(count)
    ]
    return service, service.peers


def ask(peer: MemoryTransport, body: bytes) -> None:
    peer.send(len(body).to_bytes(4, "big") + body)


async def test_what_came_in_one_turn_is_executed_before_any_of_it_is_answered() -> None:
    service, peers = connected(10)
    for peer in peers:
        ask(peer, b"7")
    await asyncio.sleep(0)
    assert service.written_before == [0] * 10
    assert [len(peer.taken) for peer in peers] == [7] * 10


async def test_answers_that_become_ready_together_are_written_together() -> None:
    service, peers = connected(10)
    for peer in peers:
        ask(peer, b"park 7")
    await asyncio.sleep(0)
    for parked in service.parked:
        parked.set_result(None)
    # One turn for the answers, and the end of it for the writes.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [peer.write_count for peer in peers] == [1] * 10


async def test_more_connections_than_a_turn_is_for_are_served_in_several() -> None:
    service, peers = connected(CONNECTIONS_PER_ITERATION * 2 + 1)
    for peer in peers:
        ask(peer, b"7")
    served = []
    for _ in range(3):
        await asyncio.sleep(0)
        served.append(len(service.written_before))
    assert served == [CONNECTIONS_PER_ITERATION, CONNECTIONS_PER_ITERATION * 2, len(peers)]
    assert all(peer.write_count == 1 for peer in peers)


async def test_of_many_clients_that_are_not_let_in_yet_few_are_served_in_a_turn() -> None:
    count = UNAUTHENTICATED_PER_ITERATION * 3
    service, peers = arriving(*["127.0.0.1"] * count)
    assert service.server is not None
    one = MemoryTransport(Connection(service.server, Listener("PLAINTEXT")))
    for peer in peers:
        ask(peer, b"7")
    for turn in range(1, 4):
        # Somebody who is in waits for none of them.
        ask(one, b"7")
        await asyncio.sleep(0)
        assert one.write_count == turn
        assert sum(peer.write_count for peer in peers) == turn * UNAUTHENTICATED_PER_ITERATION


async def test_who_was_let_in_is_served_with_all_others() -> None:
    count = UNAUTHENTICATED_PER_ITERATION * 3
    service, peers = arriving(*["127.0.0.1"] * count)
    for peer in peers:
        ask(peer, b"come in 7")
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(service.written_before) == count
    for peer in peers:
        ask(peer, b"7")
    await asyncio.sleep(0)
    assert len(service.written_before) == 2 * count


async def test_addresses_take_turns_in_what_is_said_before_clients_are_let_in() -> None:
    crowd = ["127.0.0.2"] * UNAUTHENTICATED_PER_ITERATION * 10
    service, peers = arriving(*crowd, "127.0.0.1")
    for peer in peers:
        ask(peer, b"7")
    for _ in range(2):
        await asyncio.sleep(0)
    assert len(service.written_before) == 2 * UNAUTHENTICATED_PER_ITERATION
    assert peers[-1].write_count == 1


async def test_who_is_gone_takes_no_turn_of_those_who_are_not_let_in_yet() -> None:
    service, peers = arriving(*["127.0.0.1"] * UNAUTHENTICATED_PER_ITERATION * 10)
    for peer in peers:
        ask(peer, b"7")
    await asyncio.sleep(0)
    for peer in peers[:-1]:
        peer.lose()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert peers[-1].write_count == 1
    assert len(service.written_before) <= 2 * UNAUTHENTICATED_PER_ITERATION + 1


async def test_a_large_answer_waits_for_no_other() -> None:
    service, peers = connected(2)
    ask(peers[0], b"%d" % (SMALL_BYTES + 1))
    ask(peers[1], b"7")
    await asyncio.sleep(0)
    assert service.written_before == [0, 1]


async def test_answers_that_wait_for_the_end_of_a_turn_are_bounded_in_bytes() -> None:
    rounds = UNWRITTEN_MAX_BYTES // SMALL_BYTES + 1
    service, peers = connected(rounds)
    for peer in peers:
        ask(peer, b"park %d" % SMALL_BYTES)
    for _ in range(rounds // CONNECTIONS_PER_ITERATION + 1):
        await asyncio.sleep(0)
    assert len(service.parked) == rounds
    for parked in service.parked:
        parked.set_result(None)
    waiting = []
    # Seen by a callback that the loop calls after those of the futures and before the writes.
    asyncio.get_running_loop().call_soon(
        lambda: waiting.append(sum(peer.write_count == 0 for peer in peers))
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert waiting == [0]


async def test_what_an_answer_need_not_wait_for_is_done_when_it_is_written() -> None:
    service, peers = connected(3)
    ask(peers[0], b"leave work 7")
    ask(peers[1], b"7")
    await asyncio.sleep(0)
    assert [peer.write_count for peer in peers] == [1, 1, 0]
    assert service.left_after == []
    ask(peers[2], b"7")
    await asyncio.sleep(0)
    # Before the request that came behind the answer.
    assert service.left_after == [2]
    await asyncio.sleep(0)
    assert len(service.written_before) == 3


async def test_a_large_request_is_executed_behind_what_was_left() -> None:
    service, peers = connected(2)
    ask(peers[0], b"leave work 7")
    await asyncio.sleep(0)
    assert service.left_after == []
    ask(peers[1], b" " * SMALL_BYTES + b"7")
    assert (service.left_after, len(service.written_before)) == ([1], 2)
    await asyncio.sleep(0)
    assert service.left_after == [1]


async def test_who_closes_sends_first_what_waits_for_the_end_of_the_turn() -> None:
    _, (peer,) = connected(1)
    ask(peer, b"7")
    # Read before the turn is over.
    peer.send(b"GET / HTTP/1.1\r\n\r\n")
    for _ in range(3):
        await asyncio.sleep(0)
    assert peer.is_lost
    assert len(peer.taken) == 7

"""Clients that are not let in yet, by sockets and the loop that brokers have."""

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial

import pytest
import uvloop

from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.network.connection import Connection
from kohort.broker.network.limits import NetworkLimits
from kohort.broker.network.listener import Listener
from kohort.broker.network.listening import listening_sockets
from kohort.broker.network.server import NetworkServer
from kohort.broker.network.turns import ARRIVALS_PER_TURN
from kohort.broker.runtime.clock import SystemClock
from kohort.broker.runtime.peer_log import PeerLog
from tests.support.network.wire import framed
from tests.support.waiting import turns, until
from tests.unit.broker.network.test_turns import Bouncer, Counting

CROWD = 50
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: leaves with RST instead of FIN."""


class Door:
    """A server with one listener that lets clients in later, and one that has them in at once."""

    def __init__(self, stack: ExitStack) -> None:
        self.service = Counting()
        self.metrics = EdgeMetrics()
        clock = SystemClock()
        log = PeerLog(logging.getLogger("peers"), clock)
        self.server = NetworkServer(
            self.service, NetworkLimits(), clock=clock, metrics=self.metrics, log=log
        )
        self._stack = stack
        self._ports: dict[str, int] = {}

    async def open(self) -> None:
        bouncing = partial(Bouncer, self.service)
        for listener in (Listener("SASL_PLAINTEXT", new_service=bouncing), Listener("PLAINTEXT")):
            (one,) = listening_sockets("127.0.0.1", 0)
            self._ports[listener.name] = one.getsockname()[1]
            await self.server.listen([one], listener)

    async def come(self, count: int, listener: str = "SASL_PLAINTEXT") -> list[socket.socket]:
        """Clients that say nothing yet."""
        address = ("127.0.0.1", self._ports[listener])
        wanted = self.server.connection_count + count
        clients = [
            self._stack.enter_context(closing(socket.create_connection(address)))
            for _ in range(count)
        ]
        await until(lambda: self.server.connection_count == wanted)
        await turns()
        return clients

    @property
    def received_bytes(self) -> int:
        return self.metrics.received_bytes


Play = Callable[[Door], Awaitable[None]]


@pytest.fixture
def at_the_door() -> Iterator[Callable[[Play], None]]:
    """Runs a play on the loop that brokers have."""
    with ExitStack() as stack:

        async def run(play: Play) -> None:
            door = Door(stack)
            await door.open()
            try:
                await play(door)
            finally:
                await door.server.close(1_000)

        yield lambda play: uvloop.run(run(play))


def answer(client: socket.socket) -> bytes:
    client.settimeout(30)
    return client.recv(1_000)


def test_of_many_that_speak_at_once_few_are_read_in_a_turn(
    at_the_door: Callable[[Play], None],
) -> None:
    async def play(door: Door) -> None:
        clients = await door.come(CROWD)
        (other,) = await door.come(1, "PLAINTEXT")
        said = framed(b"7")
        for client in clients:
            client.sendall(said)
        other.sendall(framed(b"another 9"))
        most = before = 0
        answered_at = 0
        for turn in range(1, 10 * CROWD):
            await asyncio.sleep(0)
            most = max(most, door.received_bytes - before)
            before = door.received_bytes
            if not answered_at and door.service.written_before:
                answered_at = turn
        # The other's may come in the same turn as one of theirs.
        assert most <= (ARRIVALS_PER_TURN + 1) * len(said) + len(b"another 9")
        assert answered_at < 10
        assert len(answer(other)) == 9
        assert [len(answer(client)) for client in clients] == [7] * CROWD

    at_the_door(play)


def test_who_is_let_in_is_read_as_all_others(at_the_door: Callable[[Play], None]) -> None:
    async def play(door: Door) -> None:
        clients = await door.come(CROWD)
        for client in clients:
            client.sendall(framed(b"come in 7"))
        await until(lambda: len(door.service.written_before) == CROWD)
        before = door.received_bytes
        for client in clients:
            client.sendall(framed(b"7"))
        await turns(3)
        assert door.received_bytes - before == CROWD * len(framed(b"7"))

    at_the_door(play)


@pytest.mark.parametrize("resets", [False, True])
def test_who_leaves_before_being_let_in_is_gone(
    at_the_door: Callable[[Play], None], resets: bool
) -> None:
    async def play(door: Door) -> None:
        clients = await door.come(CROWD)
        for client in clients:
            if resets:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
        await until(lambda: not door.server.connection_count)
        # Numbers of descriptors are used again.
        again = await door.come(CROWD)
        for client in again:
            client.sendall(framed(b"7"))
        await until(lambda: len(door.service.written_before) == CROWD)

    at_the_door(play)


def test_what_is_sent_ahead_stays_in_the_socket(at_the_door: Callable[[Play], None]) -> None:
    async def play(door: Door) -> None:
        (client,) = await door.come(1)
        client.sendall(framed(b"park 7"))
        await until(lambda: len(door.service.parked) == 1)
        # One frame is read behind it, and no more.
        for ahead in range(3):
            client.sendall(framed(b"%d" % (ahead + 1)))
            await turns(20)
        assert door.received_bytes == len(framed(b"park 7")) + len(framed(b"1"))
        door.service.parked[0].give(None)
        await until(lambda: len(door.service.written_before) == 4)
        assert len(answer(client)) == 7 + 1 + 2 + 3

    at_the_door(play)


def test_a_fault_in_reading_ends_its_connection_and_no_other(
    at_the_door: Callable[[Play], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(connection: Connection, byte_count: int) -> None:
        if connection is next(iter(connection._host._connections)):  # type: ignore[attr-defined]
            raise ZeroDivisionError
        as_always(connection, byte_count)

    as_always = Connection.buffer_updated
    monkeypatch.setattr(Connection, "buffer_updated", read)

    async def play(door: Door) -> None:
        broken, whole = await door.come(2)
        whole.sendall(framed(b"7"))
        await until(lambda: len(door.service.written_before) == 1)
        broken.sendall(framed(b"7"))
        await until(lambda: door.server.connection_count == 1)
        assert len(answer(whole)) == 7
        assert answer(broken) == b""

    at_the_door(play)
    assert "Internal error" in caplog.text

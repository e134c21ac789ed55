"""Bytes that are no frame, before their sender is authenticated: a failure, and closed as late."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kohort.broker.config import BrokerConfig
from kohort.broker.core.security.addresses import FAILURES, LONGEST_MS, FailureDelays
from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.connection.limits import NetworkLimits
from kohort.broker.network.service import Listener, ResponseBuffers
from kohort.broker.network.timeouts import LINGER_MS
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.security.authenticator import SaslListener
from kohort.protocol.codec import Buffer
from kohort.protocol.errors import ErrorCode
from kohort.testing.virtual_clock import VirtualClock, VirtualClockLoop
from tests.support.network.memory_transport import MemoryTransport
from tests.support.waiting import turns
from tests.unit.broker.network.edge import Echo, Edge

DELAY_MS = 100
FRAME_MAX_BYTES = 50

NO_FRAMES = [
    pytest.param((FRAME_MAX_BYTES + 1).to_bytes(4, "big"), id="large"),
    pytest.param(b"\xff\xff\xff\xff", id="negative"),
    pytest.param(bytes(4), id="empty"),
    pytest.param((FRAME_MAX_BYTES + 1).to_bytes(4, "big") + bytes(100_000), id="all at once"),
]


class Dispatcher(Echo):
    """Never reached: what is sent here is no request."""

    def refuse(self, frame: Buffer, code: ErrorCode) -> ResponseBuffers:
        raise AssertionError


class World:
    """A broker whose clients have to authenticate."""

    def __init__(self, clock: VirtualClock, frame_max_bytes: int) -> None:
        self.clock = clock
        self.edge = Edge(NetworkLimits(), clock)
        config = BrokerConfig(connection_failed_authentication_delay_ms=DELAY_MS)
        sasl_listener = SaslListener(
            name="SASL",
            exchanges={},
            config=lambda _: config,
            dispatcher=Dispatcher(),
            clock=clock,
            log=PeerLog(logging.getLogger("peers"), clock),
            delays=FailureDelays(),
            count=lambda *_: None,
            is_disabled=lambda _: False,
        )
        self._listener = Listener(
            "SASL",
            new_service=sasl_listener.new_authenticator,
            first_frame_max_bytes=frame_max_bytes,
        )

    def connect(self) -> MemoryTransport:
        self.connection = Connection(self.edge.server, self._listener)
        return MemoryTransport(self.connection)

    async def open_ms(self, peer: MemoryTransport, at_most_ms: int) -> int:
        """For how long the connection is open yet, to ten milliseconds."""
        began_ms = self.clock.monotonic_ms()
        while not peer.is_lost and self.clock.monotonic_ms() - began_ms < at_most_ms:
            await asyncio.sleep(0.01)
            self.connection.check(self.clock.monotonic_ms())
        return self.clock.monotonic_ms() - began_ms


def run(
    test: Callable[[World], Coroutine[Any, Any, None]], frame_max_bytes: int = FRAME_MAX_BYTES
) -> None:
    clock = VirtualClock()

    async def main() -> None:
        world = World(clock, frame_max_bytes)
        await test(world)
        await world.edge.server.close(0)

    with asyncio.Runner(loop_factory=lambda: VirtualClockLoop(clock)) as runner:
        runner.run(main())


@pytest.mark.parametrize("data", NO_FRAMES)
def test_the_connection_is_closed_after_the_delay_and_reads_nothing_meanwhile(data: bytes) -> None:
    async def test(world: World) -> None:
        peer = world.connect()
        peer.send(data)
        await turns()
        taken = world.edge.metrics.received_bytes
        peer.send(bytes(1_000))
        assert DELAY_MS <= await world.open_ms(peer, 10 * DELAY_MS) <= DELAY_MS + 20
        assert world.edge.metrics.received_bytes == taken
        assert world.edge.server.memory.used_bytes == 0
        assert world.edge.metrics.closed == {"bad_frame": 1}

    run(test)


def test_the_log_names_the_setting_that_applies(caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: World) -> None:
        world.connect().send((FRAME_MAX_BYTES + 1).to_bytes(4, "big"))
        await turns()
        assert f"{FRAME_MAX_BYTES + 1} bytes, above {FRAME_MAX_BYTES} " in caplog.text
        assert "sasl.server.max.receive.size" in caplog.text

    run(test)


def test_many_from_one_address_are_closed_later_as_other_failures_are() -> None:
    async def test(world: World) -> None:
        for _ in range(FAILURES):
            world.connect().send(b"\xff\xff\xff\xff")
            await turns()
        peer = world.connect()
        peer.send(b"\xff\xff\xff\xff")
        await turns()
        open_ms = await world.open_ms(peer, 2 * LONGEST_MS)
        assert LINGER_MS <= open_ms <= LONGEST_MS + 20
        assert world.edge.metrics.closed == {"bad_frame": FAILURES + 1}

    run(test)

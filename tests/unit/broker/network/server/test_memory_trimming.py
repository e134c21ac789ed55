"""Memory of crowds: what many connections had is given back to the system once they are gone."""

import asyncio
import logging

import pytest

from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.connection.limits import NetworkLimits
from kohort.broker.network.server import server as module
from kohort.broker.network.server.server import BURST, BURST_END_MAX, NetworkServer
from kohort.broker.network.service import Listener
from kohort.broker.runtime.peer_log import PeerLog
from kohort.testing.virtual_clock import VirtualClock
from tests.support.network.memory_transport import MemoryTransport
from tests.unit.broker.network.edge import Echo


class Crowds:
    """A server whose connections come and go, and how often memory was given back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = VirtualClock()
        self.server = NetworkServer(
            Echo(),
            NetworkLimits(),
            clock=clock,
            metrics=EdgeMetrics(),
            log=PeerLog(logging.getLogger("peers"), clock),
        )
        self.given_back = 0
        monkeypatch.setattr(module, "return_free_memory", self._give_back)

    def _give_back(self) -> None:
        self.given_back += 1

    async def come_and_go(self, count: int) -> None:
        peers = [MemoryTransport(Connection(self.server, Listener("SSL"))) for _ in range(count)]
        for peer in peers:
            peer.lose()
        await asyncio.sleep(0)

    async def times_after_a_check(self) -> int:
        self.server._trim_memory()
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        return self.given_back


@pytest.fixture
async def crowds(monkeypatch: pytest.MonkeyPatch) -> Crowds:
    return Crowds(monkeypatch)


async def test_memory_is_given_back_once_when_a_crowd_is_gone(crowds: Crowds) -> None:
    await crowds.come_and_go(BURST)
    # More of them may be on their way.
    assert await crowds.times_after_a_check() == 0
    assert await crowds.times_after_a_check() == 1
    assert await crowds.times_after_a_check() == 1


async def test_a_crowd_that_leaves_slowly_is_one_as_well(crowds: Crowds) -> None:
    for _ in range(BURST // (BURST_END_MAX - 1)):
        await crowds.come_and_go(BURST_END_MAX - 1)
        assert await crowds.times_after_a_check() == 0
    await crowds.come_and_go(BURST_END_MAX - 1)
    assert await crowds.times_after_a_check() == 1


async def test_for_some_connections_nothing_is_searched(crowds: Crowds) -> None:
    await crowds.come_and_go(BURST - 1)
    for _ in range(3):
        assert await crowds.times_after_a_check() == 0

"""Long work in slices and requests that come meanwhile."""

import asyncio
from concurrent.futures import Future
from pathlib import Path

import pytest
import uvloop

from kohort.broker.runtime.slices import SLICE_MS, RoundRobin, Slice
from kohort.protocol.messages.api_versions import ApiVersionsRequest
from kohort.testing.virtual_clock import VirtualClock
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.wire import RawClient, framed, request_body

SLICES = 20


class Work:
    """In each slice looks for the answer to the request that was sent in the slice before."""

    def __init__(self, client: RawClient, clock: VirtualClock) -> None:
        self._client = client
        self._clock = clock
        self._frame = framed(request_body(ApiVersionsRequest(), 0))
        self.done: Future[None] = Future()
        self.answered: list[bool] = []
        client.socket.setblocking(False)
        client.socket.send(self._frame)

    def step(self) -> None:
        """Last as long as a slice."""
        try:
            self.answered.append(bool(self._client.socket.recv(1 << 16)))
            self._client.socket.send(self._frame)
        except BlockingIOError:
            self.answered.append(False)
        self._clock.advance(SLICE_MS)
        if len(self.answered) == SLICES:
            self.done.set_result(None)

    async def pausing(self) -> None:
        time_slice = Slice(self._clock)
        while not self.done.done():
            self.step()
            await time_slice.pause()

    def turn(self, _time_slice: Slice) -> bool:
        self.step()
        return not self.done.done()


@pytest.mark.parametrize("way", ["pause", "round-robin"])
def test_a_request_waits_for_one_slice_only(tmp_path: Path, way: str) -> None:
    # asyncio's own loop takes an iteration more, from bytes that are there to their reader.
    with (
        BrokerThread(tmp_path, loop_factory=uvloop.new_event_loop) as broker,
        RawClient(broker.port) as client,
    ):
        assert client.is_answered()
        clock = VirtualClock()
        work = Work(client, clock)
        if way == "pause":
            broker.call(lambda: asyncio.ensure_future(work.pausing()))
        else:
            broker.call(lambda: RoundRobin(clock).add(work.turn))
        work.done.result(30)
        # The first slice may begin before the loop has read anything.
        assert all(work.answered[1:]), work.answered

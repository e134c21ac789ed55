"""A simulation of topics that are created, filled, emptied, enlarged, deleted and created
again under the same name, while the broker is stopped, killed and loses power.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

from kohort.protocol.framing import encode_request
from tests.simulation.network import Weather, Wire
from tests.simulation.process import Call
from tests.simulation.world import PATIENCE_MS, World
from tests.support import messages as m
from tests.support.clients.topic_owner import Asking, NoAnswerError, TopicOwner

TOPICS: Final = 5
SETTINGS: Final = {
    # What is acknowledged survives a power loss.
    "log.flush.interval.messages": "1",
    # Segments are rolled, and deleted by DeleteRecords.
    "log.roll.ms": "2000",
    # Checkpoints are written between requests, too.
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "log.flush.start.offset.checkpoint.interval.ms": "5000",
}
WEATHER: Final = Weather(delay_ms_max=2, splits=0.2)
IO_LATENCY_MS_MAX: Final = 15
RETRY_MS: Final = 300
CHANGES: Final = (
    m.CreateTopicsRequest,
    m.CreatePartitionsRequest,
    m.DeleteRecordsRequest,
    m.DeleteTopicsRequest,
    m.ProduceRequest,
)


class _Connection:
    """The connection of one owner, with one request at a time; reconnects when it is lost."""

    def __init__(self, world: World, number: int) -> None:
        self.number = number
        self._world = world
        self._wire: Wire | None = None
        self._received = bytearray()
        self._correlation_id = 0
        self._frame: asyncio.Future[bytes] | None = None
        self.acknowledged: Callable[[type], None] = lambda _: None
        """Called with the class of a request when its answer has arrived."""

    async def ask(self, request: Any, version: int) -> Any:  # noqa: ANN401 - see Asking.
        """Return the answer. Raises NoAnswerError."""
        if self._wire is None:
            self._wire = self._world.network.connect(self, f"10.254.0.{self.number}")
        self._correlation_id += 1
        parts, expected = encode_request(request, version, self._correlation_id, "owner")
        call = Call(self, request, expected, self._world.now_ms, lambda _: None)
        self._frame = asyncio.get_running_loop().create_future()
        self._wire.send(b"".join(parts), call)
        async with asyncio.timeout(PATIENCE_MS / 1000):
            answer = call.read(await self._frame)
        self.acknowledged(type(request))
        return answer

    def received(self, data: bytes) -> None:
        self._received += data
        size = 4 + int.from_bytes(self._received[:4])
        if len(self._received) < size or self._frame is None or self._frame.done():
            return
        frame = bytes(self._received)
        self._received.clear()
        self._frame.set_result(frame)

    def disconnected(self) -> None:
        self._wire = None
        self._received.clear()
        if self._frame is not None and not self._frame.done():
            self._frame.set_exception(NoAnswerError())


class TopicLife:
    """Runs the clients, stops, kills and power losses of a simulation."""

    def __init__(self, seed: str) -> None:
        self.world = World(
            seed, settings=SETTINGS, weather=WEATHER, io_latency_ms_max=IO_LATENCY_MS_MAX
        )
        self.chance = Random(self.world.chance.getrandbits(64))
        self._connections: list[_Connection] = []
        self.owners: list[TopicOwner] = []
        for number in range(TOPICS):
            chance = Random(self.chance.getrandbits(64))
            self._connections.append(_Connection(self.world, number + 1))
            self.owners.append(TopicOwner(f"topic{number}", chance, self.world.fail))
        self._is_over = False

    def live(self, failures: int) -> None:
        """Run the broker until it has ended this number of times. Raises SimulationError."""
        self.world.run(self._run(failures))

    async def _run(self, failures: int) -> None:
        world = self.world
        await world.start_broker()
        owners = [
            asyncio.ensure_future(self._act(owner, connection))
            for owner, connection in zip(self.owners, self._connections, strict=True)
        ]
        for _ in range(failures):
            await world.pass_time(self.chance.randint(0, 3_000))
            await self._the_broker_fails()
        self._is_over = True
        await asyncio.gather(*owners)
        world.raise_failures()
        await world.stop_broker()

    async def _act(self, owner: TopicOwner, connection: _Connection) -> None:
        while not self._is_over:
            with suppress(NoAnswerError):
                await _drive(owner.act(), connection)
            await asyncio.sleep(self.chance.choice((0, 0.01, 0.1, RETRY_MS / 1000)))
        while True:
            with suppress(NoAnswerError):
                await _drive(owner.look(), connection)
                break
            await asyncio.sleep(RETRY_MS / 1000)

    async def _the_broker_fails(self) -> None:
        chance, world = self.chance, self.world
        if chance.random() < 0.2:
            await world.stop_broker()
        else:
            if chance.random() < 0.8:
                # Right after an acknowledgement is the worst moment to fail.
                await self._wait_acknowledged(chance.choice(CHANGES))
            world.kill_broker(power_loss=chance.random() < 0.7)
        await world.pass_time(chance.choice((0, 300, 3_000)))
        await world.start_broker()

    async def _wait_acknowledged(self, change: type) -> None:
        moment = asyncio.Event()

        def note(acknowledged: type) -> None:
            if acknowledged is change:
                moment.set()

        for connection in self._connections:
            connection.acknowledged = note
        await asyncio.wait_for(moment.wait(), timeout=600)


async def _drive(asking: Asking, connection: _Connection) -> None:
    with suppress(StopIteration):
        request, version = next(asking)
        while True:
            try:
                answer = await connection.ask(request, version)
            except NoAnswerError as error:
                asking.throw(error)
                raise
            request, version = asking.send(answer)

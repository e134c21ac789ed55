"""One history of transactions, and every disk that a stop or a loss of power could have left of it.

Producers of both flows work on a broker that is killed now and then, or loses its power, and is
started again on what is left. At operations on files, that chance chooses, the disk is copied as it
would be found then: as it is (a kill), and without some of what was not forced to it (a loss of
power). Each copy is a state; `states` starts a broker on it and holds that against the logs, byte
by byte, and against what the clients were told by then.
"""

import asyncio
from collections import Counter
from random import Random
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from kohort.protocol.errors import KafkaError
from kohort.testing.lasting_metadata import LastingMetadata
from kohort.testing.simulated_filesystem import Operation, SimulatedFileSystem
from kohort.testing.virtual_clock import VirtualClock
from tests.simulation.transactions.broker import Broker, Died, Disk, new_loop, settings
from tests.simulation.transactions.clients import Client
from tests.simulation.transactions.ledger import Ledger
from tests.simulation.transactions.live import LiveLogs

OWNERS: Final = ("one", "two", "three", "four")
"""Transactional ids; each commits the position of a group of its own."""
FLOWS: Final = (1, 2, 2, 1)

OVERDUE_MS: Final = 60_000
"""Longer than any client lets its transactions take."""


class State(NamedTuple):
    files: SimulatedFileSystem
    topics: dict[Any, Any]
    properties: dict[str, str]
    known: int
    """Facts of the ledger at that time."""
    wall_ms: int
    has_lost_power: bool
    number: int
    """Number of the operation, and of the copy, to repeat it."""

    @classmethod
    def of(
        cls, disk: Disk, ledger: Ledger, wall_ms: int, *, has_lost_power: bool, number: int
    ) -> Self:
        store = disk.store
        return cls(
            disk.files.copy(),
            dict(store._topics),
            dict(store._properties),
            ledger.now,
            wall_ms,
            has_lost_power,
            number,
        )


class World:
    """See the module.

    Args:
        seed: all that happens follows from it.
        is_forced: every batch waits for an fsync (log.flush.interval.messages=1); else the page
            cache is what is promised.
        losses: copies without power that each chosen operation gives, beside the kill.
        density: how many of the operations are chosen.
    """

    def __init__(
        self, seed: int, *, is_forced: bool, losses: int = 4, density: float = 0.2
    ) -> None:
        self.random = Random(seed)
        self.is_forced = is_forced
        self.ledger = Ledger()
        self.states: list[State] = []
        self.counts: Counter[str] = Counter()
        self.clock = VirtualClock()
        self.loop = new_loop(self.clock, lambda: self.random.choice([0, 0, 1, 5]))
        self.live: LiveLogs | None = None
        self._loaded = settings(is_forced=is_forced)
        self._losses = losses
        self._density = density
        self._disk = Disk()
        self._operations = 0
        self._dies_at = 0
        self._left: State | None = None
        self._broker: Broker | None = None
        self._alive: asyncio.Event
        self._living_broker: asyncio.Task[None]
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._living: list[asyncio.Task[None]] = []
        """Clients at work, in the order in which they came."""
        self._errors: list[BaseException] = []

    # Running.

    def begin(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._begin())

    def run(self, duration_ms: int) -> None:
        """Let time pass. Raises what a client or a life has found to be wrong."""
        self.loop.run_until_complete(asyncio.sleep(duration_ms / 1_000))
        if self._errors:
            raise self._errors[0]

    def settle(self) -> None:
        """Let all clients go, and all transactions end by time: nothing is held back then (P3, P7).

        The broker is not stopped any more.
        """
        for task in list(self._tasks):
            if task is not self._living_broker:
                task.cancel()
        self._dies_at = -1
        self._density = 0.0
        self.loop.run_until_complete(asyncio.sleep(OVERDUE_MS / 1_000))
        broker = self._broker
        assert broker is not None
        assert not broker.is_dead
        for partition in broker.topics.disk.opened():
            assert not partition.open_transactions(), f"{partition} has transactions that hang"
            assert partition.last_stable_offset == partition.high_watermark, f"{partition} is held"

    def take_states(self) -> list[State]:
        """The states that were found since the last call."""
        states, self.states = self.states, []
        return states

    def close(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    async def _begin(self) -> None:
        self._alive = asyncio.Event()
        self._living_broker = self._start_task(self._lives())
        await self._alive.wait()
        for owner, flow in zip(OWNERS, FLOWS, strict=True):
            self._start_task(self._succeed(owner, flow))
        self._start_task(self._delete_topics())
        self._start_task(self._watch())

    def _start_task(self, work: Any) -> asyncio.Task[None]:  # noqa: ANN401 - a coroutine.
        task: asyncio.Task[None] = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._errors.append(error)

    # For clients.

    async def ask(self, request: Any, version: int) -> Any:  # noqa: ANN401 - its answer.
        """The answer, however many lives of the broker it takes."""
        while True:
            await self._alive.wait()
            broker = self._broker
            assert broker is not None
            try:
                answer = await broker.ask(request, version)
            except Died:
                self.counts["asked again"] += 1
                await asyncio.sleep(0.01)
            else:
                if self.live is not None:
                    self.live.look(broker)
                return answer

    async def _succeed(self, owner: str, flow: int) -> None:
        """Producers of one id, each replaced by the next without being told."""
        while True:
            client = Client(self, owner, flow, Random(self.random.random()))
            living = self._start_task(client.live())
            self._living = [one for one in self._living if not one.done()] + [living]
            await asyncio.sleep(self.random.randrange(5_000, 60_000) / 1_000)
            client.is_replaced = True
            self.counts["replaced"] += 1
            if self.random.random() < 0.5:
                living.cancel()

    async def _delete_topics(self) -> None:
        """A topic goes in the middle of transactions, and one of that name comes."""
        while True:
            await asyncio.sleep(self.random.randrange(4_000, 40_000) / 1_000)
            broker = self._broker
            if broker is None or broker.is_dead:
                continue
            try:
                await broker.run(_make_again(broker))
            except (Died, KafkaError):
                continue
            self.counts["topics deleted"] += 1

    async def _watch(self) -> None:
        """Look at the logs though no client is answered."""
        while True:
            await asyncio.sleep(0.5)
            broker = self._broker
            if self.live is not None and broker is not None and not broker.is_dead:
                self.live.look(broker)

    # Lives.

    async def _lives(self) -> None:
        while True:
            self._operations, self._left = 0, None
            if self._dies_at >= 0:
                self._dies_at = self.random.randrange(60, 700)
            self._disk.files.on_operation = self._on_operation
            self._broker = broker = Broker(self._disk, self._loaded, self.clock, self._new_uuid)
            self.counts["lives"] += 1
            try:
                await broker.start()
                self.live = LiveLogs(broker)
                self._alive.set()
                await broker.run(asyncio.Event().wait())
            except Died:
                pass
            self._alive.clear()
            self._disk = self._remains()

    def _new_uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128))

    def _on_operation(self, operation: Operation) -> None:
        if operation == "pread":
            return
        broker = self._broker
        assert broker is not None
        if broker.is_dead or (self.live is None and self.counts["lives"] == 1):
            # The topics of the first life are still being made.
            return
        self._operations += 1
        if self._operations == self._dies_at:
            self._left = self._state(has_lost_power=False, number=0)
            broker.die()
            # A task that this very step makes begins before it is ended; one that never begins
            # leaves behind what it was to wait for.
            self.loop.call_soon(self.loop.call_soon, broker.bury)
        elif self.random.random() < self._density:
            self.states.append(self._state(has_lost_power=False, number=0))
            for number in range(self._losses):
                state = self._state(has_lost_power=True, number=number + 1)
                lose_power(state.files, self.random, number)
                self.states.append(state)

    def _state(self, *, has_lost_power: bool, number: int) -> State:
        return State.of(
            self._disk,
            self.ledger,
            self.clock.wall_ms(),
            has_lost_power=has_lost_power,
            number=self._operations * 100 + number,
        )

    def _remains(self) -> Disk:
        """What the next life finds; the power may have gone as well."""
        assert self._left is not None
        files = self._left.files
        if self.random.random() < (0.5 if self.is_forced else 0.3):
            self.counts["power lost"] += 1
            lose_power(files, self.random, self.random.randrange(4))
            if not self.is_forced:
                self._forget_all()
        else:
            self.counts["killed"] += 1
        return Disk(files, store_of(self._left))

    def _forget_all(self) -> None:
        """Nothing that was told need be so; clients that were at work begin again."""
        self.ledger.forget()
        for task in self._living:
            task.cancel()


def store_of(state: State) -> LastingMetadata:
    """The metadata as they were then."""
    store = LastingMetadata()
    store._topics, store._properties = dict(state.topics), dict(state.properties)
    return store


def lose_power(files: SimulatedFileSystem, random: Random, kind: int) -> None:
    """In one of three ways: all goes that was not forced; files lose their ends; anything."""
    if kind == 0:
        files.lose_power(lambda _: 0)
    elif kind == 1:
        files.lose_power(random.randrange)
    else:
        files.lose_ends(random.randrange)


async def _make_again(broker: Broker) -> None:
    topics = broker.topics
    topic = topics.get("d")
    if topic is not None:
        (error,) = await topics.changes.delete_topics([topic])
        if error is not None:
            raise error
    configs = {"internal.segment.bytes": "1500"}
    await topics.changes.create_topic("d", partition_count=1, configs=configs)

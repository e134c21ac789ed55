"""Lives of whole consumers: what happens to them, by seed, and whether all comes right in the end.

A life is one group of processes before a cluster of three brokers: addresses change, leaders die,
connections break, answers come late, processes come and go. What must hold at every moment is in
`ledger` and `process`; in the end, left alone, the group processes and commits everything there is,
and nothing is left of consumers that have ended.
"""

import asyncio
import gc
import logging
import random as random_module
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from kohort.client.core.records import AnyRecord
from tests.simulation.consuming.brokers import NODES, Cluster
from tests.simulation.consuming.ledger import Ledger
from tests.simulation.consuming.network import ConsumersClock, ConsumersLoop, Host, Network
from tests.simulation.consuming.process import End, Process
from tests.simulation.consuming.records import PARTITIONS
from tests.simulation.consuming.threads import TurnTaker, turns

PROCESSES_MAX: Final = 4
SETTLING_S: Final = 180
"""Seconds of virtual time that a group that is left alone may need for all that is left to do."""
STRATEGIES: Final = ("range", "cooperative-sticky", ("range", "cooperative-sticky"))


class LifeError(AssertionError):
    """A promise was broken; the text has the seed and what happened last."""


@dataclass
class Tally:
    lives: int = 0
    steps: int = 0
    records: int = 0
    commits: int = 0
    requests: int = 0
    virtual_s: float = 0.0

    def add(self, other: "Tally") -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class Life:
    def __init__(self, seed: str, loop: asyncio.AbstractEventLoop, network: Network) -> None:
        self.random = network.random
        self.network = network
        self.ledger = Ledger()
        self.cluster = Cluster(network, self.ledger.commit)
        self.bootstrap = self.cluster.bootstrap
        self.strategy: str | tuple[str, ...] = self.random.choice(STRATEGIES)
        self.is_calm = False
        self.steps = 0
        self.trace: list[str] = []
        self._seed = seed
        self._loop = loop
        self._processes: dict[Process, asyncio.Task[None]] = {}
        self._ending: dict[asyncio.Task[None], Process] = {}
        self._numbers = 0
        self.problems: list[str] = []
        """Problems that no caller was there to be told of."""
        self._begun_s = loop.time()

    def step(self) -> None:
        self.steps += 1

    def lose_connections(self, process: int) -> None:
        """All that a process has, in a moment: what it sends until then may have arrived."""
        self.note(f"connections of p{process} are lost")
        delay_s = self.random.choice([0.001, 0.003, 0.01])
        network = self.network
        self._loop.call_later(delay_s, network.lose, lambda wire: wire.process == process)

    def note(self, what: str) -> None:
        self.trace.append(f"{self._loop.time() - self._begun_s:9.3f} {what}")

    def note_read(self, what: str, records: Sequence[AnyRecord]) -> None:
        """For the trace, shortened."""
        begin = f"{what} {records[0].partition}: "
        if self.trace and begin in self.trace[-1]:
            self.trace[-1] = f"{self.trace[-1].rpartition(' to ')[0]} to {records[-1].offset}"
        else:
            self.note(f"{begin}{records[0].offset} to {records[-1].offset}")

    async def run(self, steps: int) -> Tally:
        """So many steps, and then until all is quiet. Raises an AssertionError."""
        while self.steps < steps:
            self.step()
            await asyncio.sleep(self.random.choice([0.01, 0.1, 0.3, 0.5, 1.0]))
            self._happen()
            self._look()
        await self._settle()
        for process in list(self._processes):
            self._end(process, End.STOP)
        async with asyncio.timeout(60):
            while self._ending:
                await asyncio.sleep(0.1)
                self._look()
        self.cluster.group.close()
        self._check_nothing_is_left()
        return Tally(
            1,
            self.steps,
            self.ledger.records,
            self.ledger.commits,
            self.network.frames,
            self._loop.time() - self._begun_s,
        )

    # What happens.

    def _happen(self) -> None:
        random, cluster = self.random, self.cluster
        self._go_on()
        node = random.randrange(NODES)
        happenings: list[Callable[[], None]] = [
            self._disturb_network,
            lambda: self._disturb_broker(node),
            lambda: self._disturb_broker(node),
            lambda: cluster.lead(random.randrange(PARTITIONS), node),
            self._start_another,
            lambda: self._end(random.choice(list(self._processes)), random.choice(list(End))),
            lambda: None,
        ]
        random.choice(happenings)()

    def _go_on(self) -> None:
        """Nothing bad: there are processes, and records for them."""
        if len(self._processes) < 2:
            self._start()
        for partition in range(PARTITIONS):
            if self.random.random() < 0.7:
                self.cluster.append(partition, self.random.randint(1, 3))

    def _disturb_network(self) -> None:
        network, random = self.network, self.random
        if random.random() < 0.5:
            network.loses_answers = random.choice([0.0, 0.0, 0.05, 0.2])
        else:
            network.delay_ms_max = random.choice([1, 3, 3, 50, 1_500, 5_000])
            self.note(f"answers take up to {network.delay_ms_max} ms")

    def _disturb_broker(self, number: int) -> None:
        cluster = self.cluster
        node = cluster.nodes[number]
        match self.random.randrange(4):
            case 0:
                self.note(f"connections of broker {number} are lost")
                self.network.lose(lambda wire: wire.address == node.address)
            case 1:
                self.note(f"broker {number} is at another address")
                node.move()
            case 2:
                self._lose_broker(number)
            case _:
                self.note(f"broker {number} coordinates the group")
                cluster.coordinate(number)

    def _start_another(self) -> None:
        if len(self._processes) < PROCESSES_MAX:
            self._start()

    def _lose_broker(self, number: int) -> None:
        """Its machine is gone, or only the process; others take over, sooner or later."""
        random, cluster = self.random, self.cluster
        if any(cluster.network.hosts[one.address] is not Host.UP for one in cluster.nodes):
            return
        node = cluster.nodes[number]
        state = random.choice([Host.SILENT, Host.REFUSES])
        self.note(f"broker {number} {state.value}")
        node.set_state(state)
        other = (number + random.randint(1, NODES - 1)) % NODES

        def take_over() -> None:
            for partition, leader in enumerate(cluster.leaders):
                if leader == number:
                    cluster.lead(partition, other)
            if cluster.coordinator == number:
                cluster.coordinate(other)

        def come_back() -> None:
            self.note(f"broker {number} is back")
            node.set_state(Host.UP)
            if random.random() < 0.5:
                node.move()

        self._loop.call_later(random.choice([0.5, 5]), take_over)
        self._loop.call_later(random.choice([7, 20]), come_back)

    def _start(self) -> None:
        self._numbers += 1
        # One that crashed may come back while its place is kept.
        static = {one.instance for one in self._processes} | {
            one.instance for one in self._ending.values()
        }
        instance = self.random.choice([None, None, "i1", "i2"])
        process = Process(self, self._numbers, None if instance in static else instance)
        self.note(f"p{process.number} starts: {process}")
        task = self._loop.create_task(process.run(), name=f"process {process.number}")
        self._processes[process] = task

    def _end(self, process: Process, how: End) -> None:
        task = self._processes.pop(process)
        if how is End.CRASH:
            self.network.cut_off.add(process.number)

        async def end() -> None:
            await process.end(how)
            await asyncio.gather(task, return_exceptions=how in {End.ERROR, End.CRASH})

        self._ending[self._loop.create_task(end(), name=f"end {process.number}")] = process

    # Whether it is right.

    def _look(self) -> None:
        assert not self.problems, self.problems[0]
        for process, task in list(self._processes.items()):
            if task.done():
                task.result()
            if process.is_fenced:
                self._end(process, End.ERROR)
            else:
                assert not task.done(), f"{task.get_name()} is over"
        for task in [one for one in self._ending if one.done()]:
            del self._ending[task]
            task.result()

    async def _settle(self) -> None:
        """Left alone, the group gets everything done."""
        self.note("all is well from now on")
        self.is_calm = True
        network, cluster = self.network, self.cluster
        network.delay_ms_max, network.loses_answers = 1, 0.0
        for node in cluster.nodes:
            node.set_state(Host.UP)
        while len(self._processes) < 2:
            self._start()
        ends = [cluster.end(one) for one in range(PARTITIONS)]
        deadline_s = self._loop.time() + SETTLING_S
        while self.ledger.committed != ends:
            await asyncio.sleep(0.5)
            self._look()
            if not self._processes:
                self._start()
            assert self._loop.time() < deadline_s, (
                f"not done: committed {self.ledger.committed}, processed {self.ledger.processed} of"
                f" {ends}; {[str(one.consumer.health()) for one in self._processes]}"
            )

    def _check_nothing_is_left(self) -> None:
        assert not TurnTaker.alive, "heartbeat threads are left"
        mine = asyncio.current_task()
        held_back = self.network.waiting
        tasks = [one for one in asyncio.all_tasks() if one is not mine and one not in held_back]
        assert not tasks, f"tasks are left: {tasks}"
        assert not self.network.wires, f"connections are left: {len(self.network.wires)}"


def live(seed: str, steps: int, report: Callable[[str], object] | None = None) -> Tally:
    """One life. Raises a LifeError. `report` is given each line of its trace in the end."""
    clock = ConsumersClock()
    network = Network(Random(seed))
    problems: list[str] = []
    life: Life | None = None

    def unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        problems.append(str(context) if error is None else str(error) or repr(error))
        if life is not None:
            life.note(problems[-1])

    async def run() -> Tally:
        nonlocal life
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(unhandled)
        life = Life(seed, loop, network)
        life.problems = problems
        tally = await life.run(steps)
        for one in list(network.waiting):
            one.cancel()
        return tally

    with _virtual_time(clock), _chance(seed), _errors_logged(problems), turns():
        runner = asyncio.Runner(loop_factory=lambda: ConsumersLoop(clock, network))
        try:
            tally = runner.run(run())
            gc.collect(1)
            assert not problems, problems[0]
        except Exception as error:
            last = "\n".join(life.trace[-60:]) if life is not None else ""
            raise LifeError(f"consuming {seed}: {error!r}\n{last}") from error
        finally:
            runner.close()
            # Most of all of a life that has failed.
            if life is not None and report is not None:
                for line in life.trace:
                    report(line)
    return tally


@contextmanager
def _virtual_time(clock: ConsumersClock) -> Iterator[None]:
    """The whole process is on the loop's time: what asks `time` is told that."""
    names = ("monotonic", "monotonic_ns", "time", "time_ns")
    real = {name: getattr(time, name) for name in names}
    told: dict[str, Any] = {
        "monotonic": clock.now_s,
        "monotonic_ns": lambda: clock.monotonic_ms() * 1_000_000 + clock.turns * 10,
        "time": lambda: clock.wall_ms() / 1000,
        "time_ns": lambda: clock.wall_ms() * 1_000_000,
    }
    try:
        for name in names:
            setattr(time, name, told[name])
        yield
    finally:
        for name in names:
            setattr(time, name, real[name])


@contextmanager
def _chance(seed: str) -> Iterator[None]:
    """What the client itself takes from chance is from this seed."""
    state = random_module.getstate()
    random_module.seed(seed)
    try:
        yield
    finally:
        random_module.setstate(state)


@contextmanager
def _errors_logged(problems: list[str]) -> Iterator[None]:
    """What is logged as an error is one; warnings are part of such a life."""

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            problems.append(self.format(record))

    handler, root, level = Collect(logging.ERROR), logging.getLogger(), logging.root.manager.disable
    root.addHandler(handler)
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(level)
        root.removeHandler(handler)

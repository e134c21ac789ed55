"""One broker, its network, its disk and its clients, on a clock of their own.

A world is made from a seed. What it does is a function of the seed and of the code, so that a run
that fails can be repeated: not a single thing in it takes its time or its chance from outside.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kohort.broker.app import Broker
from kohort.broker.config import load
from kohort.broker.coordinator.coordinator import GroupCoordinator
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.groups.events import EVENTS, Event
from kohort.groups.history.model import HistoryRecord
from kohort.groups.requests import Now
from kohort.protocol.errors import ErrorCode
from kohort.protocol.framing import encode_request
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from kohort.testing.virtual_clock import VirtualClock
from tests.simulation.assigning import PARTITIONS, TOPIC
from tests.simulation.environment import (
    DurableMetadata,
    SimulatedEnvironment,
    StillMeter,
)
from tests.simulation.ledger import Ledger
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network, Weather, Wire
from tests.simulation.process import Call, Process, Traits
from tests.simulation.witness import Witness
from tests.support import messages as m

OFFSETS_PARTITIONS = 4
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "/data",
    "kohort.metrics.port": "-1",
    "kohort.console.port": "-1",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    # Peers that went silently are given up while the simulation lasts.
    "connections.max.idle.ms": "60000",
    # Segments of the groups' logs come and go.
    "offsets.topic.segment.bytes": "1048576",
}
COMMIT_VERSIONS = {3: 3, 4: 5, 5: 7, 6: 7, 7: 8, 8: 8, 9: 9}
"""The version of OffsetCommit, by the version of JoinGroup."""
STORED = m.SyncGroupRequest | m.OffsetCommitRequest
"""An answer to these may promise that something is stored."""
PATIENCE_MS = 400_000
"""After so long a request that is not answered is lost."""
CHECK_MS = 60_000


class SimulationError(AssertionError):
    """Something that must hold did not."""


class _Alarms(logging.Handler):
    """Fails at any line about an internal error."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._fail = fail

    def emit(self, record: logging.LogRecord) -> None:
        self._fail(f"logged: {self.format(record)}")


@dataclass(eq=False)
class Life:
    """One run of the broker, from start to stop or death."""

    number: int
    broker: Broker
    environment: SimulatedEnvironment
    is_up: asyncio.Event = field(default_factory=asyncio.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    is_dead: bool = False
    """Killed: what it still does does not count."""

    async def run(self) -> None:
        async with self.broker.running():
            self.is_up.set()
            await self.stop.wait()


class World:
    """See the module. `settings` are the broker's, under Kafka's names."""

    def __init__(
        self,
        seed: str,
        *,
        settings: dict[str, str] | None = None,
        weather: Weather | None = None,
        io_latency_ms_max: int = 0,
        commits: float = 0.05,
        keep_ledger: bool = False,
        keep_trace: bool = False,
    ) -> None:
        """`keep_ledger` compares the causes of rebalances, where an append takes no time and
        requests come one by one.
        """
        self.seed = seed
        self.chance = Random(seed)
        self.clock = VirtualClock()
        self.commits = commits
        """The part of heartbeats in whose place a position is committed."""
        self.commits_owned = False
        """Whether members commit only what they own, as consumers do."""
        self.partition_count = PARTITIONS
        """How many partitions of the topic the members know."""
        self.failures: list[str] = []
        self.witness = Witness(self.fail)
        self.processes: list[Process] = []
        """All that are alive, and those that died not long ago."""
        self.life: Life | None = None
        self.lives = 0
        self.turns = 0
        self.when_stored: Callable[[], None] | None = None
        """Called once, when the next answer that may promise something stored has been written."""
        self.ledger = Ledger(self.fail) if keep_ledger else None
        self.trace: list[str] | None = [] if keep_trace else None
        self._io_latency_ms_max = io_latency_ms_max
        self._settings = {**SETTINGS, **(settings or {})}
        self._numbers = 0
        self._positions = 0
        self._io_chance = Random(self.chance.getrandbits(64))
        self._id_chance = Random(self.chance.getrandbits(64))
        self.loop = SimulatedLoop(self.clock, latency_ms=self._io_latency_ms, listen=self._listen)
        self.loop.set_exception_handler(self._on_loop_error)
        self.network = Network(
            self.loop, Random(self.chance.getrandbits(64)), self, one_by_one=keep_ledger
        )
        if weather is not None:
            self.network.weather = weather
        self._files = SimulatedFileSystem()
        self._metadata = DurableMetadata("simulated")

    # Running.

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Raises SimulationError with the seed if anything has failed."""
        alarms = _Alarms(self.fail)
        logging.getLogger().addHandler(alarms)
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop, debug=False) as runner:
                try:
                    runner.run(work)
                except Exception as error:
                    if not self.failures:
                        raise
                    if not isinstance(error, SimulationError):
                        self.failures.append(repr(error))
        finally:
            logging.getLogger().removeHandler(alarms)
        self.raise_failures()

    def fail(self, text: str) -> None:
        """Noted now, raised where it does not disturb."""
        self.failures.append(f"at {self.now_ms} ms: {text}")

    def raise_failures(self) -> None:
        if self.failures:
            raise SimulationError(f"seed {self.seed}: " + "\n".join(self.failures[:5]))

    @property
    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    def later(self, duration_ms: int, act: Callable[[], None]) -> None:
        self.loop.call_later(duration_ms / 1000, act)

    async def pass_time(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1000)
        self.raise_failures()

    def next_turn(self) -> int:
        self.turns += 1
        return self.turns

    def note(self, line: str) -> None:
        """Part of the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now_ms} {line}\n")

    # The broker.

    @property
    def groups(self) -> GroupCoordinator:
        assert self.life is not None
        return self.life.broker.services.groups

    async def start_broker(self, **settings: str) -> Life:
        given = self._settings | {name.replace("_", "."): value for name, value in settings.items()}
        environment = SimulatedEnvironment(
            self.clock, self.network, self._id_chance, self._files, self._metadata
        )
        overrides = [f"{name}={value}" for name, value in given.items()]
        broker = Broker(load(overrides=overrides, environment={}), environment=environment)
        broker.metrics.loop_lag = StillMeter()
        self.lives += 1
        self.life = life = Life(self.lives, broker, environment)
        self.note(f"broker {life.number} starts")
        self._files.on_failure = self._on_disk_failure
        if self.ledger is not None:
            self.ledger.size_max = broker.config.group_max_size
            self._keep_books(life, self.ledger)
        life.task = asyncio.get_running_loop().create_task(life.run())
        up = asyncio.ensure_future(life.is_up.wait())
        await asyncio.wait([up, life.task], return_when=asyncio.FIRST_COMPLETED)
        if life.task.done():
            life.task.result()
        return life

    async def create_topic(self, partition_count: int = PARTITIONS) -> None:
        assert self.life is not None
        topics = self.life.broker.services.topics
        await topics.changes.create_topic(TOPIC, partition_count=partition_count)

    async def stop_broker(self) -> None:
        life = self.life
        assert life is not None
        assert life.task is not None
        self.note(f"broker {life.number} stops")
        life.stop.set()
        await life.task
        life.is_dead = True
        self.life = None
        self._forget_what_was_under_way(killed=False)

    def kill_broker(self, *, power_loss: bool = False) -> None:
        """Kill the broker as SIGKILL or a power loss does. What is written stays, or some of it."""
        life = self.life
        assert life is not None
        self.note(f"broker {life.number} is killed")
        life.is_dead = True
        # It goes on for a while, unheard and on a disk of its own: letting it stop is the easiest
        # way to be rid of its tasks.
        self._files.on_failure = None
        self._files = self._files.copy()
        self._files.clear_faults()
        self._metadata = self._metadata.copy()
        if power_loss:
            self._files.lose_power(self.chance.randrange)
        self.network.lose_broker()
        life.stop.set()
        self.life = None
        self._forget_what_was_under_way(killed=True)

    def _keep_books(self, life: Life, ledger: Ledger) -> None:
        """Let the ledger see what happens in this life of the broker, up to its death."""
        history = life.broker.history
        observe = history.observe

        def see(group_id: str, event: Event, now: Now) -> None:
            if not life.is_dead:
                ledger.observe(group_id, event, now)
            observe(group_id, event, now)

        def hear(record: HistoryRecord) -> None:
            if not life.is_dead:
                ledger.told(record)

        history.observed = EVENTS
        history.observe = see  # type: ignore[method-assign]  # The one place that sees all events.
        history.add_listener(hear)

    @property
    def files(self) -> SimulatedFileSystem:
        return self._files

    def fail_writes(self, group: str, *, times: int, duration_ms: int) -> None:
        """The disk is full for the next writes to the log of that group, or for so long."""
        directory = f"/data/{CONSUMER_OFFSETS}-{partition_of(group, OFFSETS_PARTITIONS)}"
        files = self._files
        if self.life is None or not files.exists(directory):
            return
        names = [entry.name for entry in files.entries(directory) if entry.name.endswith(".log")]
        path = f"{directory}/{max(names)}"
        self.note(f"the next {times} writes to {path} fail")
        files.fail("pwritev", suffix=path, number=errno.ENOSPC, times=times)
        self.later(duration_ms, files.clear_faults)

    def _on_disk_failure(self, path: str) -> None:
        if self.ledger is not None:
            partition = int(path.split("/")[-2].rpartition("-")[2])
            now = Now(self.now_ms, self.clock.wall_ms())
            self.ledger.disk_failed(partition, OFFSETS_PARTITIONS, now)

    # The clients.

    def new_process(
        self,
        traits: Traits,
        kind: type[Process] = Process,
        **changes: Any,  # noqa: ANN401
    ) -> Process:
        self._numbers += 1
        process = kind(self, traits, self._numbers, **changes)
        self.processes.append(process)
        self.note(f"{process} starts")
        process.start()
        return process

    def alive(self, group: str) -> list[Process]:
        return [p for p in self.processes if p.is_alive and p.traits.group == group]

    def forget_dead(self) -> None:
        self.processes = [process for process in self.processes if process.is_alive]

    def commit_of(self, process: Process) -> None:
        """In the place of a heartbeat."""
        partition = self.chance.randrange(PARTITIONS)
        if self.commits_owned:
            assert process.owned
            partition = process.owned[partition % len(process.owned)]
        self.commit(process, TOPIC, partition)

    def commit(self, process: Process, topic: str, partition: int) -> None:
        """Have a process commit a position of a partition."""
        self._positions += 1
        offset = self._positions
        version = COMMIT_VERSIONS[process.traits.version]
        committed = m.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = m.OffsetCommitRequest(
            group_id=process.traits.group,
            generation_id_or_member_epoch=process.generation,
            member_id=process.member_id,
            group_instance_id=process.traits.instance if version >= 7 else None,
            topics=[m.OffsetCommitRequestTopic(name=topic, partitions=[committed])],
        )

        def on_answer(answer: m.OffsetCommitResponse) -> None:
            error = ErrorCode(answer.topics[0].partitions[0].error_code)
            if error:
                process._on_error(error)

        process.send(request, version, on_answer)

    def remove_by_admin(self, group: str, instance: str | None, member_id: str = "") -> None:
        """An administrator removes a member, a static one by its instance id alone."""
        identity = m.MemberIdentity(member_id=member_id, group_instance_id=instance)
        _Visitor(self, m.LeaveGroupRequest(group_id=group, members=[identity]), 4)

    def ask(self, request: Any, version: int) -> None:  # noqa: ANN401
        _Visitor(self, request, version)

    def commit_from_outside(self, group: str) -> None:
        """What stores positions without being a member makes a group, and the groups' topic."""
        committed = m.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        topic = m.OffsetCommitRequestTopic(name=TOPIC, partitions=[committed])
        _Visitor(self, m.OffsetCommitRequest(group_id=group, member_id="", topics=[topic]), 9)

    # What is looked at all the time.

    def delivered(self, call: Call) -> None:
        if self.life is None:
            return
        self.witness.saw_request(call)
        if self.trace is not None:
            self.note(
                f"> {call.process.number} {type(call.request).__name__} v{call.expected.version}"
            )
        if self.ledger is not None:
            self.ledger.delivered(call, self.now_ms, self.clock.wall_ms())

    def handled(self) -> None:
        if self.ledger is not None:
            self.ledger.handled(self.now_ms)

    def answered(self, call: Call, frame: bytes) -> None:
        if self.trace is not None:
            self.note(f"< {call.process.number} {frame.hex()}")
        if self.when_stored is not None and isinstance(call.request, STORED):
            self.loop.call_soon(self.when_stored)
            self.when_stored = None
        try:
            answer = call.read(frame)
            self.witness.saw_answer_leave(call, answer)
            if self.ledger is not None:
                self.ledger.answered(call, answer, self.now_ms)
        except Exception as error:  # noqa: BLE001 - the broker is on the stack.
            self.fail(f"{error!r} while looking at an answer to {call.process}")

    def check(self) -> None:
        """No process waits for ever; what was committed is there."""
        for process in self.processes:
            call = process.call
            if call is not None and process.is_alive and self.now_ms - call.sent_ms > PATIENCE_MS:
                self.fail(f"{process} waits for {call.request} since {call.sent_ms}")
        if self.life is None or not self.life.is_up.is_set():
            return
        lost = self.witness.lost_commits(lambda group, n: self.groups.committed(group, TOPIC, n))
        for group, partition, offset, found in lost:
            self.fail(f"{group} has committed {offset} of {partition}, there is {found}")

    async def check_for_ever(self) -> None:
        while True:
            await asyncio.sleep(CHECK_MS / 1000)
            self.check()

    # Within.

    def _forget_what_was_under_way(self, *, killed: bool) -> None:
        self.witness.broker_died()
        if self.ledger is not None:
            self.ledger.broker_died(killed=killed)

    def _io_latency_ms(self) -> int:
        return self._io_chance.randint(0, self._io_latency_ms_max)

    def _listen(self, port: Any, make: Any) -> None:  # noqa: ANN401 - see SimulatedLoop.
        self.network.listen(port, make)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.fail(f"{context['message']}: {error!r}")
        if error is not None:
            logging.getLogger(__name__).debug("in the simulation", exc_info=error)


class _Visitor:
    """Asks for one thing and goes."""

    number = 0

    def __init__(self, world: World, request: Any, version: int) -> None:  # noqa: ANN401
        parts, expected = encode_request(request, version, 1, "test")
        call = Call(self, request, expected, world.now_ms, lambda _: None)
        self._wire: Wire = world.network.connect(self, "10.255.255.255")
        self._wire.send(b"".join(parts), call)

    def received(self, data: bytes) -> None:
        self._wire.hang_up()

    def disconnected(self) -> None:
        """It tries only once."""

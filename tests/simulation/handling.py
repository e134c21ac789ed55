"""Runs of several members of one group on virtual time, while everything goes wrong around them.

The runners are the real ones; the group and its log are played. Handlers are slow, fail, hang and
are cancelled; partitions move, in both modes; members are given up while they go on, are stopped,
cancelled and started again; commits are late or lost, dead letters are refused. All of it by seed.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from kohort.client.core.errors import (
    CommitFailedError,
    OperationTimedOutError,
    RebalanceInProgressError,
)
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord, ConsumerRecord
from kohort.client.processing.attempts import Attempts
from kohort.client.processing.dead_letters import CallerSink, DeadLetter
from kohort.client.processing.figures import Counts
from kohort.client.processing.options import RunOptions
from kohort.client.processing.runner import Runner
from kohort.client.processing.source import CommitDone, Positions
from kohort.protocol.records.batch import TimestampType
from kohort.testing.virtual_clock import VirtualClock, VirtualClockLoop

PARTITIONS: Final = [TopicPartition("t", number) for number in range(4)]
KEYS: Final = [b"a", b"b", b"c", None]
MEMBERS: Final = 3
RECORDS_LIMIT: Final = 20
TAKE_MAX: Final = 7

Place = tuple[TopicPartition, int]
Lane = tuple[TopicPartition, bytes | None]


@dataclass
class World:
    """The log, what is committed of it, and what has become of its records."""

    chance: random.Random
    ordering: str
    log: dict[TopicPartition, list[AnyRecord]] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    owners: "dict[TopicPartition, Seat | None]" = field(default_factory=dict)
    processed: dict[Place, int] = field(default_factory=dict)
    """How often each was handled, or stored as a dead letter."""
    letters: set[Place] = field(default_factory=set)
    poison: dict[Place, int] = field(default_factory=dict)
    """How often its handler fails: -1 for ever."""
    hung: set[Place] = field(default_factory=set)
    """Whose handler did not return, which is one more attempt that failed."""
    first_done: dict[Lane, list[int]] = field(default_factory=lambda: defaultdict(list))
    is_calm: bool = False

    def happens(self, share: float) -> bool:
        return not self.is_calm and self.chance.random() < share

    def lane(self, record: AnyRecord) -> Lane:
        partition = TopicPartition(record.topic, record.partition)
        return partition, record.key if self.ordering == "key" else None

    def done(self, record: AnyRecord) -> None:
        place = TopicPartition(record.topic, record.partition), record.offset
        if place not in self.processed:
            self.first_done[self.lane(record)].append(record.offset)
            self.processed[place] = 0
        self.processed[place] += 1

    def first_open(self, partition: TopicPartition) -> int:
        for record in self.log[partition]:
            if (partition, record.offset) not in self.processed:
                return record.offset
        return self.end(partition)

    def end(self, partition: TopicPartition) -> int:
        return self.log[partition][-1].offset + 1

    def commit(self, seat: "Seat", offsets: Positions) -> None:
        """Commit as the coordinator does: from a member that it knows, for whatever it says."""
        if seat.is_given_up:
            raise CommitFailedError("not a member")
        for partition, at in offsets.items():
            assert self.owners[partition] is seat, f"{partition} is another one's"
            assert at.offset <= self.first_open(partition), "committed what was not processed"
            assert at.offset >= self.committed.get(partition, 0), "committed backwards"
            self.committed[partition] = at.offset


class Seat:
    """A membership: from a join to a leave, or to being given up."""

    def __init__(self) -> None:
        self.is_given_up = False
        self.generation = 0
        """Rises with each partition that goes: who has given one up joins again."""
        self.target: set[TopicPartition] = set()
        """What the group wants it to have."""


class PlayedSource:
    """One member's consumer: a `Source`."""

    can_commit = True
    delay_max_s = 30.0

    def __init__(self, world: World, group: "PlayedGroup") -> None:
        self.world = world
        self.group = group
        self.seat = Seat()
        self.runner: Runner | None = None
        self.places: dict[TopicPartition, int] = {}
        self.running: dict[Lane, int] = {}
        """What its handlers have in hand, by what it is in order with."""
        self._changed = asyncio.Event()
        self._commits = asyncio.Lock()
        self._callback: asyncio.Task[None] | None = None

    # What a runner sees.

    @property
    def assigned(self) -> Collection[TopicPartition]:
        return list(self.places)

    @property
    def positions(self) -> Positions:
        return {one: OffsetAndMetadata(at) for one, at in self.places.items()}

    async def poll(
        self,
        timeout_s: float,
        take: Callable[[], Any],
        only: frozenset[TopicPartition] | None,
    ) -> object:
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        while True:
            self._changed.clear()
            await self._turn()
            if found := take():
                return found
            left_s = deadline_s - asyncio.get_running_loop().time()
            if left_s < 0.001:  # The clock has whole milliseconds.
                return None
            try:
                async with asyncio.timeout(min(left_s, 0.1)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def take(
        self, count: int, only: frozenset[TopicPartition] | None
    ) -> dict[TopicPartition, list[AnyRecord]]:
        assert count > 0
        found: dict[TopicPartition, list[AnyRecord]] = {}
        left = self.world.chance.randint(1, min(count, TAKE_MAX))
        for partition, at in self.places.items():
            if only is not None and partition not in only:
                continue
            records = [one for one in self.world.log[partition] if one.offset >= at][:left]
            if records:
                found[partition] = records
                self.places[partition] = records[-1].offset + 1
                left -= len(records)
            if not left:
                break
        return found

    def wake(self) -> None:
        self._changed.set()

    async def commit(self, offsets: Positions, timeout_s: float) -> None:
        seat, generation = self.seat, self.seat.generation
        if self.world.happens(0.1):
            await asyncio.sleep(timeout_s)
            raise OperationTimedOutError("no answer")
        async with self._commits:
            await asyncio.sleep(self.world.chance.choice([0.0, 0.005, 0.3]))
            if seat.generation != generation:
                raise RebalanceInProgressError("asked for in an earlier generation")
            self.world.commit(seat, offsets)

    def commit_soon(self, offsets: Positions, on_done: CommitDone) -> None:
        # At once, or not at all: that commits keep their order is for `GroupOffsets` to see to.
        if self.world.happens(0.1):
            asyncio.get_running_loop().call_later(0.2, on_done, OperationTimedOutError("lost"))
            return
        try:
            self.world.commit(self.seat, offsets)
        except CommitFailedError as error:
            on_done(error)
        else:
            on_done(None)

    async def confirm(self, timeout_s: float) -> bool:
        await asyncio.sleep(0.001)
        return not self.seat.is_given_up

    def skip(self, partition: TopicPartition, offset: int) -> None:
        self.places[partition] = offset

    def go_back(self, offsets: Positions) -> None:
        for partition in self.places:
            known = offsets.get(partition)
            at = self.world.committed.get(partition, 0) if known is None else known.offset
            assert at <= self.world.first_open(partition) or self.seat.is_given_up
            self.places[partition] = at

    # The group's steps, within polls.

    async def _turn(self) -> None:
        if self._callback is None:
            self._callback = asyncio.create_task(self._rebalance(), name="rebalance")
        callback = self._callback
        # A poll that is cancelled cuts no callback: the next one waits for it.
        await asyncio.wait([callback])
        self._callback = None
        callback.result()

    async def _rebalance(self) -> None:
        runner, seat = self.runner, self.seat
        if seat.is_given_up:
            if runner is not None:
                runner.lose(set(self.places))
            self.places.clear()
            seat = self.seat = self.group.join()
        going = set(self.places) - seat.target
        if going and self.group.is_eager:
            going = set(self.places)
        if going:
            await self._revoke(going)
        if not seat.is_given_up:
            self._take_over()

    async def _revoke(self, going: set[TopicPartition]) -> None:
        if self.runner is not None:
            await self.runner.revoke(going)
            if not self.seat.is_given_up:
                assert not [lane for lane in self.running if lane[0] in going], "it goes on"
        self.seat.generation += 1
        for partition in sorted(going):
            del self.places[partition]
            if self.world.owners[partition] is self.seat:
                self.world.owners[partition] = None

    def _take_over(self) -> None:
        if self.group.is_eager and self.group.is_moving:
            return
        free = {one for one in self.seat.target if self.world.owners[one] is None}
        for partition in sorted(free):
            self.world.owners[partition] = self.seat
            self.places[partition] = self.world.committed.get(partition, 0)
        if self.runner is not None:
            self.runner.take_over(free)


class PlayedGroup:
    """A group played by the rules: which member is to have what."""

    def __init__(self, world: World, *, is_eager: bool) -> None:
        self.is_eager = is_eager
        self._world = world
        self._seats: list[Seat] = []

    @property
    def is_moving(self) -> bool:
        """Whether somebody has yet to give something up."""
        owners = self._world.owners
        return any(owner is not None and one not in owner.target for one, owner in owners.items())

    def join(self) -> Seat:
        seat = Seat()
        self._seats.append(seat)
        self.share_out()
        return seat

    def share_out(self) -> None:
        for seat in self._seats:
            seat.target = set()
        for partition in PARTITIONS if self._seats else ():
            self._world.chance.choice(self._seats).target.add(partition)

    def give_up(self, seat: Seat) -> None:
        """Others may have its partitions at once; it does not know yet."""
        if seat.is_given_up:
            return
        seat.is_given_up = True
        self._seats.remove(seat)
        for partition, owner in self._world.owners.items():
            if owner is seat:
                self._world.owners[partition] = None
        self.share_out()


class Member:
    """One consumer whose run is ended and begun again and again."""

    def __init__(self, world: World, group: PlayedGroup, options: RunOptions) -> None:
        self.world = world
        self.source = PlayedSource(world, group)
        self.source.seat = group.join()
        self.options = options
        self.counts = Counts()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.source.runner = runner = Runner(
            self.source,
            self.options,
            Attempts(
                self.handle,
                read_key=None,
                read_value=None,
                timeout_ms=self.options.handler_timeout_ms,
            ),
            CallerSink(self.store),
            self.counts,
            group_id="g",
            commit_interval_ms=50,
            clock=loop.time,
            chance=self.world.chance.random,
        )
        self.task = asyncio.create_task(runner.run(), name="run")

    async def handle(self, record: AnyRecord) -> None:
        world, source = self.world, self.source
        lane = world.lane(record)
        assert source.runner is not None
        assert source.runner._work.held_records <= RECORDS_LIMIT
        seat = source.seat
        if not seat.is_given_up:
            assert lane not in source.running, "two of one lane at a time"
        source.running[lane] = record.offset
        try:
            await self._work(record)
        except asyncio.CancelledError:
            match world.chance.randrange(3):
                case 0:
                    raise
                case 1:
                    raise OSError("the clean-up failed") from None
            # Suppressed: the handler returns as if its work were done.
        finally:
            source.running.pop(lane, None)

    async def _work(self, record: AnyRecord) -> None:
        world = self.world
        place = TopicPartition(record.topic, record.partition), record.offset
        await asyncio.sleep(world.chance.choice([0.0, 0.001, 0.02, 0.5]))
        if world.happens(0.002):
            world.hung.add(place)
            await asyncio.Event().wait()  # Until its time is over.
        left = world.poison.get(place, 0)
        if left:
            world.poison[place] = max(-1, left - 1) if left > 0 else -1
            raise LookupError(str(place))
        world.done(record)

    async def store(self, letter: DeadLetter) -> None:
        world, record = self.world, letter.record
        await asyncio.sleep(world.chance.choice([0.0, 0.01, 0.2]))
        if world.happens(0.3):
            raise ConnectionError("refused")
        world.letters.add((TopicPartition(record.topic, record.partition), record.offset))
        world.done(record)

    async def end(self) -> None:
        """In one of the ways that there are; then its positions are behind what is done."""
        task, runner = self.task, self.source.runner
        assert task is not None
        assert runner is not None
        match self.world.chance.randrange(3):
            case 0:
                runner.end()
            case 1:
                runner.end(0.1)
            case _:
                task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            task.result()
        self.source.runner = None


class HandlingLife:
    def __init__(self, seed: str, *, ordering: str, is_eager: bool, records: int = 120) -> None:
        chance = random.Random(f"{seed}.{ordering}.{is_eager}")
        self.world = World(chance, ordering)
        self._fill(records)
        self._group = PlayedGroup(self.world, is_eager=is_eager)
        self.members: list[Member] = []
        self.clock = VirtualClock()

    def run(self, events: int) -> None:
        """Raises AssertionError if a promise is broken."""
        loop = lambda: VirtualClockLoop(self.clock)  # noqa: E731 - a name for what follows.
        with asyncio.Runner(loop_factory=loop, debug=False) as runner:
            runner.run(self._live(events))

    async def _live(self, events: int) -> None:
        world, chance = self.world, self.world.chance
        options = _options(world.ordering)
        self.members = [Member(world, self._group, options) for _ in range(MEMBERS)]
        for member in self.members:
            member.start()
        for _ in range(events):
            await asyncio.sleep(chance.choice([0.01, 0.2, 1.5]))
            await self._happen(chance.choice(self.members))
            self._check_tasks()
        world.is_calm = True
        async with asyncio.timeout(3_600):
            while any(world.committed.get(one, 0) < world.end(one) for one in PARTITIONS):
                await asyncio.sleep(1)
                self._check_tasks()
        for member in self.members:
            await member.end()
        self._check_all()

    async def _happen(self, member: Member) -> None:
        match self.world.chance.randrange(5):
            case 0 | 1:
                self._group.share_out()
            case 2:
                self._group.give_up(member.source.seat)
            case _:
                await member.end()
                member.start()

    def _check_tasks(self) -> None:
        for member in self.members:
            if member.task is not None and member.task.done():
                member.task.result()
                raise AssertionError("a run ended by itself")

    def _check_all(self) -> None:
        world = self.world
        places = {(one, record.offset) for one, log in world.log.items() for record in log}
        assert set(world.processed) == places, "something was never handled"
        poison = {place for place, left in world.poison.items() if left < 0}
        assert poison <= world.letters <= poison | world.hung
        for offsets in world.first_done.values():
            assert offsets == sorted(offsets), "out of order"

    def _fill(self, count: int) -> None:
        world, chance = self.world, self.world.chance
        for partition in PARTITIONS:
            offset = 0
            records = world.log[partition] = []
            world.owners[partition] = None
            for _ in range(count):
                offset += chance.choice([1, 1, 1, 3])
                records.append(_record(partition, offset, chance.choice(KEYS)))
                if chance.random() < 0.1:
                    world.poison[partition, offset] = chance.choice([-1, 1, 2])


def _record(partition: TopicPartition, offset: int, key: bytes | None) -> AnyRecord:
    size = -1 if key is None else len(key)
    return ConsumerRecord(*partition, offset, 0, TimestampType.CREATE_TIME, key, b"v", size, 1)


def _options(ordering: Any) -> RunOptions:  # noqa: ANN401 - a word of two.
    return RunOptions(
        concurrency=6,
        ordering=ordering,
        retries=2,
        retry_on=Exception,
        retry_backoff_ms=10,
        retry_backoff_max_ms=1_000,
        retry_jitter=0.2,
        handler_timeout_ms=20_000,
        dead_letter=_nowhere,
        on_failure="stop",
        commit_interval_ms=None,
        drain_timeout_ms=2_000,
        in_flight_records_limit=RECORDS_LIMIT,
        in_flight_bytes_limit=1 << 20,
        uncommitted_records_limit=15,
        stop_on=(),
    )


async def _nowhere(letter: DeadLetter) -> None:
    raise AssertionError(letter)

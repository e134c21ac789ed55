"""Simulated brokers whose __consumer_offsets a watcher reads; their own history is the truth."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.classic.states import ClassicState
from kohort.groups.history.model import AvoidedRecord, HistoryRecord, RebalanceRecord
from kohort.groups.requests import CommittedOffset
from kohort.protocol.join_reason import JoinReason
from kohort.protocol.records.batch import split_batches
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.followed import Poll
from kohort.watch.core.partition import OffsetsPartition
from kohort.watch.core.watcher import Json, Watcher
from tests.simulation.consumer_causes import GROUP, HEARTBEAT_MS, SESSION_MS, Injection
from tests.simulation.life import Climate, GroupLife, make_world
from tests.simulation.process import Process
from tests.simulation.witness import Witness
from tests.simulation.world import OFFSETS_PARTITIONS, Life, World
from tests.support import messages as m

POLL_MS: Final = 1_000
PARTITIONS_MAX: Final = 12
_NO_END: Final = 1 << 62
_REBALANCING: Final = {ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE}


class Batch(NamedTuple):
    at_ms: int
    partition: int
    data: bytes


class Look(NamedTuple):
    """What a watcher's poll of the brokers shows: the groups that are rebalancing."""

    at_ms: int
    groups: Mapping[str, Poll]


@dataclass
class Truth:
    rebalances: dict[tuple[str, int | None], list[RebalanceRecord]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By group, and the generation that it led to."""
    avoided: dict[tuple[str, str | None], list[AvoidedRecord]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By group and the id of the member that returned."""

    def hear(self, record: HistoryRecord) -> None:
        if isinstance(record, RebalanceRecord):
            self.rebalances[record.group, record.generation].append(record)
        elif isinstance(record, AvoidedRecord):
            self.avoided[record.group, record.trigger.member_id].append(record)

    def of(self, record: Json) -> RebalanceRecord | None:
        """Return the broker's own record of a rebalance. Generations of a deleted group restart."""
        key = record["group"], record["generation"]
        begun_ms = record["started_at_ms"]
        return min(
            self.rebalances.get(key, ()),
            key=lambda one: abs(one.started_at_ms - begun_ms),
            default=None,
        )


class WatchedWorld:
    """A world, what its brokers recorded about it, and what polls of them showed."""

    def __init__(self, world: World, groups: Sequence[str]) -> None:
        self.world = world
        self.truth = Truth()
        self.looks: list[Look] = []
        self._groups = groups
        self._start = world.start_broker
        world.start_broker = self._start_broker  # type: ignore[method-assign]

    async def _start_broker(self, **settings: str) -> Life:
        life = await self._start(**settings)

        def hear(record: HistoryRecord) -> None:
            if not life.is_dead:
                self.truth.hear(record)

        life.broker.history.add_listener(hear)
        if life.number == 1:
            self._look()
        return life

    def _look(self) -> None:
        self.world.later(POLL_MS, self._look)
        life = self.world.life
        if life is None or not life.is_up.is_set():
            return
        at_ms = self.world.clock.wall_ms()
        polls = {}
        for group_id in self._groups:
            group = self.world.groups.host.membership(group_id, ClassicMembership)
            if group is not None and group.data.state in _REBALANCING:
                ids = frozenset([member.member_id for member in group.roster])
                polls[group_id] = Poll(at_ms, group.data.state.value, ids)
        self.looks.append(Look(at_ms, polls))

    def batches(self) -> Iterator[Batch]:
        """Yield what is on the disk, partition by partition."""
        for partition in range(OFFSETS_PARTITIONS):
            for path in sorted(self.world.files.paths()):
                if f"/{CONSUMER_OFFSETS}-{partition}/" in path and path.endswith(".log"):
                    data = bytes(self.world.files.cached(path))
                    for header, batch in split_batches(data, partial_tail=True):
                        yield Batch(header.max_timestamp, partition, bytes(batch))


class _NoWitness(Witness):
    """Checks no committed offsets, because they are deleted with their groups."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)

    def lost_commits(
        self, find: Callable[[str, int], CommittedOffset | None]
    ) -> Iterator[tuple[str, int, int, int | None]]:
        yield from ()


class WatchedLife(GroupLife):
    """Also deletes groups, lets topics grow, and applications work without a poll."""

    topic_partitions = PARTITIONS_MAX

    def __init__(self, world: World, climate: Climate) -> None:
        super().__init__(world, climate)
        world.witness = _NoWitness()
        self._actions += [
            (6, self._somebody_works_long),
            (2, self._the_topic_grows),
            (2, self._the_group_is_deleted),
        ]

    async def settle(self) -> None:
        """Without commits: members learn of rebalances only from heartbeats."""
        self.world.commits = 0.0
        await super().settle()

    def _nudge(self, group: str) -> None:
        """Nor may a member have noticed that the topic has grown."""
        if self.world.alive(group):
            self._a_subscription_changes(group)

    def _somebody_works_long(self, group: str) -> None:
        """As long as max.poll.interval.ms, then it leaves, and joins again when it polls."""
        process = self._pick(group)
        if process is not None and not process.is_busy:
            process.is_busy = True
            self.world.later(process.traits.rebalance_ms, lambda: self._too_long(process))

    def _too_long(self, process: Process) -> None:
        process.is_busy = False
        if process.is_alive and not process.is_frozen:
            process.leave()
            traits = process.traits
            self.world.later(self.chance.choice((0, 5_000)), lambda: self._come_back(traits))

    def _the_topic_grows(self, group: str) -> None:
        """From when members notice it; one of each group does at once."""
        if self.world.partition_count >= PARTITIONS_MAX:
            return
        self.world.partition_count += 1
        for group_id in self.groups:
            process = self._pick(group_id)
            if process is not None:
                process.rejoin(JoinReason.TOPIC_METADATA_CHANGE)

    def _the_group_is_deleted(self, group: str) -> None:
        """All of its members go first."""
        if self.chance.random() < 0.3:
            for process in self.world.alive(group):
                process.leave()
            self.world.later(500, lambda: self._delete(group))

    def _delete(self, group: str) -> None:
        self.world.ask(m.DeleteGroupsRequest(groups_names=[group]), 1)


def classic_world(seed: str, climate: Climate, commits: float, events: int) -> WatchedWorld:
    """Return a world of classic groups that has lived."""
    world = make_world(seed, climate)
    life = WatchedLife(world, climate)
    world.commits, world.commits_owned = commits, True
    watched = WatchedWorld(world, life.groups)
    world.run(life.run(events))
    return watched


def consumer_world(seed: str, commits: float, causes: int) -> WatchedWorld:
    """Return a world of one consumer group, with members of both protocols, that has lived."""
    injection = Injection(seed, commits)
    watched = WatchedWorld(injection.world, [GROUP])
    injection.run(causes)
    return watched


class _Follower:
    """Passes batches and polls to a watcher as `kohort.watch.follow` does."""

    def __init__(self) -> None:
        self.watcher = Watcher({}, lambda group: Timeouts(SESSION_MS, HEARTBEAT_MS))
        self._looked_ms = 0
        self._partitions = [
            OffsetsPartition(self.watcher, index) for index in range(OFFSETS_PARTITIONS)
        ]

    def read(self, batches: Sequence[Batch]) -> Iterator[Json]:
        for batch in batches:
            yield from self._partitions[batch.partition].take(batch.data, _NO_END)

    def step(self, look: Look, batches: Sequence[Batch]) -> Iterator[Json]:
        """Take a poll, and what was written before it."""
        if look.at_ms > self._looked_ms + POLL_MS:
            self.watcher.forget_polls()
        self._looked_ms = look.at_ms
        for group_id, poll in look.groups.items():
            self.watcher.poll(group_id, poll)
        self.watcher.rest(look.at_ms, look.groups)
        yield from self.read(batches)
        yield from self.watcher.flush(look.at_ms - POLL_MS)


def watch(watched: WatchedWorld, *, polls: bool) -> Iterator[Json]:
    """Yield the history that a watcher makes, which follows the brokers or reads afterwards."""
    follower = _Follower()
    batches = list(watched.batches())
    if polls:
        waiting: list[Batch] = []
        steps: list[Batch | Look] = [*batches, *watched.looks]
        for step in sorted(steps, key=attrgetter("at_ms")):
            if isinstance(step, Batch):
                waiting.append(step)
            else:
                yield from follower.step(step, waiting)
                waiting.clear()
        batches = waiting
    yield from follower.read(batches)
    yield from follower.watcher.flush()


def compare(record: Json, truth: Truth, seen: Counter[str]) -> None:
    """Count what is right; raises AssertionError if a certain conclusion is wrong."""
    trigger = record["trigger"]
    if record["kind"] != "rebalance":
        known = truth.avoided.get((record["group"], trigger["member_id"]), ())
        seen["avoided" if known else "avoided, unknown"] += 1
        return
    if record["generation"] is None:
        seen["superseded"] += 1
        return
    own = truth.of(record)
    if own is None:
        seen["not in the own history"] += 1
        return
    seen["rebalances"] += 1
    is_right = _one(own.trigger.kind.value) == _one(trigger["kind"])
    _count("causes", trigger["certainty"], is_right, seen, (record, own))
    if is_right and trigger["certainty"] == "certain" and trigger["instance_id"] is None:
        # Static members may be replaced during the join phase.
        assert trigger["member_id"] in {None, own.trigger.member_id}, (record, own)
    fates = {member.member_id: member.fate.value for member in own.members}
    for member in record["members"]:
        if "certainty" in member and member["member_id"] in fates:
            is_right = _one(fates[member["member_id"]]) == _one(member["fate"])
            _count("fates", member["certainty"], is_right, seen, (record, own))


def _one(kind: str) -> str:
    """To be removed by an administrator is to leave, too."""
    return {"removed_by_admin": "left", "member_left": "left"}.get(kind, kind)


def _count(
    about: str, certainty: str, is_right: bool, seen: Counter[str], facts: tuple[object, ...]
) -> None:
    assert is_right or certainty != "certain", facts
    seen[f"{about} {certainty} {'right' if is_right else 'wrong'}"] += 1

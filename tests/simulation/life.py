"""Hours in the life of groups: members come, go, die, dawdle and return; connections and brokers
fail. Whatever happens, when it stops the groups have to settle.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from kohort.groups.classic.membership import ClassicMembership
from kohort.protocol.join_reason import JoinReason
from tests.simulation.assigning import PARTITIONS, TOPIC
from tests.simulation.network import Weather
from tests.simulation.process import Process, Traits
from tests.simulation.world import World

INSTANCES = ("a", "b", "c", "d")
VERSIONS = (3, 4, 5, 6, 7, 8, 9, 9, 9)
STATIC_VERSIONS = (5, 6, 7, 8, 9, 9, 9)
REASONS = tuple(JoinReason)
CLEAR = Weather()
SETTLE_MS = 300_000
"""Longer than any session and rebalance timeout, one after the other, of those that occur."""


@dataclass(frozen=True)
class Climate:
    groups: int
    members_max: int
    """Per group."""
    pause_ms_max: int
    """Between two events somewhere."""
    weather: Weather = CLEAR
    io_latency_ms_max: int = 0
    broker_fails: float = 0.004
    """The part of events that hit the broker."""
    loses_power: bool = False
    disk_fails: int = 0
    """How often writes of a group fail, as a weight among the other actions."""
    sizes: tuple[int, ...] = ()
    """What group.max.size may be, with each start of the broker."""
    settings: tuple[tuple[str, str], ...] = ()


CALM = Climate(groups=4, members_max=5, pause_ms_max=1_500)
"""The disk is quick and the network loses nothing by itself."""
CRAMPED = Climate(
    groups=4,
    members_max=6,
    pause_ms_max=1_500,
    broker_fails=0.02,
    disk_fails=30,
    sizes=(2, 3, 4, 6),
)
"""The climate of CALM, but there is not always room for all members, nor on the disk."""
ROUGH = Climate(
    groups=6,
    members_max=6,
    pause_ms_max=2_500,
    weather=Weather(delay_ms_max=40, splits=0.4, stalls=0.01, stall_ms_max=8_000),
    io_latency_ms_max=25,
    broker_fails=0.01,
    loses_power=True,
    disk_fails=4,
    settings=(
        ("log.flush.interval.messages", "1"),
        ("group.initial.rebalance.delay.ms", "500"),
    ),
)
"""Slow disk, slow network, and a power that fails: what is acknowledged must be on the disk."""


def make_world(
    seed: str, climate: Climate, *, keep_ledger: bool = False, keep_trace: bool = False
) -> World:
    return World(
        seed,
        settings=dict(climate.settings),
        weather=climate.weather,
        io_latency_ms_max=climate.io_latency_ms_max,
        keep_ledger=keep_ledger,
        keep_trace=keep_trace,
    )


class GroupLife:
    topic_partitions = PARTITIONS

    def __init__(self, world: World, climate: Climate) -> None:
        self.world = world
        self.climate = climate
        self.chance = Random(world.chance.getrandbits(64))
        self.events = 0
        self.groups = [f"g{number}" for number in range(climate.groups)]
        self._traits_of_group = {
            group: (self.chance.random() < 0.4, self.chance.choice((0.0, 0.5, 1.0)))
            for group in self.groups
        }
        """Whether it is cooperative, and how many of its members are static."""
        self._clients = 0
        self._is_over = False
        self._actions: list[tuple[int, Callable[[str], None]]] = [
            (30, self._somebody_comes),
            (10, self._somebody_dies),
            (8, self._somebody_leaves),
            (12, self._somebody_restarts),
            (24, self._somebody_joins_again),
            (5, self._a_subscription_changes),
            (5, self._somebody_freezes),
            (6, self._a_connection_is_lost),
            (3, self._an_admin_removes),
            (3, self._somebody_dies_before_its_sync),
            (1, self._all_connections_are_lost),
            (climate.disk_fails, self._the_disk_is_full),
        ]

    async def run(self, events: int) -> None:
        """So many events, from the first start of the broker to its last stop."""
        world = self.world
        await self._start_broker()
        await world.create_topic(self.topic_partitions)
        world.commit_from_outside("warm-up")
        await world.pass_time(1_000)
        checks = asyncio.ensure_future(world.check_for_ever())
        for _ in range(events):
            await self._next_event()
        await self.settle()
        if world.ledger is not None and (missing := world.ledger.missing()):
            world.fail(f"the history has told nothing yet of what was in {missing}")
        checks.cancel()
        await self._all_go()
        await world.stop_broker()

    async def _next_event(self) -> None:
        chance, world = self.chance, self.world
        self.events += 1
        if chance.random() < self.climate.broker_fails:
            await self._the_broker_fails()
        else:
            weights = [weight for weight, _ in self._actions]
            ((_, act),) = chance.choices(self._actions, weights)
            act(chance.choice(self.groups))
        pause_ms = chance.randint(0, self.climate.pause_ms_max)
        await world.pass_time(pause_ms if chance.random() < 0.99 else 60_000)
        world.forget_dead()

    # What happens.

    def _somebody_comes(self, group: str) -> None:
        if len(self.world.alive(group)) < self.climate.members_max:
            self._start(self._new_traits(group))

    def _start(self, traits: Traits, *, has_restarted: bool = False) -> Process:
        says = self.chance.random() < 0.7
        reason = JoinReason.RESTART if says or has_restarted else JoinReason.UNKNOWN
        return self.world.new_process(traits, reason=reason)

    def _new_traits(self, group: str) -> Traits:
        chance = self.chance
        is_cooperative, static_part = self._traits_of_group[group]
        is_static = chance.random() < static_part
        self._clients += 1
        number = self._clients
        return Traits(
            group=group,
            client_id=f"client-{number}",
            ip=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            # If a process of this instance id is alive, it will learn that it is fenced.
            instance=chance.choice(INSTANCES) if is_static else None,
            version=chance.choice(STATIC_VERSIONS if is_static else VERSIONS),
            says_reasons=chance.random() < 0.6,
            is_cooperative=is_cooperative,
            offers_both=chance.random() < 0.2,
            session_ms=chance.choice((6_000, 10_000, 15_000)),
            rebalance_ms=chance.choice((8_000, 20_000, 40_000)),
            heartbeat_ms=chance.choice((1_000, 2_000, 3_000)),
            slowness_ms=chance.choice((0, 0, 5, 100, 2_000, 12_000)),
        )

    def _pick(self, group: str) -> Process | None:
        alive = self.world.alive(group)
        return self.chance.choice(alive) if alive else None

    def _somebody_dies(self, group: str) -> None:
        if (process := self._pick(group)) is not None:
            self.world.note(f"{process} dies")
            process.crash(silently=self.chance.random() < 0.5)

    def _somebody_leaves(self, group: str) -> None:
        if (process := self._pick(group)) is not None:
            self.world.note(f"{process} leaves")
            process.leave()

    def _somebody_restarts(self, group: str) -> None:
        process = self._pick(group)
        if process is None:
            return
        if process.traits.instance is None and self.chance.random() < 0.6:
            process.leave()
        else:
            process.crash(silently=self.chance.random() < 0.2)
        away_ms = self.chance.choice((0, 200, 3_000, 9_000, 20_000))
        traits = process.traits
        self.world.note(f"{process} restarts in {away_ms} ms")
        self.world.later(away_ms, lambda: self._come_back(traits))

    def _come_back(self, traits: Traits) -> None:
        if not self._is_over and len(self.world.alive(traits.group)) < self.climate.members_max:
            self._start(traits, has_restarted=True)

    def _somebody_joins_again(self, group: str) -> None:
        process = self._pick(group)
        if process is not None:
            reason = self.chance.choice(REASONS)
            if process.rejoin(reason):
                self.world.note(f"{process} joins again: {reason.name}")

    def _a_subscription_changes(self, group: str) -> None:
        process = self._pick(group)
        if process is not None and process.is_settled:
            process.topics = (TOPIC,) if len(process.topics) > 1 else (TOPIC, "u")
            process.rejoin(JoinReason.SUBSCRIPTION_CHANGE)

    def _somebody_freezes(self, group: str) -> None:
        if (process := self._pick(group)) is not None and not process.is_frozen:
            process.freeze(self.chance.choice((500, 4_000, 12_000, 30_000)))

    def _a_connection_is_lost(self, group: str) -> None:
        if (process := self._pick(group)) is not None:
            process.lose_connection()

    def _all_connections_are_lost(self, group: str) -> None:
        for process in self.world.alive(group):
            process.lose_connection()

    def _an_admin_removes(self, group: str) -> None:
        if self._traits_of_group[group][1]:
            self.world.remove_by_admin(group, self.chance.choice(INSTANCES))

    def _somebody_dies_before_its_sync(self, group: str) -> None:
        if (process := self._pick(group)) is not None:
            process.dies_when_joined = True

    async def _the_broker_fails(self) -> None:
        chance, world = self.chance, self.world
        if chance.random() < 0.3:
            await world.stop_broker()
        else:
            if chance.random() < 0.7:
                await self._the_moment_after_a_promise()
            world.kill_broker(power_loss=self.climate.loses_power and chance.random() < 0.7)
        await world.pass_time(chance.choice((0, 300, 3_000, 20_000)))
        await self._start_broker()

    async def _start_broker(self) -> None:
        if sizes := self.climate.sizes:
            await self.world.start_broker(group_max_size=str(self.chance.choice(sizes)))
        else:
            await self.world.start_broker()

    def _the_disk_is_full(self, group: str) -> None:
        """For a moment, and somebody makes the group write in it."""
        times = self.chance.choice((1, 1, 2, 3))
        self.world.fail_writes(group, times=times, duration_ms=self.chance.choice((500, 5_000)))
        act = self.chance.choice((self._a_subscription_changes, self._somebody_restarts))
        act(group)

    async def _the_moment_after_a_promise(self) -> None:
        """The worst one to die in."""
        moment = asyncio.Event()
        self.world.when_stored = moment.set
        with suppress(TimeoutError):
            await asyncio.wait_for(moment.wait(), timeout=20)

    # How it ends.

    async def settle(self) -> None:
        """Left alone, the groups converge."""
        world = self.world
        self._is_over = True
        world.network.weather = Weather()
        world.files.clear_faults()
        for process in world.processes:
            process.dies_when_joined = False
        nudged: set[str] = set()
        ends_ms = world.now_ms + SETTLE_MS
        while unsettled := [group for group in self.groups if not self.has_converged(group)]:
            if world.now_ms > ends_ms:
                for group in unsettled:
                    world.fail(f"{group} does not converge: {self.describe(group)}")
            for group in unsettled:
                if world.now_ms > ends_ms - SETTLE_MS // 2 and group not in nudged:
                    nudged.add(group)
                    self._nudge(group)
            await world.pass_time(1_000)
        world.check()

    def _nudge(self, group: str) -> None:
        """A cooperative member that has to give partitions up joins again, and then they are given
        to others. If it dies in between and returns as the same static member, it returns to what
        it keeps, and none knows of the second round: with Kafka's broker the partitions have no
        owner either, until something else makes the group rebalance. Here this does.
        """
        is_cooperative, static_part = self._traits_of_group[group]
        if is_cooperative and static_part and self.world.alive(group):
            self._a_subscription_changes(group)

    def has_converged(self, group_id: str) -> bool:
        """All alive share all partitions, in one generation, and no other member is there."""
        alive = self.world.alive(group_id)
        group = self.world.groups.host.membership(group_id, ClassicMembership)
        if group is None:
            return not alive
        if {m.member_id for m in group.roster} != {p.member_id for p in alive}:
            return False
        if not alive:
            return group.data.state.value == "Empty" and not group.roster.pending
        if group.data.state.value != "Stable" or any(process.needs_join for process in alive):
            return False
        shared = sorted(number for process in alive for number in process.owned or ())
        generations = {process.generation for process in alive}
        known = list(range(self.world.partition_count))
        return shared == known and generations == {group.data.generation}

    def describe(self, group_id: str) -> str:
        group = self.world.groups.host.membership(group_id, ClassicMembership)
        alive = [f"{p} {p.generation} {p.owned} {p.call}" for p in self.world.alive(group_id)]
        if group is None:
            return f"no group; {alive}"
        return f"{group.data.state.value}, waits for {group.waiting_for()}; {alive}"

    async def _all_go(self) -> None:
        """Then nothing may be left that waits for anything."""
        world = self.world
        for process in list(world.processes):
            process.crash(silently=False)
        world.forget_dead()
        await world.pass_time(SETTLE_MS)
        life = world.life
        assert life is not None
        waiting = world.groups.host.stats()["waiting_requests"]
        next_ms = life.broker.services.purgatory.next_deadline_ms
        if waiting or next_ms is not None or len(world.network.wires):
            world.fail(
                f"something waits for ever: {waiting} requests, next deadline {next_ms}, "
                f"connections {len(world.network.wires)}"
            )
        world.raise_failures()

"""Known causes are injected into one consumer group (KIP-848), and the history has to name them.

Members of both protocols come, go, die, dawdle and change their minds, one at a time, and often
before the previous rebalance is over. Messages take no time, so that a cause has the time at which
it was injected, or one within the bound of a timer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random

from kohort.groups.consumer.data import STABLE
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.events import TriggerKind
from kohort.groups.history.model import HistoryRecord, RebalanceRecord, TriggerRecord
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason
from kohort.protocol.messages import consumer_group_heartbeat as beating
from tests.simulation.assigning import TOPIC
from tests.simulation.causes import Cause
from tests.simulation.network import Weather
from tests.simulation.process import Process, Traits
from tests.simulation.witness import Witness
from tests.simulation.world import World

GROUP = "g"
TOPICS = (TOPIC, "u")
MEMBERS_MAX = 6
SESSION_MS, HEARTBEAT_MS, REVOCATION_MS = 10_000, 3_000, 6_000
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.initial.rebalance.delay.ms": "0",
}
DYNAMIC = Traits(
    group=GROUP,
    client_id="",
    ip="",
    session_ms=SESSION_MS,
    rebalance_ms=REVOCATION_MS,
    heartbeat_ms=HEARTBEAT_MS,
)
K = TriggerKind

Assigned = frozenset[tuple[bytes, int]]


@dataclass(eq=False, repr=False)
class Consumer(Process):
    injection: Injection | None = None
    regex: str | None = None
    assignor: str | None = None
    epoch: int = 0
    assigned: Assigned = frozenset()
    keeps: Assigned | None = None
    """Partitions that it does not give up, whatever it is told."""

    def start(self) -> None:
        self.member_id = f"consumer-{self.number}"
        super().start()

    @property
    def is_asked(self) -> bool:
        """Whether it is to give up what it keeps."""
        return self.keeps is not None and not self.keeps <= self.assigned

    def leave(self, epoch: int = -1) -> None:
        self.epoch = epoch
        self.beat(owned=None)
        self.crash(silently=False)

    def _join(self) -> None:
        self.needs_join = False
        self.beat(
            frozenset(),
            rebalance_timeout_ms=self.traits.rebalance_ms,
            subscribed_topic_names=list(self.topics),
            subscribed_topic_regex=self.regex,
            server_assignor=self.assignor,
        )

    def _beat(self) -> None:
        if self.is_alive:
            self._beat_later()
            if self.injection is not None:
                self.injection.commit_later(self)
            if self.call is None:
                self.beat(self.assigned if self.keeps is None else self.keeps)

    def beat(self, owned: Assigned | None, **fields: object) -> None:
        topics = None
        if owned is not None:
            topics = [beating.TopicPartitions(topic_id=t, partitions=[n]) for t, n in owned]
        request = beating.ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.traits.instance,
            topic_partitions=topics,
            **fields,  # type: ignore[arg-type]
        )
        self._send(request, 1, self._on_answer)

    def _on_error(self, error: ErrorCode) -> None:
        """A commit was refused; the next heartbeat says why."""

    def _on_answer(self, answer: beating.ConsumerGroupHeartbeatResponse) -> None:
        if answer.error_code:
            assert self.is_asked, f"{self} was told {ErrorCode(answer.error_code).name}"
            self.crash(silently=False)
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            self.assigned = frozenset((t.topic_id, n) for t in topics for n in t.partitions)


@dataclass(eq=False)
class Injected(Cause):
    """A cause, with how much later than `at_ms` it may happen."""

    within_ms: int = 0

    def is_named_by(self, told: TriggerRecord) -> bool:
        """Whether the history means this one."""
        if not self.at_ms <= told.at_ms <= self.at_ms + self.within_ms:
            return False
        member_id = None if self.process is None else self.process.member_id
        known = replace(self, at_ms=told.at_ms, member_id=member_id)
        return known.differs_from_record(told) is None


@dataclass(eq=False)
class Injection:
    """One world with one group. After `run`, `misses` has what the history got wrong."""

    seed: str
    commits: float = 0.0
    """After which part of their heartbeats consumers commit."""
    caused: Counter[str] = field(default_factory=Counter)
    recorded: int = 0
    """Causes that the history has named."""
    misses: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        weather = Weather(delay_ms_max=0, splits=0.0)
        self.world = World(self.seed, settings=SETTINGS, weather=weather, commits=0.0)
        # Members move one by one, and not by generations.
        self.world.witness = Witness(lambda _: None)
        self.chance = Random(self.seed)
        self._expected: list[Injected] = []
        self._known_generation: int | None = None
        self._numbers = 0
        self._expired_ms = 0
        """When all timers that are to run out have."""

    # What the history says.

    def _judge(self, record: HistoryRecord) -> None:
        if not isinstance(record, RebalanceRecord):
            self._take(record.trigger)
            return
        found = [self._take(cause) for cause in (record.trigger, *record.further_causes)]
        if None in found or record.trigger.kind is K.DOWNGRADED:
            self._known_generation = None
            return
        bumps = len(found) + record.further_causes_dropped
        before = record.previous_generation
        if self._known_generation not in {None, before}:
            self.misses.append(f"{before} follows {self._known_generation}")
        if record.generation not in {None, before + bumps}:
            self.misses.append(f"{bumps} causes from {before} to {record.generation}")
        self._known_generation = before + bumps

    def _take(self, told: TriggerRecord) -> Injected | None:
        for cause in self._expected:
            if cause.is_named_by(told):
                self._expected.remove(cause)
                self.recorded += 1
                return cause
        self.misses.append(f"not injected: {told}")
        return None

    # What happens.

    def run(self, count: int) -> None:
        self.world.run(self._run(count))

    async def _run(self, count: int) -> None:
        world = self.world
        life = await world.start_broker()
        told: list[HistoryRecord] = []
        life.broker.history.add_listener(told.append)
        for topic in TOPICS:
            await self._grow(topic, 3)
        world.commit_from_outside("warm-up")
        await world.pass_time(1_000)
        acts: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (14, self._somebody_comes),
            (5, self._a_consumer_leaves),
            (3, self._somebody_is_removed),
            (3, self._somebody_dies),
            (7, self._a_subscription_changes),
            (4, self._an_expression_comes),
            (4, self._a_vote_changes),
            (4, self._a_topic_grows),
            (4, self._a_target_is_forced),
            (8, self._a_static_member_restarts),
            (6, self._somebody_keeps_partitions),
            (2, self._a_classic_member_does_not_sync),
            (2, self._a_classic_member_does_not_rejoin),
            (2, self._the_last_consumer_goes),
        ]
        weights = [weight for weight, _ in acts]
        while self.caused.total() < count:
            ((_, act),) = self.chance.choices(acts, weights)
            if not self.consumers:
                act = self._somebody_comes
            await self._until(self._is_quiet, 5)
            await act()
            await world.pass_time(self.chance.choice((1, 50, 700, 5_000)))
            world.forget_dead()
        await self._wait_for_timers()
        await self._settle()
        await world.stop_broker()
        # Only now, when each process has been answered with its member id.
        for record in told:
            self._judge(record)
        self.misses += [f"not recorded: {cause}" for cause in self._expected]

    def _inject(
        self,
        kind: TriggerKind,
        process: Process | None,
        within_ms: int = 0,
        reason: JoinReason = JoinReason.UNKNOWN,
    ) -> None:
        self.caused[kind.value] += 1
        self._expired_ms = max(self._expired_ms, self.world.now_ms + within_ms)
        cause = Injected(kind, process, reason=reason, is_tagged=bool(reason))
        cause.at_ms, cause.within_ms = self.world.clock.wall_ms(), within_ms
        self._expected.append(cause)

    @property
    def consumers(self) -> list[Consumer]:
        return [p for p in self.world.alive(GROUP) if isinstance(p, Consumer)]

    @property
    def classics(self) -> list[Process]:
        return [p for p in self.world.alive(GROUP) if not isinstance(p, Consumer)]

    def _is_quiet(self) -> bool:
        """Whether all heartbeats of this moment are answered."""
        return all(process.call is None for process in self.consumers)

    async def _wait_for_timers(self) -> None:
        await self.world.pass_time(max(self._expired_ms - self.world.now_ms, 0))
        await self._until(self._is_quiet, 5)

    async def _settle(self) -> None:
        """Until all members have the whole target, and no classic one is about to join."""

        def is_settled() -> bool:
            membership = self.world.groups.host.membership(GROUP, ConsumerMembership)
            is_over = membership is None or membership.data.state in {STABLE, "Empty"}
            return is_over and self._is_quiet() and all(p.is_settled for p in self.classics)

        await self._until(is_settled, 120_000)
        if not is_settled():
            self.world.fail("the group does not settle")

    def _traits(self, instance: str | None = None, rebalance_ms: int = REVOCATION_MS) -> Traits:
        self._numbers += 1
        n = self._numbers
        name, ip = f"client-{n}", f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}"
        return replace(DYNAMIC, instance=instance, client_id=name, ip=ip, rebalance_ms=rebalance_ms)

    def _start(
        self, traits: Traits, topics: tuple[str, ...] = (TOPIC,), *, classic: bool = False
    ) -> Process:
        if classic:
            return self.world.new_process(traits, topics=topics)
        return self.world.new_process(traits, Consumer, topics=topics, injection=self)

    def commit_later(self, consumer: Consumer) -> None:
        """Between two heartbeats, have it commit a position perhaps."""
        if self.commits and self.chance.random() < self.commits:
            after_ms = self.chance.randrange(1, HEARTBEAT_MS)
            self.world.later(after_ms, lambda: self._commit(consumer))

    def _commit(self, consumer: Consumer) -> None:
        life = self.world.life
        if life is None or not consumer.is_alive or consumer.call or not consumer.assigned:
            return
        topic_id, partition = self.chance.choice(sorted(consumer.assigned))
        topics = {name: life.broker.services.topics.get(name) for name in TOPICS}
        name = next(name for name, topic in topics.items() if topic and topic.topic_id == topic_id)
        consumer.generation = consumer.epoch
        self.world.commit(consumer, name, partition)

    async def _somebody_comes(self, *, classic: bool | None = None) -> None:
        """At first a consumer: a classic member would make another group."""
        if len(self.world.alive(GROUP)) >= MEMBERS_MAX:
            return
        instance = self.chance.choice([None, None, f"i{self._numbers}"])
        if classic is None:
            classic = bool(self.consumers) and self.chance.random() < 0.4
        process = self._start(self._traits(instance), classic=classic)
        self._inject(K.MEMBER_ADDED if instance is None else K.STATIC_ADDED, process)

    async def _a_consumer_leaves(self) -> None:
        if len(self.consumers) > 1:
            process = self.chance.choice(self.consumers)
            process.leave()
            self._inject(K.MEMBER_LEFT, process)

    async def _somebody_is_removed(self) -> None:
        """By an administrator; static members by their instance id."""
        static = [p for p in self.classics if p.traits.instance is not None]
        process = self.chance.choice([*self.consumers[1:], *static, None])
        if process is not None and process.member_id:
            instance = process.traits.instance
            member_id = "" if instance is not None else process.member_id
            self.world.remove_by_admin(GROUP, instance, member_id)
            process.crash(silently=True)
            self._inject(K.REMOVED_BY_ADMIN, process)

    async def _somebody_dies(self) -> None:
        process = self.chance.choice([*self.consumers[1:], *self.classics, None])
        if process is not None and process.is_alive and process.member_id:
            await self._settle()
            process.crash(silently=True)
            self._inject(K.SESSION_EXPIRED, process, SESSION_MS)

    async def _a_subscription_changes(self) -> None:
        process = self.chance.choice(self.world.alive(GROUP))
        if isinstance(process, Consumer):
            topics = tuple(self.chance.sample(TOPICS, self.chance.randint(0, 2)))
            if set(topics) != set(process.topics):
                process.topics = topics
                process.beat(process.assigned, subscribed_topic_names=list(topics))
                self._inject(K.SUBSCRIPTION_CHANGED, process)
            return
        topics = (TOPIC,) if len(process.topics) > 1 else TOPICS
        if process.is_settled:
            process.topics = topics
            process.rejoin(JoinReason.UNKNOWN)
            self._inject(K.SUBSCRIPTION_CHANGED, process)

    async def _an_expression_comes(self) -> None:
        """A new one, which is resolved at once, or when ten seconds have passed since the last."""
        process = self.chance.choice(self.consumers)
        process.regex = f"{self.chance.choice(TOPICS)}|none-{self._numbers}"
        self._numbers += 1
        process.beat(process.assigned, subscribed_topic_regex=process.regex)
        self._inject(K.REGEX_RESOLVED, process, 10_000 + HEARTBEAT_MS)
        await self.world.pass_time(10_000 + HEARTBEAT_MS)

    async def _a_vote_changes(self) -> None:
        await self._wait_for_timers()  # The dead vote.
        process = self.chance.choice(self.consumers)
        name = self.chance.choice(("range", "uniform"))
        if process.assignor != name:
            before = self._vote()
            process.assignor = name
            process.beat(process.assigned, server_assignor=name)
            if self._vote() != before:
                self._inject(K.ASSIGNOR_CHANGED, process)

    def _vote(self) -> str:
        votes = Counter(process.assignor for process in self.consumers)
        return max(("uniform", "range"), key=lambda name: votes[name])

    async def _a_topic_grows(self) -> None:
        # What runs out meanwhile would be the one cause of the new target.
        await self._wait_for_timers()
        topic = self.chance.choice(TOPICS)
        names = {name for process in self.world.alive(GROUP) for name in process.topics}
        names |= {process.regex.partition("|")[0] for process in self.consumers if process.regex}
        if topic in names:
            await self._grow(topic, 1)
            self._inject(K.TOPICS_CHANGED, None, HEARTBEAT_MS)
            await self.world.pass_time(HEARTBEAT_MS)

    async def _grow(self, topic: str, by: int) -> None:
        assert self.world.life is not None
        topics = self.world.life.broker.services.topics
        known = topics.get(topic)
        if known is None:
            await topics.changes.create_topic(topic, partition_count=by)
        else:
            await topics.changes.create_partitions(known, len(known.partitions) + by)

    async def _a_target_is_forced(self) -> None:
        await self._settle()
        reason = self.chance.choice((JoinReason.ENFORCED, JoinReason.ASSIGNOR_STATE_CHANGE))
        process = self.chance.choice(self.consumers)
        process.beat(process.assigned, join_reason=int(reason))
        self._inject(K.FORCED_BY_REASON, process, reason=reason)

    async def _a_static_member_restarts(self) -> None:
        """Or does not come back, or under the other protocol."""
        static = [p for p in self.consumers if p.traits.instance is not None]
        if not static or len(self.consumers) < 2:
            return
        process = self.chance.choice(static)
        if process.regex or process.assignor:
            return
        process.leave(-2)
        if self.chance.random() < 0.2:
            self._inject(K.SESSION_EXPIRED, process, SESSION_MS)
            return
        await self.world.pass_time(self.chance.choice((10, 3_000)))
        others = [topics for topics in ((TOPIC,), TOPICS) if set(topics) != set(process.topics)]
        topics = self.chance.choice([process.topics, *others])
        classic = bool(topics) and self.chance.random() < 0.3
        returned = self._start(self._traits(process.traits.instance), topics, classic=classic)
        self._inject(K.STATIC_REPLACED, returned)

    async def _somebody_keeps_partitions(self) -> None:
        await self._settle()
        process = max(self.consumers, key=lambda process: len(process.assigned))
        process.keeps = process.assigned
        if len(self.consumers) > 1 and len(self.world.alive(GROUP)) < MEMBERS_MAX:
            await self._somebody_comes(classic=False)
            await self._until(lambda: process.is_asked, 3 * HEARTBEAT_MS)
            if process.is_asked:
                self._inject(K.REBALANCE_EXPIRED, process, REVOCATION_MS)
                await self.world.pass_time(REVOCATION_MS + HEARTBEAT_MS)
                return
        process.keeps = None

    async def _until(self, is_so: Callable[[], bool], within_ms: int) -> None:
        ends_ms = self.world.now_ms + within_ms
        while not is_so() and self.world.now_ms < ends_ms:
            await self.world.pass_time(1 + within_ms // 100)

    async def _a_classic_member_does_not_sync(self) -> None:
        traits = self._traits(rebalance_ms=4_000)
        process = self._start(traits, classic=True)
        process.dies_when_joined = True
        self._inject(K.MEMBER_ADDED, process)
        self._inject(K.SYNC_EXPIRED, process, 4_000)
        await self.world.pass_time(4_000)

    async def _a_classic_member_does_not_rejoin(self) -> None:
        """It dies when it is asked to; a rebalance timeout later it is removed."""
        process = self._start(self._traits(rebalance_ms=4_000), classic=True)
        self._inject(K.MEMBER_ADDED, process)
        await self._settle()
        process.traits = replace(process.traits, slowness_ms=1 << 40)
        other = self._start(self._traits())
        self._inject(K.MEMBER_ADDED, other)
        await self._until(lambda: process._is_told, 3 * HEARTBEAT_MS)
        process.crash(silently=True)
        self._inject(K.JOIN_EXPIRED, process, 4_000)
        await self.world.pass_time(4_000)

    async def _the_last_consumer_goes(self) -> None:
        """The group becomes a classic one, and one of consumers when the next of them comes."""
        if not self.classics:
            return
        # All sessions restart when the group is converted.
        await self._wait_for_timers()
        await self._settle()
        for process in self.consumers[1:]:
            process.leave()
            self._inject(K.MEMBER_LEFT, process)
            await self.world.pass_time(5)
            await self._settle()
        (last,) = self.consumers
        last.leave()
        self._inject(K.DOWNGRADED, last)
        await self.world.pass_time(self.chance.choice((1, 2_000, 20_000)))
        self._inject(K.UPGRADED, self._start(self._traits()))

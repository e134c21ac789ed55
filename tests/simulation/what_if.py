"""Lives of groups that are planned ahead, so that the same can be lived again with other settings.

A plan says what happens to processes (deploys, crashes, autoscaling, pauses, topics that grow), not
what comes of it. It is lived by a whole broker and by clients that speak to it over the wire; the
history that the broker keeps of it is all that the advisor gets to see.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kohort.groups.history.json_form import as_json
from kohort.groups.history.model import HistoryRecord
from kohort.insight.advisor.setting import Setting
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason
from tests.simulation.process import Process, Traits
from tests.simulation.world import World
from tests.support import messages as m

GROUP = "billing"
SETTLE_MS = 200_000
"""Longer than any session that is tried."""
LOOK_MS = 100
"""How often the Java client's heartbeat thread looks whether it is time."""


@dataclass(frozen=True)
class Step:
    """Something that happens to a process, or to all (slot -1)."""

    at_ms: int
    slot: int
    what: str
    """start, leave, crash, freeze, grow (of the topic), subscribe."""
    duration_ms: int = 0


@dataclass(frozen=True)
class Place:
    """What is particular about the processes of a slot."""

    slowness_ms: int
    """To give partitions up: an eager member does it before it joins, a cooperative one when an
    assignment takes some of them.
    """
    jitter_ms: int
    """From being told to the poll that acts on it, at most."""
    assign_ms: int
    """Its work as a leader."""


@dataclass
class Plan:
    """One life, whatever the settings."""

    seed: str
    places: list[Place] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    end_ms: int = 0


@dataclass(frozen=True)
class Spacing:
    """How long things last, in milliseconds: one of these."""

    away: tuple[int, ...]
    """From a leave to the start of the next process."""
    deploy: tuple[int, ...]
    """From the start of one to the stop of the next."""
    crash: tuple[int, ...]
    """From a crash to the start of the next process."""
    freeze: tuple[int, ...]
    least: int
    """From one thing to the next one, at least."""


APART = Spacing(
    # Longer than a session of 10 s and the join of the slowest after it, shorter than one of 45 s.
    away=(22_000, 30_000, 38_000),
    deploy=(15_000, 25_000, 40_000),
    crash=(2_500, 25_000, 80_000),
    freeze=(90_000, 150_000),
    least=75_000,
)
"""What happens has an end before something else happens, as it mostly is."""


def make_plan(seed: str, spacing: Spacing = APART, *, events: int = 30) -> Plan:
    """A few members of which one may be slow, and what happens to them in half an hour."""
    chance = Random(seed)
    plan = Plan(seed)
    size = chance.randint(3, 6)
    slow = chance.randrange(size) if chance.random() < 0.6 else -1
    for slot in range(size):
        base = chance.choice((3_000, 6_000)) if slot == slow else chance.choice((20, 100, 400))
        plan.places.append(Place(base, chance.choice((10, 100, 300)), chance.choice((2, 30, 200))))
        plan.steps.append(Step(chance.randint(0, 1_500), slot, "start"))
    _Planner(chance, plan, spacing, alive=set(range(size)), now_ms=60_000).fill(events)
    return plan


@dataclass
class _Planner:
    chance: Random
    plan: Plan
    spacing: Spacing
    alive: set[int]
    now_ms: int

    def fill(self, events: int) -> None:
        kinds: list[tuple[int, Callable[[], None]]] = [
            (3, self._deploy),
            (5, self._crash_and_return),
            (1, self._crash_for_good),
            (3, self._scale_out),
            (3, self._scale_in),
            (3, self._restart),
            (2, self._pause),
            (2, self._grow),
            (1, self._subscribe),
        ]
        weights = [weight for weight, _ in kinds]
        while len(self.plan.steps) < events + len(self.plan.places):
            ((_, act),) = self.chance.choices(kinds, weights)
            act()
            self.now_ms += self.spacing.least + self.chance.randint(0, 60_000)
        self.plan.steps.sort(key=lambda step: step.at_ms)
        self.plan.end_ms = self.now_ms + SETTLE_MS

    def _step(self, slot: int, what: str, duration_ms: int = 0) -> None:
        self.plan.steps.append(Step(self.now_ms, slot, what, duration_ms))

    def _pick(self) -> int:
        return self.chance.choice(sorted(self.alive))

    def _deploy(self) -> None:
        """One after the other is stopped and started again."""
        away_ms = self.chance.choice(self.spacing.away)
        pause_ms = self.chance.choice(self.spacing.deploy)
        for slot in sorted(self.alive):
            self._return(slot, "leave", away_ms + self.chance.randint(0, 1_500))
            self.now_ms += pause_ms

    def _return(self, slot: int, how: str, away_ms: int) -> None:
        self._step(slot, how)
        self.now_ms += away_ms
        self._step(slot, "start")

    def _restart(self) -> None:
        self._return(self._pick(), "leave", self.chance.choice(self.spacing.away))

    def _crash_and_return(self) -> None:
        self._return(self._pick(), "crash", self.chance.choice(self.spacing.crash))

    def _crash_for_good(self) -> None:
        self._go("crash")

    def _scale_in(self) -> None:
        self._go("leave")

    def _go(self, how: str) -> None:
        if len(self.alive) > 2:
            slot = self._pick()
            self.alive.remove(slot)
            self._step(slot, how)

    def _scale_out(self) -> None:
        if len(self.alive) < 7:
            self.alive.add(len(self.plan.places))
            self.plan.places.append(Place(self.chance.choice((20, 100, 400)), 100, 30))
            self._step(len(self.plan.places) - 1, "start")

    def _pause(self) -> None:
        duration_ms = self.chance.choice(self.spacing.freeze)
        self._step(self._pick(), "freeze", duration_ms)
        self.now_ms += duration_ms

    def _grow(self) -> None:
        self._step(-1, "grow")

    def _subscribe(self) -> None:
        self._step(self._pick(), "subscribe")


@dataclass(eq=False, repr=False)
class PacedProcess(Process):
    """A process with the beat of the Java client: it begins again with each join, and is sent when
    the thread that sends it looks. It takes its time to assign, too.
    """

    place: Place = field(default_factory=lambda: Place(0, 0, 0))
    _beat_number: int = 0

    when_gone: Callable[[], None] | None = None
    is_leaving: bool = False
    beats_when_thawed: bool = False
    """Whether it sends its heartbeat, which is late, when it runs again; else with its next beat.
    """

    def start(self) -> None:
        self._join()

    def leave(self) -> None:
        """Once what it has asked for is answered: a broker reads the next request of a connection
        when it is done with the one before.
        """
        if not self.is_alive:
            return
        self.is_leaving = True
        if self.call is None:
            super().leave()
        else:
            self.world.later(20, self.leave)

    def crash(self, *, silently: bool) -> None:
        super().crash(silently=silently)
        then, self.when_gone = self.when_gone, None
        if then is not None:
            then()

    def _thaw(self) -> None:
        super()._thaw()
        if self.beats_when_thawed:
            self._beat_when_connected()

    def _beat_when_connected(self) -> None:
        if self.is_alive and self.wire is None:
            self.world.later(LOOK_MS, self._beat_when_connected)
        else:
            self._beat()

    def _beat_later(self) -> None:
        self._beat_number += 1
        number = self._beat_number
        late_ms = self.world.chance.randrange(LOOK_MS)

        def beat() -> None:
            if number == self._beat_number:
                self._beat()

        self.world.later(self.traits.heartbeat_ms + late_ms, beat)

    def _on_joined(self, answer: m.JoinGroupResponse) -> None:
        super()._on_joined(answer)
        if not answer.error_code:
            self._beat_later()

    def _sync(self) -> None:
        if self.is_leaving:
            # Its leave was on the way before the answer to its join was.
            super().leave()
            return
        answer = self.joined
        assert answer is not None
        if answer.leader != self.member_id:
            super()._sync()
            return

        def sync() -> None:
            if self.is_alive and self.joined is answer and self.call is None:
                super(PacedProcess, self)._sync()

        self.world.later(self.place.assign_ms, sync)

    def _on_synced(self, answer: m.SyncGroupResponse) -> None:
        super()._on_synced(answer)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            # Until it is ready to join again, its thread goes on with heartbeats.
            self.needs_join = False

    def _give_up(self) -> None:
        """Takes its time; heartbeats go on, and whatever they tell, it joins when it is done."""
        self._is_told = True
        self.world.later(self.place.slowness_ms, super()._take_part)

    def _take_part(self) -> None:
        jitter_ms = self.place.jitter_ms
        super_take = super()._take_part
        self.world.later(self.world.chance.randint(0, jitter_ms), super_take)


def live(
    plan: Plan, setting: Setting, *, run: str, beats_when_thawed: bool = False
) -> list[dict[str, Any]]:
    """The history of `plan` under `setting`. `run` names the chance of this run (of the network, of
    the moments of heartbeats), which the plan has no part in. `beats_when_thawed`: see
    `PacedProcess`.
    """
    world = World(
        f"{plan.seed}.{run}",
        settings={
            "group.initial.rebalance.delay.ms": str(setting.initial_rebalance_delay_ms),
            "kohort.rebalance.history.size": "10000",
        },
        commits=0.0,
    )
    records: dict[int, dict[str, Any]] = {}
    actor = _Actor(world, plan, setting, beats_when_thawed)

    def hear(record: HistoryRecord) -> None:
        told = as_json(record)
        if record.group == GROUP and told.get("outcome") != "running":
            records[record.sequence] = told

    async def play() -> None:
        life = await world.start_broker()
        await world.create_topic()
        world.commit_from_outside("warm-up")
        await world.pass_time(1_000)
        life.broker.history.add_listener(hear)
        begun_ms = world.now_ms
        for step in plan.steps:
            await world.pass_time(begun_ms + step.at_ms - world.now_ms)
            actor.take(step)
        await world.pass_time(begun_ms + plan.end_ms - world.now_ms)
        await world.stop_broker()

    world.run(play())
    return [records[sequence] for sequence in sorted(records)]


@dataclass
class _Actor:
    world: World
    plan: Plan
    setting: Setting
    beats_when_thawed: bool
    processes: dict[int, PacedProcess] = field(default_factory=dict)

    def take(self, step: Step) -> None:
        process = self.processes.get(step.slot)
        match step.what:
            case "start" if process is not None and process.is_alive:
                # It is still on its way out.
                process.when_gone = lambda: self._begin(step.slot)
            case "start":
                self._begin(step.slot)
            case "grow":
                self._grow()
            case _ if process is None or not process.is_alive:
                pass
            case "leave" if not self.setting.static:
                process.leave()
            case "leave" | "crash":
                process.crash(silently=False)
            case "freeze":
                process.freeze(step.duration_ms)
            case "subscribe":
                process.topics = (*process.topics, f"other-{step.at_ms}")
                process.rejoin(JoinReason.SUBSCRIPTION_CHANGE)

    def _begin(self, slot: int) -> None:
        self.processes[slot] = self._start(slot)

    def _grow(self) -> None:
        """The topic gets partitions: the leader sees it and joins again."""
        for process in self.processes.values():
            leads = process.joined is not None and process.joined.leader == process.member_id
            if leads and process.is_settled:
                process.rejoin(JoinReason.TOPIC_METADATA_CHANGE)

    def _start(self, slot: int) -> PacedProcess:
        setting, place = self.setting, self.plan.places[slot]
        traits = Traits(
            group=GROUP,
            client_id=f"billing-{slot}",
            ip=f"10.0.0.{slot}",
            instance=f"billing-{slot}" if setting.static else None,
            says_reasons=setting.states_reasons,
            is_cooperative=setting.cooperative,
            session_ms=setting.session_timeout_ms,
            rebalance_ms=setting.rebalance_timeout_ms,
            heartbeat_ms=setting.heartbeat_interval_ms,
            slowness_ms=0 if setting.cooperative else place.slowness_ms,
        )
        self.world._numbers += 1
        process = PacedProcess(
            self.world,
            traits,
            self.world._numbers,
            reason=JoinReason.RESTART,
            place=place,
            beats_when_thawed=self.beats_when_thawed,
        )
        self.world.processes.append(process)
        process.start()
        return process

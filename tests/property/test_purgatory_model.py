"""The purgatory against the simplest thing that could do its work: a list, searched each time."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kohort.broker.core.purgatory import Completion, DelayedOperation, Purgatory
from tests.support.suites.examples import examples

KEYS = ["k0", "k1", "k2", "k3"]
Event = tuple[str, str]


class Operation(DelayedOperation):
    kind = "Fetch"

    def __init__(self, name: str, world: "World") -> None:
        super().__init__(owner=f"c{len(name) % 3}")
        self.name = name
        self.world = world

    def try_complete(self, key: object = None) -> bool:
        return self.name in self.world.satisfied

    def on_complete(self, completion: Completion) -> None:
        self.world.happened.append((self.name, completion.name))
        # Completing one operation changes what others wait for.
        wakes = self.world.wakes.get(self.name)
        if wakes is not None:
            self.world.satisfied.add(wakes[0])
            self.world.purgatory.check_and_complete(wakes[1])

    def on_failed(self, error: Exception) -> None:
        raise AssertionError from error

    def on_cancelled(self) -> None:
        self.world.happened.append((self.name, "CANCELLED"))


@dataclass
class World:
    purgatory: Purgatory
    satisfied: set[str] = field(default_factory=set)
    wakes: dict[str, tuple[str, str]] = field(default_factory=dict)
    happened: list[Event] = field(default_factory=list)


@dataclass
class Waiting:
    name: str
    keys: tuple[str, ...]
    deadline_ms: int
    scheduled: int


class Naive:
    """The same rules with one list and no cleverness."""

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.timers: dict[str, tuple[int, int]] = {}
        self.woken: list[str] = []
        self.happened: list[Event] = []
        self.satisfied: set[str] = set()
        self.wakes: dict[str, tuple[str, str]] = {}
        self.count = 0

    def complete(self, name: str, why: str) -> None:
        self.waiting = [w for w in self.waiting if w.name != name]
        self.happened.append((name, why))
        if name in self.wakes and why != "CANCELLED":
            satisfied, key = self.wakes[name]
            self.satisfied.add(satisfied)
            self.wake(key)

    def wake(self, key: str) -> None:
        if key not in self.woken and any(key in w.keys for w in self.waiting):
            self.woken.append(key)

    def watch(self, name: str, keys: tuple[str, ...], deadline_ms: int) -> None:
        if name in self.satisfied:
            self.complete(name, "SATISFIED")
        else:
            self.count += 1
            self.waiting.append(Waiting(name, keys, deadline_ms, self.count))

    def drain(self) -> None:
        while self.woken:
            key = self.woken.pop(0)
            for name in [w.name for w in self.waiting if key in w.keys]:
                if name in self.satisfied and any(w.name == name for w in self.waiting):
                    self.complete(name, "SATISFIED")

    def schedule(self, key: str, deadline_ms: int) -> None:
        self.count += 1
        self.timers[key] = (deadline_ms, self.count)

    def expire(self, now_ms: int) -> None:
        due = sorted((w.deadline_ms, w.scheduled, w.name) for w in self.waiting)
        for deadline_ms, _, name in due:
            if deadline_ms <= now_ms and any(w.name == name for w in self.waiting):
                self.complete(name, "SATISFIED" if name in self.satisfied else "EXPIRED")
        for key, (deadline_ms, _) in sorted(self.timers.items(), key=lambda item: item[1]):
            if deadline_ms <= now_ms:
                del self.timers[key]
                self.happened.append((key, "TIMER"))


class PurgatoryMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        purgatory = Purgatory(report=self.report)
        self.world = World(purgatory)
        self.operations: dict[str, Operation] = {}
        self.timers = purgatory.keyed_timers(self.on_timers, kind="Heartbeat")
        self.naive = Naive()
        self.now_ms = 0

    def report(self, doing: str, error: Exception) -> None:
        raise AssertionError(doing) from error

    def on_timers(self, keys: list[str], now_ms: int) -> None:
        assert now_ms == self.now_ms
        self.world.happened += [(key, "TIMER") for key in keys]

    @rule(
        keys=st.lists(st.sampled_from(KEYS), max_size=3),
        wait_ms=st.integers(-2, 20),
        holds=st.booleans(),
        wakes=st.none() | st.tuples(st.integers(0, 12), st.sampled_from(KEYS)),
    )
    def watch(
        self, keys: list[str], wait_ms: int, holds: bool, wakes: tuple[int, str] | None
    ) -> None:
        name = f"op{len(self.operations)}"
        for side in (self.world, self.naive):
            if holds and wait_ms % 3 == 0:
                side.satisfied.add(name)
            if wakes is not None:
                side.wakes[name] = (f"op{wakes[0]}", wakes[1])
        operation = self.operations[name] = Operation(name, self.world)
        deadline_ms = self.now_ms + wait_ms
        done = self.world.purgatory.try_complete_else_watch(operation, keys, deadline_ms)
        self.naive.watch(name, tuple(keys), deadline_ms)
        assert done == operation.is_completed

    @precondition(lambda self: self.operations)
    @rule(data=st.data(), key=st.sampled_from(KEYS))
    def satisfy_and_wake(self, data: st.DataObject, key: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.operations)))
        self.world.satisfied.add(name)
        self.naive.satisfied.add(name)
        self.world.purgatory.check_and_complete(key)
        self.naive.wake(key)

    @rule(operations_max=st.integers(1, 5))
    def drain(self, operations_max: int) -> None:
        while self.world.purgatory.has_work:
            self.world.purgatory.drain(operations_max)
        self.naive.drain()

    @precondition(lambda self: self.operations)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.operations)))
        if self.world.purgatory.cancel_operation(self.operations[name]):
            self.naive.complete(name, "CANCELLED")

    @rule(owner=st.sampled_from(["c0", "c1", "c2"]))
    def lose_client(self, owner: str) -> None:
        self.world.purgatory.cancel_owner(owner)
        for waiting in list(self.naive.waiting):
            if self.operations[waiting.name].owner == owner:
                self.naive.complete(waiting.name, "CANCELLED")

    @rule(key=st.sampled_from(KEYS), wait_ms=st.integers(-2, 20))
    def schedule(self, key: str, wait_ms: int) -> None:
        self.timers.schedule(key, self.now_ms + wait_ms)
        self.naive.schedule(key, self.now_ms + wait_ms)

    @rule(key=st.sampled_from(KEYS))
    def cancel_timer(self, key: str) -> None:
        assert self.timers.cancel(key) == (self.naive.timers.pop(key, None) is not None)

    @rule(duration_ms=st.integers(0, 15))
    def advance(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.world.purgatory.expire(self.now_ms)
        self.naive.expire(self.now_ms)

    @invariant()
    def the_same_has_happened_in_the_same_order(self) -> None:
        if hasattr(self, "world"):
            assert self.world.happened == self.naive.happened
            assert self.world.satisfied == self.naive.satisfied

    @invariant()
    def nothing_completed_is_listed(self) -> None:
        if not hasattr(self, "world"):
            return
        waiting = self.naive.waiting
        stats = self.world.purgatory.stats().get("Fetch", {"watched": 0, "delayed": 0})
        assert stats["delayed"] == len(waiting)
        assert stats["watched"] == sum(len(set(w.keys)) for w in waiting)
        assert len(self.timers) == len(self.naive.timers)
        deadlines = [w.deadline_ms for w in waiting] + [d for d, _ in self.naive.timers.values()]
        next_ms = self.world.purgatory.next_deadline_ms
        assert (next_ms is None) == (not deadlines)
        assert next_ms is None or next_ms <= min(deadlines)


TestPurgatoryModel = PurgatoryMachine.TestCase
TestPurgatoryModel.settings = settings(max_examples=examples(150), stateful_step_count=40)

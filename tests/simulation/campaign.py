"""Many worlds, one after the other on every core, and what came of them."""

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from tests.simulation.consumer_causes import Injection
from tests.simulation.life import CALM, CRAMPED, ROUGH, GroupLife, make_world

T = TypeVar("T")
EVENTS = 500
"""In one world: half an hour of life, some seconds of ours."""
CLIMATES = {"calm": CALM, "cramped": CRAMPED, "rough": ROUGH}
WITH_LEDGER = {"calm", "cramped"}
CONSUMERS = "consumers"
"""Instead of a climate: known causes are injected into a consumer group."""


@dataclass
class Tally:
    worlds: int = 0
    events: int = 0
    requests: int = 0
    generations: int = 0
    starts: int = 0
    """Starts of brokers."""
    virtual_s: float = 0.0
    rebalances: Counter[str] = field(default_factory=Counter)
    """By their known cause; not in rough worlds."""
    further: Counter[str] = field(default_factory=Counter)
    """Known causes of what was under way already."""
    recorded: int = 0
    """By the history, complete and as it was."""
    unfinished: int = 0
    """Recorded as cut short by the stop of a broker."""
    killed: int = 0
    """Not recorded, because the broker was killed first."""
    misses: int = 0

    def add(self, other: "Tally") -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


def live(seed: str, climate: str, events: int) -> Tally:
    """One world, from its beginning to its end. Raises SimulationError."""
    if climate == CONSUMERS:
        return _inject(seed, events)
    chosen = CLIMATES[climate]
    world = make_world(seed, chosen, keep_ledger=climate in WITH_LEDGER)
    begun_ms = world.now_ms
    life = GroupLife(world, chosen)
    world.run(life.run(events))
    tally = Tally(
        worlds=1,
        events=life.events,
        requests=world.witness.answers,
        generations=world.witness.generations,
        starts=world.lives,
        virtual_s=(world.now_ms - begun_ms) / 1000,
    )
    if (ledger := world.ledger) is not None:
        tally.rebalances = Counter({kind.value: n for kind, n in ledger.rebalances.items()})
        tally.further = Counter({kind.value: n for kind, n in ledger.further.items()})
        tally.recorded, tally.misses = ledger.recorded, ledger.misses
        tally.unfinished, tally.killed = ledger.unfinished, ledger.killed
    return tally


def _inject(seed: str, causes: int) -> Tally:
    """One world with a consumer group; `recorded` counts causes, and not rebalances."""
    injection = Injection(seed)
    injection.run(causes)
    for miss in injection.misses:
        print(f"{seed}: {miss}")
    return Tally(
        worlds=1,
        events=causes,
        requests=injection.world.witness.answers,
        starts=1,
        rebalances=injection.caused,
        recorded=injection.recorded,
        misses=len(injection.misses),
    )


def process_count() -> int:
    """The number of cores, or this process's share of them beside other test processes."""
    beside = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max((os.cpu_count() or 1) // beside, 1)


def in_processes(calls: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Make calls on all cores; their results, in order."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(process_count(), mp_context=context) as pool:
        work = [pool.submit(call) for call in calls]
        try:
            for future in work:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def live_many(seed: str, climate: str, worlds: int, events: int = EVENTS) -> Iterator[Tally]:
    """Worlds with seeds of their own, made from `seed`; what came of each, in their order."""
    seeds = [f"{seed}.{number}" for number in range(worlds)]
    return in_processes([partial(live, one, climate, events) for one in seeds])


def describe(total: Tally, begun_s: float) -> str:
    return (
        f"{total.worlds:,} worlds, {total.events:,} events, {total.requests:,} requests, "
        f"{total.starts:,} starts of a broker, {total.generations:,} generations in "
        f"{total.virtual_s / 3600:,.1f} hours, which took {time.monotonic() - begun_s:.0f} s"
    )


def attribution(total: Tally) -> str:
    causes = ", ".join(f"{name} {count:,}" for name, count in total.rebalances.most_common())
    further = ", ".join(f"{name} {count:,}" for name, count in total.further.most_common())
    return (
        f"attribution: {total.rebalances.total():,} rebalances, {total.misses} misses "
        f"({total.unfinished} cut short by a stop, {total.killed} unrecorded because of a kill)\n"
        f"by cause: {causes}\nfurther causes: {further}"
    )

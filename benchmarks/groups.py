"""Groups of a thousand and five thousand members, each on a connection of its own.

They come together, one leaves, one joins. Most of what passes in the latter two is the wait for
the next heartbeats; what the broker itself takes runs from the last JoinGroup to the last
SyncGroup's answer. In the first, group.initial.rebalance.delay.ms (100 for both) is part of it.
"""

from collections.abc import Iterable
from typing import Final

from benchmarks.brokers import Contender, RunningBroker
from benchmarks.harness import Bench, Measured, Row, progress
from benchmarks.live import fresh_name, live, load

TITLE: Final = "One group over sockets, heartbeats every 3 s"

SIZES: Final = (1_000, 5_000)
_HEARTBEAT_S: Final = 3.0
_PHASES: Final = {"cold": "all come", "leave": "one leaves", "join": "one joins"}


def measure(bench: Bench) -> Iterable[Row]:
    wanted = bench.wanted(SIZES, lambda size: f"{size:,} members")
    sizes = [int(bench.scaled(size, 3)) for size in wanted]
    with live(bench, "groups") as brokers:
        for contender in () if bench.is_trial else bench.contenders:
            progress(f"  warming {contender.name}")
            for _ in range(2):
                _measure(bench, brokers[contender.name], sizes[0])

        def measure_all(contender: Contender) -> Measured:
            measured: dict[str, float] = {}
            for size in sizes:
                progress(f"  {contender.name}: {size:,} members")
                found = _measure(bench, brokers[contender.name], size)
                measured |= {f"{size} {name}": value for name, value in found.items()}
            return measured

        figures = bench.alternate(measure_all)
    for size in sizes:
        for phase, event in _PHASES.items():
            name = f"{size:,} members, {event}"
            after = figures[f"{size} {phase} after last join"]
            yield Row(f"{name}: after the last join until all settled", "ms", after, aim=1.0)
            yield Row(f"{name}: from the event on", "ms", figures[f"{size} {phase} total"])
            yield Row(f"{name}: server CPU", "ms", figures[f"{size} {phase} cpu"])


def _measure(bench: Bench, broker: RunningBroker, size: int) -> Measured:
    heartbeat_s = bench.scaled(_HEARTBEAT_S, 0.2)
    return load(broker, "group", group_id=fresh_name("group"), size=size, heartbeat_s=heartbeat_s)

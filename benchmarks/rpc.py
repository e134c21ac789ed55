"""Small requests over a hundred connections: what one costs the broker, and how many it answers."""

import itertools
from collections.abc import Iterable
from typing import Final

from benchmarks.brokers import Contender, RunningBroker
from benchmarks.generator.small_requests import KINDS
from benchmarks.harness import Bench, Measured, Row, progress
from benchmarks.live import fresh_name, live, load

TITLE: Final = "Small requests, one at a time on each of 100 connections"

_CONNECTIONS: Final = 100
_SECONDS: Final = 3.0
_WARM_SECONDS: Final = 4.0
"""Half of what a JVM takes to compile a path at this rate, and as much again."""


def measure(bench: Bench) -> Iterable[Row]:
    kinds = bench.wanted(KINDS, str)
    connections = int(bench.scaled(_CONNECTIONS, 3))
    seconds = bench.scaled(_SECONDS, 0.05)
    with live(bench, "rpc") as brokers:
        for contender, kind in itertools.product(() if bench.is_trial else bench.contenders, kinds):
            progress(f"  warming {contender.name}: {kind}")
            _measure(brokers[contender.name], kind, connections, _WARM_SECONDS)

        def measure_all(contender: Contender) -> Measured:
            measured: dict[str, float] = {}
            for kind in kinds:
                progress(f"  {contender.name}: {kind}")
                found = _measure(brokers[contender.name], kind, connections, seconds)
                measured |= {f"{kind} {name}": value for name, value in found.items()}
            return measured

        figures = bench.alternate(measure_all)
    for kind in kinds:
        yield Row(f"{kind}: server CPU each", "us", figures[f"{kind} cpu"], aim=1.0)
        yield Row(f"{kind}: rate", "requests/s", figures[f"{kind} rate"], "more", aim=1.0)
        yield Row(f"{kind}: the generator's own share", "% of a core", figures[f"{kind} generator"])


def _measure(broker: RunningBroker, kind: str, connections: int, seconds: float) -> Measured:
    return load(
        broker,
        "small requests",
        request=kind,
        name=fresh_name("rpc"),
        connections=connections,
        seconds=seconds,
    )

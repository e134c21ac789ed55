"""A hundred thousand parked operations, and how long anything holds up the loop meanwhile.

They are the sessions of the members of a thousand groups, each of which sends a heartbeat every
three seconds. A timer looks every five milliseconds how late it is, and every collection of garbage
is timed, from the first join on. Collections are timed in processor time of their thread. Lateness
is wall-clock time: what else the machine does is in it.
"""

import asyncio
import gc
import itertools
import shutil
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness import Bench, Measured, Row, progress
from benchmarks.in_process import broker_here, run_apart
from benchmarks.members import Members
from kohort.protocol.errors import ErrorCode

TITLE: Final = "Loop and garbage collector with 100,000 parked operations"

_PARKED: Final = 100_000
_GROUP_SIZE: Final = 100
_SECONDS: Final = 20.0
_HEARTBEAT_S: Final = 3.0
_TICK_S: Final = 0.005
_SETTLE_S: Final = 1.0
_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50)


def measure(bench: Bench) -> Iterable[Row]:
    parked, seconds = int(bench.scaled(_PARKED)), bench.scaled(_SECONDS, 0.2)
    # Who comes later than that finds its group in another generation.
    delay_ms = max(2_000, int(bench.scaled(10_000)))
    settle_s = bench.scaled(_SETTLE_S, 0.1)
    work = partial(
        _measure_all, parked=parked, seconds=seconds, delay_ms=delay_ms, settle_s=settle_s
    )

    def measure_once() -> Measured:
        progress(f"  {parked:,} join")
        directory = bench.directory / "parked"
        shutil.rmtree(directory, ignore_errors=True)
        return run_apart(work, directory)

    figures = bench.measure_ours(measure_once)
    for name in ("p50", "p99", "p99.9", "longest"):
        yield Row(f"lateness of the loop, {name}", "ms", figures[name])
    low = 0
    for high in _BOUNDS_MS:
        yield Row(f"garbage collections of {low} - {high} ms", "times", figures[f"gc {high}"])
        low = high
    yield Row(f"garbage collections above {low} ms", "times", figures["gc above"])
    yield Row("longest garbage collection", "ms", figures["gc longest"])


async def _measure_all(
    directory: Path, *, parked: int, seconds: float, delay_ms: int, settle_s: float
) -> Measured:
    async with broker_here(directory, delay_ms) as broker:
        pauses: list[float] = []
        meter = partial(_on_collection, pauses, [0.0])
        gc.callbacks.append(meter)
        members = Members(broker, max(1, parked // _GROUP_SIZE), min(parked, _GROUP_SIZE))
        await members.come()
        waiting = broker.services.purgatory.waiting_count
        if waiting < len(members.joined):
            raise RuntimeError(f"{waiting} operations wait, not {parked}")
        await asyncio.sleep(settle_s)
        lateness = await _beat(broker.services.groups.heartbeat, members, seconds)
        gc.callbacks.remove(meter)
    return {**_lateness(lateness), **_histogram(pauses)}


async def _beat(heartbeat: object, members: Members, seconds: float) -> list[float]:
    """Spread all heartbeats evenly; return how late each look was."""
    lateness: list[float] = []
    loop = asyncio.get_running_loop()
    beats = itertools.cycle(members.joined)
    each_tick = max(1, int(len(members.joined) * _TICK_S / _HEARTBEAT_S))
    until_s = loop.time() + seconds
    while (now_s := loop.time()) < until_s:
        for group_id, joined in itertools.islice(beats, each_tick):
            error = heartbeat(group_id, joined.member_id, None, joined.generation)  # type: ignore[operator]
            if error is not ErrorCode.NONE:
                raise RuntimeError(f"a heartbeat was answered {error!r}")
        due_s = now_s + _TICK_S
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        lateness.append(max(0.0, time.monotonic() - due_s))
    return lateness


def _on_collection(
    pauses: list[float], began_s: list[float], phase: str, _: dict[str, int]
) -> None:
    if phase == "start":
        began_s[0] = time.thread_time()
    else:
        pauses.append(time.thread_time() - began_s[0])


def _lateness(lateness: Sequence[float]) -> dict[str, float]:
    ordered = sorted(lateness)
    places = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    found = {name: ordered[int(len(ordered) * place)] * 1e3 for name, place in places.items()}
    return {**found, "longest": ordered[-1] * 1e3}


def _histogram(pauses: Sequence[float]) -> dict[str, float]:
    counts, low = {}, 0.0
    for high in (*_BOUNDS_MS, float("inf")):
        name = "gc above" if high == float("inf") else f"gc {high}"
        counts[name] = float(sum(low <= pause * 1e3 < high for pause in pauses))
        low = high
    return {**counts, "gc longest": max(pauses, default=0.0) * 1e3}

"""Deadlines, a hundred thousand at a time: what one costs when it is set, moved, cancelled and met.

They are keyed timers of one purgatory, as the sessions of a group's members are. Time is a number
here; nothing waits.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from benchmarks.harness import Bench, Measured, Row
from kohort.broker.core.purgatory import KeyedTimers, Purgatory

TITLE: Final = "Timers, 100,000 at a time"

_COUNT: Final = 100_000
_SESSION_MS: Final = 45_000


def measure(bench: Bench) -> Iterable[Row]:
    figures = bench.measure_ours(partial(_measure_all, int(bench.scaled(_COUNT))))
    for name, figure in figures.items():
        yield Row(name, "us each", figure)


def _measure_all(count: int) -> Measured:
    expired: list[int] = []
    purgatory = Purgatory(report=_fail)
    timers: KeyedTimers[int] = purgatory.keyed_timers(
        lambda keys, _: expired.extend(keys), kind="bench"
    )
    keys = range(count)

    def schedule(shift_ms: int) -> None:
        for key in keys:
            timers.schedule(key, key // 50 + _SESSION_MS + shift_ms)

    def cancel() -> None:
        for key in keys:
            timers.cancel(key)

    def expire(until_ms: int) -> None:
        while (next_ms := purgatory.next_deadline_ms) is not None and next_ms <= until_ms:
            purgatory.expire(until_ms)

    def each(work: Callable[[], None]) -> float:
        began = time.thread_time()
        work()
        return (time.thread_time() - began) / count * 1e6

    measured = {
        "set": each(partial(schedule, 0)),
        "move to a later time, as a heartbeat does": each(partial(schedule, 3_000)),
        "look at those that were moved": each(partial(expire, _SESSION_MS + 2_999)),
    }
    if expired or len(timers) != count:
        raise RuntimeError(f"{len(expired)} timers expired early")
    measured["cancel"] = each(cancel)
    expire(1 << 40)
    if expired:
        raise RuntimeError("cancelled timers have expired")
    schedule(0)
    measured["expire"] = each(partial(expire, _SESSION_MS + count))
    if expired != list(keys):
        raise RuntimeError(f"{len(expired)} timers expired, or not in their order")
    return measured


def _fail(doing: str, error: Exception) -> None:
    raise RuntimeError(doing) from error

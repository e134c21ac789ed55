"""Stalls of the process: pauses by the garbage collector, and lag of the event loop, which is the
delay that an event at a random time would have.

A timer runs every `TICK_S` and measures its delay. A stall that delays several ticks is counted
once for each tick, with the delay that this tick would have had: otherwise one long stall would
weigh no more than a single late tick, and the 99.9th percentile would not show the stall
("coordinated omission").

The timer's own resolution is a millisecond, so the first bucket means "not late".
"""

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Final

from kohort.broker.metrics.tally import HistogramTally, RecentMaximum

PAUSE_BOUNDS_S: Final = (0.001, 0.005, 0.02, 0.1, 0.5)

GENERATIONS: Final = 3


class GcPauseMeter:
    """Measures garbage collections from `start` until `stop`."""

    def __init__(self) -> None:
        self.pauses = [HistogramTally(PAUSE_BOUNDS_S) for _ in range(GENERATIONS)]
        """Histograms by generation, the youngest first."""
        self._began_at = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_at = time.perf_counter()
        else:
            self.pauses[info["generation"]].observe(time.perf_counter() - self._began_at)


TICK_S: Final = 0.05
"""Interval of the timer; in an idle broker it takes less than 0.1 % of a core."""

LAG_BOUNDS_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

_TICKS_PER_STALL_MAX: Final = 1_200
"""Maximum ticks counted per stall (one minute): a longer stall is probably a suspended machine."""

_MAXIMUM_PERIOD_S: Final = 60.0


class LoopLagMeter:
    """Measures the running event loop from `start` until `stop`."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.lag = HistogramTally(LAG_BOUNDS_S)
        self._maximum = RecentMaximum(_MAXIMUM_PERIOD_S)
        self._now = now
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def recent_maximum_s(self) -> float:
        """The longest delay of a tick in the last one to two minutes."""
        return self._maximum.value_at(self._now())

    def start(self) -> None:
        assert self._timer is None, "already started"
        self._schedule(asyncio.get_running_loop())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def observe(self, late_s: float) -> None:
        """Count a tick that is late by `late_s`, and the ticks that were due during the delay."""
        self._maximum.observe(late_s, self._now())
        for _ in range(_TICKS_PER_STALL_MAX):
            self.lag.observe(late_s)
            late_s -= TICK_S
            if late_s <= 0:
                return

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = self._now() + TICK_S
        self._timer = loop.call_later(TICK_S, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self.observe(max(0.0, self._now() - self._due))
        self._schedule(loop)

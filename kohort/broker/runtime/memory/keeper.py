"""Returns the memory of very many members to the system when they leave.

It checks a few times a second how many operations and deadlines are waiting: every live member and
every parked request has one of them. A second figure is what members that have left still leave
behind: those whose rebalance the history has yet to describe.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kohort.broker.runtime.memory.collector import (
    TurnCollector,
    collect_all,
    collect_as_usual,
    collect_in_steps,
    collect_recent,
)
from kohort.broker.runtime.memory.trim import give_back_free_memory

LOOK_EVERY_S: Final = 0.25
"""Thousands of members can join in a second."""

COLLECT_EVERY_S: Final = 0.01
"""Used while there are many: about as much as one iteration may take."""

MANY: Final = 3_000
"""The count from which it is worth checking what they leave behind."""

GONE_BELOW: Final = 4
"""Most have left when the count has shrunk by this factor."""

GIVEN_BACK_PER_GONE: Final = 7_500
"""Used while many leave: returning a page takes a microsecond, and all of a hundred thousand
members' at once a tenth of a second. Searching for pages takes ten milliseconds each time."""

GIVEN_BACK_AFTER_LOOKS: Final = (12, 60, 240, 2_800)
"""Checks after hardly any more have left. Groups without members last until the next sweep."""

COLLECT_ALL_EVERY_LOOKS: Final = 14_400
"""An hour. Cycles among old objects are rare, and searched for when few objects live,"""

COLLECT_ALL_ANYWAY_LOOKS: Final = 24 * COLLECT_ALL_EVERY_LOOKS
"""or once a day, for a quarter of a second with 100,000 members: otherwise leaks would be
unbounded."""


class MemoryKeeper:
    """Manages the memory of a process with one broker, from `start` to `stop`, on the loop's
    thread.
    """

    def __init__(
        self, waiting_count: Callable[[], int], left_count: Callable[[], int] = lambda: 0
    ) -> None:
        """`waiting_count` returns the number of waiting operations and deadlines, `left_count` what
        else has to go before the memory of members that have left is free.
        """
        self._waiting_count = waiting_count
        self._left_count = left_count
        self._most = 0
        self._left = 0
        """What was left of the maximum when the count was last seen to shrink."""
        self._high = 0
        """The maximum of the sum since memory was last returned."""
        self._looks_since_gone = 0
        self._looks_since_collected = 0
        self._timer: asyncio.TimerHandle | None = None
        self._collector: TurnCollector | None = None
        """Set while there are many, and until their memory has been returned."""
        self._collect_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start incremental collection and periodic checks."""
        collect_in_steps()
        self._look_later()

    def stop(self) -> None:
        """Restore normal garbage collection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._end_crowd()
        collect_as_usual()

    def look(self) -> None:
        """Perform a check."""
        count = self._waiting_count()
        here = count + self._left_count()
        self._high = max(self._high, here)
        if count >= MANY and count * GONE_BELOW > self._most:
            self._most = self._left = max(self._most, count)
            self._looks_since_gone = 0
            self._begin_crowd()
        elif self._most and here * GONE_BELOW <= self._most:
            self._looks_since_gone += 1
            if here < self._left - MANY // 10:
                self._left = here
                self._looks_since_gone = 0
            if self._looks_since_gone in GIVEN_BACK_AFTER_LOOKS:
                collect_recent()
                give_back_free_memory()
                self._high = here
            if self._looks_since_gone >= GIVEN_BACK_AFTER_LOOKS[-1]:
                self._most = 0
                self._end_crowd()
        if self._most and self._high - here >= GIVEN_BACK_PER_GONE:
            self._high = here
            give_back_free_memory()
        self._looks_since_collected += 1
        wait_looks = COLLECT_ALL_EVERY_LOOKS if count < MANY else COLLECT_ALL_ANYWAY_LOOKS
        if self._looks_since_collected >= wait_looks:
            self._looks_since_collected = 0
            collect_all()

    def _begin_crowd(self) -> None:
        if self._collector is None and self._timer is not None:
            self._collector = TurnCollector()
            self._collect_later()

    def _end_crowd(self) -> None:
        if self._collector is not None:
            self._collector.stop()
            self._collector = None
        if self._collect_timer is not None:
            self._collect_timer.cancel()
            self._collect_timer = None

    def _collect_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._collect_timer = loop.call_later(COLLECT_EVERY_S, self._collect_and_go_on)

    def _collect_and_go_on(self) -> None:
        if self._collector is not None:
            self._collector.look()
            self._collect_later()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look_and_go_on)

    def _look_and_go_on(self) -> None:
        self._look_later()
        self.look()

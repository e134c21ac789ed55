"""The keeper of a process's memory: what very many members took is given back when they go.

It looks a few times a second how many operations and deadlines wait: that is one number, and every
live member and every parked request has one of them. What those leave behind that go is another:
members whose rebalance the history has still to describe.
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
"""While there are many: about as much as one turn may take."""

MANY: Final = 3_000
"""From so many on it is worth looking at what they leave behind."""

GONE_BELOW: Final = 4
"""Most are gone when there are so many times fewer than there were."""

GIVEN_BACK_PER_GONE: Final = 7_500
"""While many go: to give a page back takes a microsecond, and all of a hundred thousand members'
in one go a tenth of a second. To look for pages takes ten milliseconds each time."""

GIVEN_BACK_AFTER_LOOKS: Final = (12, 60, 240, 2_800)
"""When hardly any more have gone. Groups without a member last until the next sweep."""

COLLECT_ALL_EVERY_LOOKS: Final = 14_400
"""An hour. Cycles among old objects are few, if there are any, and found when little lives,"""

COLLECT_ALL_ANYWAY_LOOKS: Final = 24 * COLLECT_ALL_EVERY_LOOKS
"""or once a day, for a quarter of a second with 100,000 members: what is not bounded is a leak."""


class MemoryKeeper:
    """For the one broker of a process, from `start` to `stop`, on the loop's thread."""

    def __init__(
        self, waiting_count: Callable[[], int], left_count: Callable[[], int] = lambda: 0
    ) -> None:
        """`waiting_count` tells how much waits just now, `left_count` what else has to go before
        the memory of those that have gone is free.
        """
        self._waiting_count = waiting_count
        self._left_count = left_count
        self._most = 0
        self._left = 0
        """How many of the most were left when they were last seen to go."""
        self._high = 0
        """The most of both since some memory was given back."""
        self._looks_since_gone = 0
        self._looks_since_collected = 0
        self._timer: asyncio.TimerHandle | None = None
        self._collector: TurnCollector | None = None
        """While there are many, and until their memory was given back."""
        self._collect_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Collect garbage in steps, and look from now on."""
        collect_in_steps()
        self._look_later()

    def stop(self) -> None:
        """Collect garbage as before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._end_crowd()
        collect_as_usual()

    def look(self) -> None:
        """Do what is to be done now."""
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
        self.look()
        self._look_later()

"""Sees to it that memory is given back after very many members were there.

Looks a few times a second how many operations and deadlines wait: that is one number, and every
live member and every parked request has one of them. What those leave behind that go is another:
members whose rebalance the history has still to describe.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from kohort.broker.collector import (
    TurnCollector,
    collect_all,
    collect_as_usual,
    collect_in_steps,
    collect_recent,
)
from kohort.broker.core.steps import Steps, at_once
from kohort.broker.renewal import Renewal

LOOK_EVERY_S: Final = 0.25
"""Thousands of members can join in a second."""

COLLECT_EVERY_S: Final = 0.01
"""While there are many: about as much as one turn may take."""

MANY: Final = 3_000
"""From so many on, new objects come from where memory can be given back page by page. Fewer cost so
little that Python's own allocator, which is faster, may keep it."""

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

_END: Final = object()


class MemoryKeeper:
    """For the one broker of a process, from `start` to `stop`, on the loop's thread."""

    def __init__(
        self,
        waiting_count: Callable[[], int],
        left_count: Callable[[], int] = lambda: 0,
        renewals: Sequence[Renewal] = (),
    ) -> None:
        """`waiting_count` tells how much waits just now, `left_count` what else has to go before
        the memory of those who have gone is free; `renewals` make anew what stays of them.
        """
        self._waiting_count = waiting_count
        self._left_count = left_count
        self._renewals = renewals
        self._most = 0
        self._left = 0
        """Of the most, when they were last seen to go."""
        self._high = 0
        """The most of both since some memory was given back."""
        self._looks_since_gone = 0
        self._looks_since_collected = 0
        self._is_prepared = False
        self._timer: asyncio.TimerHandle | None = None
        self._collector: TurnCollector | None = None
        """While there are many, and until their memory was given back."""
        self._collect_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Collect garbage in steps, and look from now on."""
        collect_in_steps()
        self._look_later()

    def stop(self) -> None:
        """The collector works as before; the allocator stays what it is."""
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
        if count >= MANY and (count * GONE_BELOW > self._most or not self._is_prepared):
            self._most = self._left = max(self._most, count) if self._is_prepared else count
            self._looks_since_gone = 0
            self._prepare()
            self._begin_crowd()
        elif self._most and here * GONE_BELOW <= self._most:
            self._looks_since_gone += 1
            if here < self._left - MANY // 10:
                self._left = here
                self._looks_since_gone = 0
            if self._looks_since_gone in GIVEN_BACK_AFTER_LOOKS:
                if self._is_prepared and here < MANY:
                    self._settle()
                else:
                    _give_back()
                self._high = here
            if self._looks_since_gone >= GIVEN_BACK_AFTER_LOOKS[-1]:
                self._most = 0
                self._end_crowd()
        if self._most and self._high - here >= GIVEN_BACK_PER_GONE:
            self._high = here
            _give_back_free()
        self._looks_since_collected += 1
        wait_looks = COLLECT_ALL_EVERY_LOOKS if count < MANY else COLLECT_ALL_ANYWAY_LOOKS
        if self._looks_since_collected >= wait_looks:
            self._looks_since_collected = 0
            collect_all()

    def _prepare(self) -> None:
        if not self._is_prepared:
            self._is_prepared = True
            from kohort.broker.allocator import serve_objects_by_library  # noqa: PLC0415 - rarely wanted.

            serve_objects_by_library()

    def _settle(self) -> None:
        """New objects are made by Python's allocator again, and so is what stays of the crowd; then
        its memory is given back.
        """
        self._is_prepared = False
        from kohort.broker.allocator import serve_objects_by_python  # noqa: PLC0415 - rarely wanted.

        serve_objects_by_python()
        # Empties the interpreter's lists of spare objects, which the C library has made.
        collect_recent()
        if self._timer is None:
            at_once(self._renew())
        else:
            self._renew_on(self._renew())

    def _renew(self) -> Steps[None]:
        yield
        for renewal in self._renewals:
            yield from renewal()
            yield
        _give_back_free()

    def _renew_on(self, steps: Steps[None]) -> None:
        if next(steps, _END) is not _END and self._timer is not None:
            asyncio.get_running_loop().call_soon(self._renew_on, steps)

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


def _give_back() -> None:
    collect_recent()
    _give_back_free()


def _give_back_free() -> None:
    from kohort.broker.allocator import give_back_free_memory  # noqa: PLC0415 - rarely wanted.

    give_back_free_memory()

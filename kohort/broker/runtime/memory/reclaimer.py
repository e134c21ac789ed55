"""Returns the memory of very many members to the system when they leave.

The reclaimer checks the number of waiting operations and deadlines a few times a second: every live
member and every parked request has one. A second figure counts departed members whose memory is
still in use, because the history has yet to describe their rebalance.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

from kohort.broker.runtime.memory.collector import (
    IterationCollector,
    collect_all,
    collect_as_usual,
    collect_in_steps,
    collect_recent,
)

logger = logging.getLogger(__name__)


CHECK_EVERY_S: Final = 0.25
"""Interval of the checks; short, because thousands of members can join in a second."""

COLLECT_EVERY_S: Final = 0.01
"""Interval between checks whether to collect young objects, while very many members exist."""

MANY: Final = 3_000
"""From this number of waiting operations and deadlines on, reclaiming memory is worth its cost."""

DEPARTED_FACTOR: Final = 4
"""Most members count as departed while `waiting_count() + left_count()` is at most
1/DEPARTED_FACTOR of the peak of `waiting_count()`."""

RETURN_EVERY_DEPARTURES: Final = 7_500
"""While many members leave, memory is returned whenever this many have left: returning a page takes
a microsecond, so returning the memory of 100,000 members at once would take a tenth of a second.
Searching for free pages takes ten milliseconds each time."""

RETURN_AFTER_CHECKS: Final = (12, 60, 240, 2_800)
"""Memory is returned at these numbers of checks after members have last left in large numbers. The
last number is large, because groups without members remain until the next expiry sweep."""

COLLECT_ALL_EVERY_CHECKS: Final = 14_400
"""Checks between two full garbage collections unless there are many members: an hour. Cycles among
old objects are rare."""

COLLECT_ALL_LATEST_CHECKS: Final = 24 * COLLECT_ALL_EVERY_CHECKS
"""Checks between two full collections while there are many members: a day, to bound leaks. With
100,000 members, a full collection takes a quarter of a second."""


class MemoryReclaimer:
    """Manages the memory of a process with one broker. Not thread-safe: used by the event loop."""

    def __init__(
        self, waiting_count: Callable[[], int], left_count: Callable[[], int] = lambda: 0
    ) -> None:
        """`waiting_count` returns the number of waiting operations and deadlines, `left_count` the
        number of departed members whose memory is still in use.
        """
        self._waiting_count = waiting_count
        self._left_count = left_count
        self._peak = 0
        self._least = 0
        """The lowest `waiting_count() + left_count()` since the peak; small drops are ignored."""
        self._high = 0
        """The highest `waiting_count() + left_count()` since memory was last returned."""
        self._checks_since_departures = 0
        self._checks_since_collection = 0
        self._timer: asyncio.TimerHandle | None = None
        self._collector: IterationCollector | None = None
        """Exists after very many members have joined, until their memory has been returned."""
        self._collect_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start incremental garbage collection and periodic checks."""
        collect_in_steps()
        self._schedule_check()

    def stop(self) -> None:
        """Restore normal garbage collection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._end_burst()
        collect_as_usual()

    def check(self) -> None:
        count = self._waiting_count()
        total = count + self._left_count()
        self._high = max(self._high, total)
        if count >= MANY and count * DEPARTED_FACTOR > self._peak:
            self._peak = self._least = max(self._peak, count)
            self._checks_since_departures = 0
            self._begin_burst()
        elif self._peak and total * DEPARTED_FACTOR <= self._peak:
            self._checks_since_departures += 1
            if total < self._least - MANY // 10:
                self._least = total
                self._checks_since_departures = 0
            if self._checks_since_departures in RETURN_AFTER_CHECKS:
                collect_recent()
                return_free_memory()
                self._high = total
            if self._checks_since_departures >= RETURN_AFTER_CHECKS[-1]:
                self._peak = 0
                self._end_burst()
        if self._peak and self._high - total >= RETURN_EVERY_DEPARTURES:
            self._high = total
            return_free_memory()
        self._checks_since_collection += 1
        wait_checks = COLLECT_ALL_EVERY_CHECKS if count < MANY else COLLECT_ALL_LATEST_CHECKS
        if self._checks_since_collection >= wait_checks:
            self._checks_since_collection = 0
            collect_all()

    def _begin_burst(self) -> None:
        if self._collector is None and self._timer is not None:
            self._collector = IterationCollector()
            self._schedule_collection()

    def _end_burst(self) -> None:
        if self._collector is not None:
            self._collector.stop()
            self._collector = None
        if self._collect_timer is not None:
            self._collect_timer.cancel()
            self._collect_timer = None

    def _schedule_collection(self) -> None:
        loop = asyncio.get_running_loop()
        self._collect_timer = loop.call_later(COLLECT_EVERY_S, self._collect_and_reschedule)

    def _collect_and_reschedule(self) -> None:
        if self._collector is not None:
            self._collector.check()
            self._schedule_collection()

    def _schedule_check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            CHECK_EVERY_S, self._check_and_reschedule
        )

    def _check_and_reschedule(self) -> None:
        self._schedule_check()
        self.check()


M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""A constant of glibc's malloc.h."""

MMAP_THRESHOLD_BYTES: Final = 8 * 1024 * 1024
"""malloc gives larger blocks a mapping of their own. Ordinary batches are smaller, and so are the
4 MiB buffers that liblz4 allocates for a frame with its largest block size: the page faults of a
new mapping take longer than decompression."""

TRIM_THRESHOLD_BYTES: Final = 32 * 1024 * 1024
"""The heap shrinks when more bytes than this are free at its end. One Produce needs less, so the
heap does not shrink and grow with each batch; free memory is returned when the broker is idle."""

_LIMITS: Final = (
    (M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES),
    (M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES),
)


def limit_retained_memory() -> None:
    """Limit the free memory that the C library keeps, and return the memory freed by startup.

    glibc maps each large block separately, and unmaps it when it is freed. But each time, it raises
    its thresholds: the next block of that size comes from the heap, and the end of the heap is not
    returned before twice that size is free there. After a few requests of 30 MB, the process keeps
    64 MB for good. Setting the thresholds disables their adaptation. Other C libraries are left
    alone.
    """
    with contextlib.suppress(AttributeError, OSError):
        library = _library()
        for option, limit_bytes in _LIMITS:
            if not library.mallopt(option, limit_bytes):
                logger.debug("mallopt(%d) failed", option)
    return_free_memory()


def return_free_memory() -> None:
    """Return all of the C library's free pages to the system. Searching for them takes ten
    milliseconds after heavy use, and returning each takes a microsecond.
    """
    with contextlib.suppress(AttributeError, OSError):
        _library().malloc_trim(0)


def _library() -> Any:  # noqa: ANN401 - it has any function.
    import ctypes  # noqa: PLC0415 - 10 ms that a start saves.

    return ctypes.CDLL(None)

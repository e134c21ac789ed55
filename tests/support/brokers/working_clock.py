"""A clock for tests of work that is done in slices."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from kohort.testing.virtual_clock import VirtualClock

T = TypeVar("T")


class WorkingClock(VirtualClock):
    """Time passes each time it is read: a slice has the same length on every machine."""

    def monotonic_ms(self) -> int:
        self.advance(1)
        return super().monotonic_ms()


async def iterations_of(work: Awaitable[T]) -> tuple[T, int]:
    """Return the result of `work`, and the event loop iterations until it was there."""
    task = asyncio.ensure_future(work)
    iterations = 0
    while not task.done():
        iterations += 1
        await asyncio.sleep(0)
    return task.result(), iterations

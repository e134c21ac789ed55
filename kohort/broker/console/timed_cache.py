"""A cache of one expensive result, shared by all requests within a short time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from kohort.broker.runtime.slices import Monotonic

T = TypeVar("T")

AGE_MS_MIN: Final = 1_000
WORTH: Final = 10
"""A result is valid for ten times as long as its computation took, and for at least a second, so
that many pages cost at most a tenth of a core."""

FORGET_S: Final = 60.0
"""The result is dropped this long after the last request for it."""


class TimedCache(Generic[T]):
    """A result, computed by `make` on request if it is missing or too old."""

    def __init__(self, make: Callable[[], Awaitable[T]], clock: Monotonic) -> None:
        self._make = make
        self._clock = clock
        self._made: tuple[T, int, int] | None = None
        """The result, the time at which its computation began, and how long that took."""
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self) -> T:
        """Return a valid result. Concurrent callers wait for one computation."""
        async with self._lock:
            began_ms = self._clock.monotonic_ms()
            made = self._made
            if made is None or began_ms - made[1] >= max(AGE_MS_MIN, WORTH * made[2]):
                result = await self._make()
                made = self._made = (result, began_ms, self._clock.monotonic_ms() - began_ms)
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(FORGET_S, self._forget)
            return made[0]

    def _forget(self) -> None:
        self._made = self._timer = None

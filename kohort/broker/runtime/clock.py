"""Time as the broker sees it: two clocks that are never confused.

Monotonic time is for deadlines and durations; it never jumps and means nothing outside this
process. Wall time is for what is stored or shown: commit timestamps, log-append timestamps,
retention. Both are integer milliseconds.

Only shells ask a clock. The cores get `now_ms` as an argument.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What the shells need to know about time."""

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never decreases."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump in both directions."""
        ...


class SystemClock:
    """The clock of the machine."""

    __slots__ = ()

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class VirtualClock:
    """A clock that moves only when it is told to; for tests and simulations."""

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, *, monotonic_ms: int = 1_000_000, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def advance(self, duration_ms: int) -> int:
        """Move both clocks forward and return the new monotonic time."""
        if duration_ms < 0:
            raise ValueError(f"monotonic time does not go back, asked for {duration_ms} ms")
        self._monotonic_ms += duration_ms
        self._wall_ms += duration_ms
        return self._monotonic_ms

    def jump_wall(self, duration_ms: int) -> None:
        """Set the wall clock forward or back, as an operator or NTP does; monotonic time stays."""
        self._wall_ms += duration_ms

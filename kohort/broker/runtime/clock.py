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

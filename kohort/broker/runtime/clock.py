"""The broker's two clocks, which must not be confused.

Monotonic time is for deadlines and durations; it never jumps and has no meaning outside this
process. Wall-clock time is for stored and displayed times: commit timestamps, log-append
timestamps, retention. Both are integer milliseconds.

Only the code that does I/O reads a clock. The cores get `now_ms` as an argument.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never decreases."""
        ...

    def monotonic_s(self) -> float:
        """The monotonic time in seconds."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump in both directions."""
        ...


class SystemClock:
    __slots__ = ()

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    monotonic_s = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

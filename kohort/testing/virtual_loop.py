"""An event loop on virtual time: a wait for a timer moves the clock instead of taking time.

Sockets work, and are polled before the clock moves. Time does not move while anything is ready.
"""

import asyncio
import math
import selectors

from kohort.testing.virtual_clock import VirtualClock


class _Selector(selectors.DefaultSelector):
    """Looks at the sockets without waiting, and lets the clock do the waiting."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            # No timer is set: only a socket or another thread can go on.
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self._clock.advance(math.ceil(timeout * 1000 - 1e-6))
        return ready


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """`asyncio.Runner(loop_factory=lambda: VirtualClockLoop(clock))` runs a test on it."""

    def __init__(self, clock: VirtualClock) -> None:
        self._virtual_clock = clock
        super().__init__(_Selector(clock))

    def time(self) -> float:
        return self._virtual_clock.monotonic_ms() / 1000

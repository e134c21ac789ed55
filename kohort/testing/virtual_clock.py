"""A clock that tests and simulations advance, and an event loop that advances such a clock."""

import asyncio
import math
import selectors


class VirtualClock:
    """A :class:`~kohort.broker.runtime.clock.Clock` that only `advance` and `jump_wall` change."""

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, *, monotonic_ms: int = 1_000_000, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def monotonic_s(self) -> float:
        return self.monotonic_ms() / 1_000

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


class _Selector(selectors.DefaultSelector):
    """Polls the sockets without waiting, and advances the clock instead."""

    def __init__(self, clock: VirtualClock, busy_iterations_per_ms: int | None) -> None:
        super().__init__()
        self._clock = clock
        self._busy_iterations_per_ms = busy_iterations_per_ms
        self._busy_iterations = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            # No timer is set: only a socket or another thread can wake the loop.
            return super().select(None)
        # A timer that is due within a nanosecond is due now: the difference is a rounding error.
        wait_ms = math.ceil(timeout * 1000 - 1e-6) if timeout > 0 else 0
        ready = super().select(0)
        if wait_ms and not ready:
            self._busy_iterations = 0
            self._clock.advance(wait_ms)
        elif self._busy_iterations_per_ms is not None:
            self._busy_iterations += 1
            if self._busy_iterations >= self._busy_iterations_per_ms:
                self._busy_iterations = 0
                self._clock.advance(1)
        return ready


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """A loop on virtual time: waiting for a timer advances the clock instead of taking time.

    Sockets work, and are polled before the clock advances. Time does not pass while anything is
    ready. `asyncio.Runner(loop_factory=lambda: VirtualClockLoop(clock))` runs a test on it.
    """

    def __init__(self, clock: VirtualClock, *, busy_iterations_per_ms: int | None = None) -> None:
        """
        Args:
            busy_iterations_per_ms: advance the clock by a millisecond after this many iterations
                without a wait; None to advance it only by waits. For code that polls until a time
                has passed, and would poll forever if polls took no time.
        """
        self._virtual_clock = clock
        super().__init__(_Selector(clock, busy_iterations_per_ms))

    def time(self) -> float:
        return self._virtual_clock.monotonic_ms() / 1000

"""Runs the purgatory on an event loop: one timer for all deadlines, and work in small slices.

Guarantees: an event loop iteration works for at most one slice, or one batch of entries, before the
loop handles its sockets again. No deadline expires before every socket has been read once more, so
that after a pause of the process (a suspended laptop, a long stall) heartbeats in the socket
buffers count before sessions expire.
"""

import asyncio
from collections.abc import Callable
from itertools import chain, repeat

from kohort.broker.core.purgatory import ENTRIES_PER_TURN, Purgatory
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice

SLICE_MS = 5
"""Budget of a time slice: longer than for other work, because expired operations are overdue."""

_ENTRIES_PER_STEP = 10
"""Purgatory entries processed between two checks of the clock."""

_HOPS_BEFORE_EXPIRY = 3
"""Loop iterations between the timer and the expiry.

The first iteration may end before the loop polls its sockets. In the second, data of the sockets is
passed to the protocols. In the third, tasks that requests have started begin to run."""


class PurgatoryShell:
    """Drives one purgatory. Create it inside the running loop."""

    def __init__(self, purgatory: Purgatory, clock: Clock) -> None:
        self._purgatory = purgatory
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        """When `_timer` fires; only valid while `_timer` is set."""
        self._drain_handle: asyncio.Handle | None = None
        self._expiry_handle: asyncio.Handle | None = None
        self._is_closed = False
        # Fewer steps than usual: completed operations cause responses after the slice, so the
        # slice does not measure their cost.
        self._time_slice = Slice(clock, SLICE_MS, ENTRIES_PER_TURN // _ENTRIES_PER_STEP)
        purgatory.attach(self)

    def wake_soon(self) -> None:
        if self._drain_handle is None and not self._is_closed:
            self._drain_handle = self._loop.call_soon(self._drain)

    def wake_at(self, deadline_ms: int) -> None:
        if self._is_closed or self._expiry_handle is not None:
            return  # The expiry in progress re-arms the timer.
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)
        self._timer_ms = deadline_ms

    def close(self) -> None:
        """Complete all operations, including those that completions add, and stop."""
        if self._is_closed:
            return
        self._is_closed = True
        for handle in (self._timer, self._drain_handle, self._expiry_handle):
            if handle is not None:
                handle.cancel()
        self._timer = self._drain_handle = self._expiry_handle = None
        self._purgatory.shutdown()
        while self._purgatory.has_work:
            self._purgatory.drain()

    def _on_timer(self) -> None:
        self._timer = None
        self._hop(_HOPS_BEFORE_EXPIRY)

    def _hop(self, hops_left: int) -> None:
        if hops_left:
            self._expiry_handle = self._loop.call_soon(self._hop, hops_left - 1)
        else:
            self._expire()

    def _expire(self) -> None:
        """Expire the operations that were due when the iteration began, and schedule the rest.

        One entry may end a join phase with thousands of members, so the clock is first checked
        after one entry, then after two, four and eight more.
        """
        purgatory = self._purgatory
        now_ms = self._clock.monotonic_ms()

        def is_due() -> bool:
            next_ms = purgatory.next_deadline_ms
            return next_ms is not None and next_ms <= now_ms

        try:
            if not is_due():
                # The timer's entry has been cancelled. Until `expire` is called, the purgatory
                # relies on that timer, and announces only earlier deadlines.
                purgatory.expire(now_ms, 0)
            sizes = chain((1, 2, 4, 8), repeat(_ENTRIES_PER_STEP))
            self._work(is_due, lambda: purgatory.expire(now_ms, next(sizes)))
        finally:
            # Schedule the next expiry even if an operation raised an error.
            if is_due():
                self._expiry_handle = self._loop.call_soon(self._expire)
            else:
                self._expiry_handle = None
                next_ms = purgatory.next_deadline_ms
                if next_ms is not None:
                    self.wake_at(next_ms)

    def _drain(self) -> None:
        purgatory = self._purgatory
        try:
            self._work(lambda: purgatory.has_work, lambda: purgatory.drain(_ENTRIES_PER_STEP))
        finally:
            self._drain_handle = None
            if purgatory.has_work:
                self.wake_soon()

    def _work(self, is_left: Callable[[], bool], step: Callable[[], object]) -> None:
        """Repeat `step` while `is_left()`, at most until the time slice is over."""
        self._time_slice.begin()
        while is_left():
            step()
            if self._time_slice.is_over():
                return

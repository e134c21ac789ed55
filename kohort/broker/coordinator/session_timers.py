"""Sets the session timers of groups in slices, over several iterations of the event loop.

All members' sessions restart when a generation begins or a group is loaded: thousands of timers to
be set, and after a start those of many groups. None of them expires for seconds, so that may take a
few iterations.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from kohort.broker.core.keyed_timers import KeyedTimers
from kohort.broker.runtime.slices import RoundRobin, Slice
from kohort.groups.effects import TimerKey
from kohort.groups.steps import FEW


class SessionTimers:
    """Queues changes to the timers in the purgatory."""

    __slots__ = ("_is_queued", "_pending", "_queue", "_timers")

    def __init__(self, timers: KeyedTimers[TimerKey], queue: RoundRobin) -> None:
        """`queue` is shared by all groups."""
        self._timers = timers
        self._queue = queue
        self._pending: dict[TimerKey, int] = {}
        self._is_queued = False

    def schedule(self, key: TimerKey, deadline_ms: int) -> None:
        """Set the timer of a key, like `KeyedTimers.schedule`."""
        if self._pending:
            self._pending.pop(key, None)
        self._timers.schedule(key, deadline_ms)

    def schedule_soon(self, deadlines: Mapping[TimerKey, int]) -> None:
        """Set many timers over the next iterations; until then they keep their present
        deadlines.
        """
        if not self._pending and len(deadlines) <= FEW:
            for key, deadline_ms in deadlines.items():
                self._timers.schedule(key, deadline_ms)
            return
        self._pending.update(deadlines)
        if not self._is_queued:
            self._is_queued = True
            self._queue.add(self.run_slice)

    def cancel(self, key: TimerKey) -> None:
        """Cancel the timer of a key, like `KeyedTimers.cancel`."""
        if self._pending:
            self._pending.pop(key, None)
        self._timers.cancel(key)

    def cancel_all(self) -> None:
        """Cancel all timers, for good."""
        self._pending = {}
        self._timers.cancel_all()

    def run_slice(self, piece: Slice) -> bool:
        """Set a slice of the timers; called by the queue. Returns whether some are left."""
        pending = self._pending
        while pending:
            for key in list(islice(pending, FEW)):
                self._timers.schedule(key, pending.pop(key))
            if piece.is_over():
                break
        if not pending:
            # A new dict, because an emptied one keeps the table of its largest size.
            self._pending = {}
        self._is_queued = bool(self._pending)
        return self._is_queued

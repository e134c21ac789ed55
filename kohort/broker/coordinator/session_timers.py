"""The deadlines of groups' sessions, a slice in an iteration of the loop.

The sessions of all members start again when a generation begins or is loaded: thousands of timers
to be moved, and of many groups at once after a start. None of them comes for seconds, so that may
take a few iterations.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from kohort.broker.core.group.effects import TimerKey
from kohort.broker.core.keyed_timers import KeyedTimers
from kohort.broker.core.steps import FEW
from kohort.broker.runtime.slices import RoundRobin, Slice


class SessionTimers:
    """In front of the timers of the purgatory."""

    __slots__ = ("_is_turn_coming", "_pending", "_queue", "_timers")

    def __init__(self, timers: KeyedTimers[TimerKey], queue: RoundRobin) -> None:
        """`queue` is that of all groups."""
        self._timers = timers
        self._queue = queue
        self._pending: dict[TimerKey, int] = {}
        self._is_turn_coming = False

    def schedule(self, key: TimerKey, deadline_ms: int) -> None:
        """Set the timer of a key, like `KeyedTimers.schedule`."""
        if self._pending:
            self._pending.pop(key, None)
        self._timers.schedule(key, deadline_ms)

    def schedule_soon(self, deadlines: Mapping[TimerKey, int]) -> None:
        """The same for many, within the next turns; until then they keep the deadlines they had."""
        if not self._pending and len(deadlines) <= FEW:
            for key, deadline_ms in deadlines.items():
                self._timers.schedule(key, deadline_ms)
            return
        self._pending.update(deadlines)
        if not self._is_turn_coming:
            self._is_turn_coming = True
            self._queue.add(self.take_turn)

    def cancel(self, key: TimerKey) -> None:
        """Cancel the timer of a key, like `KeyedTimers.cancel`."""
        if self._pending:
            self._pending.pop(key, None)
        self._timers.cancel(key)

    def cancel_all(self) -> None:
        """The owner goes away."""
        self._pending = {}
        self._timers.cancel_all()

    def take_turn(self, piece: Slice) -> bool:
        """Called by the queue; True if there is more for another turn."""
        pending = self._pending
        while pending:
            for key in list(islice(pending, FEW)):
                self._timers.schedule(key, pending.pop(key))
            if piece.is_over():
                break
        if not pending:
            # A new one, because an emptied dict keeps the table of its largest size.
            self._pending = {}
        self._is_turn_coming = bool(self._pending)
        return self._is_turn_coming

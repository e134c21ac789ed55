"""The timers of one group: for the sessions of its members, and for its phases.

All sessions restart when a generation begins or a group is loaded, so thousands of timers are set,
at startup those of many groups. No session ends for seconds, so the timers are set in slices over
several event loop iterations; a timer that is not yet set keeps its old deadline.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from kohort.broker.core.timing_wheel import KeyedTimers
from kohort.broker.runtime.slices import Slice
from kohort.groups.effects import TimerKey
from kohort.groups.steps import FEW

if TYPE_CHECKING:
    from kohort.broker.coordinator.host import GroupHost


class GroupTimers:
    """Timers in the purgatory. The set for sessions and the set for phases are created when first
    needed, because most groups have no members at any given time.
    """

    __slots__ = ("_host", "_is_queued", "_on_due", "_pending", "_phases", "_sessions")

    def __init__(self, host: "GroupHost", on_due: Callable[[list[TimerKey], int], None]) -> None:
        """`on_due` is called with the keys of the timers that have expired, and the time."""
        self._host = host
        self._on_due = on_due
        self._sessions: KeyedTimers[TimerKey] | None = None
        self._phases: KeyedTimers[TimerKey] | None = None
        self._pending: dict[TimerKey, int] = {}
        """Deadlines of the sessions whose timers are still to be set."""
        self._is_queued = False

    def schedule(self, key: TimerKey, deadline_ms: int) -> None:
        if self._pending:
            self._pending.pop(key, None)
        self._of(key).schedule(key, deadline_ms)

    def schedule_soon(self, deadlines: Mapping[TimerKey, int]) -> None:
        """Set many session timers over the next iterations of the event loop."""
        if not self._pending and len(deadlines) <= FEW:
            for key, deadline_ms in deadlines.items():
                self._of(key).schedule(key, deadline_ms)
            return
        self._pending.update(deadlines)
        if not self._is_queued:
            self._is_queued = True
            self._host.session_slices.add(self.run_slice)

    def cancel(self, key: TimerKey) -> None:
        if self._pending:
            self._pending.pop(key, None)
        self._of(key).cancel(key)

    def cancel_all(self) -> None:
        """Cancel all timers, for good."""
        self._pending = {}
        for timers in (self._sessions, self._phases):
            if timers is not None:
                timers.cancel_all()

    def run_slice(self, time_slice: Slice) -> bool:
        """Set session timers until the slice is over; called by the host's round robin over all
        groups. Return whether timers are left.
        """
        pending = self._pending
        while pending:
            for key in list(islice(pending, FEW)):
                self._of(key).schedule(key, pending.pop(key))
            if time_slice.is_over():
                break
        if not pending:
            # A new dict, because an emptied one keeps the table of its largest size.
            self._pending = {}
        self._is_queued = bool(self._pending)
        return self._is_queued

    def _of(self, key: TimerKey) -> KeyedTimers[TimerKey]:
        if key.member_id:
            if self._sessions is None:
                self._sessions = self._host.new_timers(self._on_due, "Heartbeat")
            return self._sessions
        if self._phases is None:
            self._phases = self._host.new_timers(self._on_due, "Rebalance")
        return self._phases

"""All timers of one group."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kohort.broker.coordinator.command import ActorHost
from kohort.broker.coordinator.session_timers import SessionTimers
from kohort.broker.core.keyed_timers import KeyedTimers
from kohort.groups.effects import TimerKey


class GroupTimers:
    """Timers of members, for their sessions, and timers of the group, for its phases; each set is
    created when first needed, because most groups have no members at any given time.
    """

    __slots__ = ("_host", "_on_due", "_phases", "_sessions")

    def __init__(self, host: ActorHost, on_due: Callable[[list[TimerKey], int], None]) -> None:
        """`on_due` is called with the keys of the timers that have expired, and the time."""
        self._host = host
        self._on_due = on_due
        self._sessions: SessionTimers | None = None
        self._phases: KeyedTimers[TimerKey] | None = None

    def schedule(self, key: TimerKey, deadline_ms: int) -> None:
        """Set the timer of a key."""
        self._of(key).schedule(key, deadline_ms)

    def schedule_soon(self, deadlines: Mapping[TimerKey, int]) -> None:
        """Set many session timers, over the next iterations of the event loop."""
        self._of_sessions().schedule_soon(deadlines)

    def cancel(self, key: TimerKey) -> None:
        """Cancel the timer of a key, if there is one."""
        self._of(key).cancel(key)

    def cancel_all(self) -> None:
        """Cancel all timers, for good."""
        for timers in (self._sessions, self._phases):
            if timers is not None:
                timers.cancel_all()

    def _of(self, key: TimerKey) -> SessionTimers | KeyedTimers[TimerKey]:
        if key.member_id:
            return self._of_sessions()
        if self._phases is None:
            self._phases = self._host.new_timers(self._on_due, "Rebalance")
        return self._phases

    def _of_sessions(self) -> SessionTimers:
        if self._sessions is None:
            timers = self._host.new_timers(self._on_due, "Heartbeat")
            self._sessions = SessionTimers(timers, self._host.session_slices)
        return self._sessions

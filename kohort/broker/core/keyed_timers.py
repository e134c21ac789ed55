"""Timers of one owner, under the owner's own keys: the sessions and rebalance timeouts of one
group.

Scheduling a key replaces its deadline. Keys that expire in one event loop iteration are passed on
in one call, so that a thousand members that fail together cause one rebalance. Keys that were
rescheduled or cancelled in the same iteration are omitted.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from kohort.broker.core.timing_wheel import TimerEntry

K = TypeVar("K", bound=Hashable)


class TimerHost(Protocol):
    """The part of the purgatory that keyed timers use."""

    def schedule_entry(self, entry: TimerEntry, deadline_ms: int) -> None: ...

    def cancel_entry(self, entry: TimerEntry) -> bool: ...

    def count_timers(self, kind: str, change: int) -> None: ...


class ExpirySink(Protocol):
    """Receives its own expired entries."""

    def fire(self, entries: Sequence[TimerEntry], now_ms: int) -> None: ...


class KeyedEntry(TimerEntry):
    __slots__ = ("key", "sink")

    def __init__(self, key: Hashable, sink: ExpirySink) -> None:
        super().__init__()
        self.key = key
        self.sink = sink


class KeyedTimers(Generic[K]):
    __slots__ = ("_entries", "_host", "_kind", "_on_expired")

    def __init__(
        self, host: TimerHost, on_expired: Callable[[list[K], int], None], kind: str
    ) -> None:
        """`on_expired` is called with the keys, earliest deadline first, and the current time."""
        self._host = host
        self._on_expired = on_expired
        self._kind = kind
        self._entries: dict[K, KeyedEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def schedule(self, key: K, deadline_ms: int) -> None:
        """Make `key` expire at `deadline_ms` (monotonic) instead of any earlier deadline."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = KeyedEntry(key, self)
            self._host.count_timers(self._kind, 1)
        self._host.schedule_entry(entry, deadline_ms)

    def cancel(self, key: K) -> bool:
        """Cancel the timer of `key`; False if there is none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        self._host.cancel_entry(entry)
        self._host.count_timers(self._kind, -1)
        return True

    def cancel_all(self) -> None:
        """Cancel all timers, because the owner is removed."""
        for entry in self._entries.values():
            self._host.cancel_entry(entry)
        self._host.count_timers(self._kind, -len(self._entries))
        self._entries = {}

    def deadline_ms(self, key: K) -> int | None:
        """Return when `key` expires, None if it is not scheduled."""
        entry = self._entries.get(key)
        return None if entry is None else entry.deadline_ms

    def fire(self, entries: Sequence[TimerEntry], now_ms: int) -> None:
        """Called by the purgatory with entries that were removed from the wheel."""
        keys: list[K] = []
        for entry in entries:
            assert isinstance(entry, KeyedEntry)
            key: K = entry.key  # type: ignore[assignment]  # Only this object puts keys into its entries.
            if self._entries.get(key) is entry and not entry.is_scheduled:
                del self._entries[key]
                keys.append(key)
        self._host.count_timers(self._kind, -len(keys))
        if keys:
            self._on_expired(keys, now_ms)

"""A timing wheel for hundreds of thousands of deadlines, most of which are moved or cancelled
before they expire.

Guarantees: schedule, reschedule and cancel are O(1) amortised; memory is proportional to the live
entries; nothing fires early; entries fire in order of deadline, and in the order of their last
scheduling if deadlines are equal.

Rescheduling to a later time, as every heartbeat does, only writes the new deadline into the entry.
The entry stays in its earlier slot and is moved when that slot comes up, at most once per timeout.
Only an earlier deadline moves it immediately.

Prior art: Kafka's hierarchical wheel (20 buckets per level, the buckets in a delay queue) and
Varghese and Lauck's hashed wheels. This one is flat: a dict with one slot per millisecond that has
an entry, and a heap of the slots' times instead of a walk over empty ticks. In CPython a dict
access and a heap of small ints are cheaper than computing levels, and no entry is ever moved from
level to level, so no event loop iteration has to move a whole level. `loop.call_later` per timer
was measured too: cancelled timers stay in its heap until a rebuild that stalls the loop for over
100 ms at 100,000 timers.

`KeyedTimers` are timers of one owner, under the owner's own keys: the sessions and rebalance
timeouts of one group.
"""

from collections.abc import Callable, Hashable, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from kohort.broker.core.purgatory import Purgatory

_STALE_SLOT_TIMES_ALLOWED = 64
"""Stale slot times allowed even in an empty wheel, so that not every cancel rebuilds the heap."""

_scheduling_order = attrgetter("order")


class TimerEntry:
    """Base class of entries in a wheel. All three attributes are set by the wheel."""

    __slots__ = ("armed_ms", "deadline_ms", "order")

    def __init__(self) -> None:
        self.deadline_ms = 0
        """When to fire, in monotonic milliseconds. Meaningful while scheduled."""
        self.armed_ms: int | None = None
        """The slot that contains the entry, at or before its deadline; None if not scheduled."""
        self.order = 0
        """Sequence number of its last scheduling."""


E = TypeVar("E", bound=TimerEntry)


class TimingWheel(Generic[E]):
    __slots__ = ("_count", "_scheduled_so_far", "_slot_times", "_slots", "_unordered")

    def __init__(self) -> None:
        self._slots: dict[int, dict[E, None]] = {}
        self._slot_times: list[int] = []
        """A heap of the times of all slots, and possibly of slots emptied by cancels."""
        self._unordered: set[int] = set()
        """Slots whose entries are not in scheduling order."""
        self._count = 0
        self._scheduled_so_far = 0

    def __len__(self) -> int:
        return self._count

    @property
    def next_deadline_ms(self) -> int | None:
        """When to call `take_due` next; None if nothing is scheduled. Never later than the earliest
        deadline; may be earlier.
        """
        slot_times = self._slot_times
        while slot_times:
            if slot_times[0] in self._slots:
                return slot_times[0]
            heappop(slot_times)
        return None

    def schedule(self, entry: E, deadline_ms: int) -> None:
        """Make `entry` fire at `deadline_ms`, replacing its deadline. A deadline in the past fires
        at the next call of `take_due`.
        """
        self._scheduled_so_far += 1
        entry.order = self._scheduled_so_far
        entry.deadline_ms = deadline_ms
        armed_ms = entry.armed_ms
        if armed_ms is None:
            self._count += 1
            self._put(entry, deadline_ms)
        elif deadline_ms < armed_ms:
            self._take_out(entry, armed_ms)
            self._put(entry, deadline_ms)
        elif deadline_ms == armed_ms and len(self._slots[armed_ms]) > 1:
            # The entry is now the last in scheduling order, but keeps its place in the slot: the
            # slot has to be sorted.
            self._unordered.add(armed_ms)

    def cancel(self, entry: E) -> bool:
        """Remove `entry`. False if it was not scheduled."""
        armed_ms = entry.armed_ms
        if armed_ms is None:
            return False
        entry.armed_ms = None
        self._count -= 1
        self._take_out(entry, armed_ms)
        return True

    def take_due(self, now_ms: int, entries_max: int) -> list[E]:
        """Remove and return entries due at `now_ms`, earliest first.

        Examines at most `entries_max` entries, including those that turn out to have a later
        deadline; more are due if `next_deadline_ms` is still not above `now_ms` afterwards.
        """
        due: list[E] = []
        looked_at = 0
        while looked_at < entries_max:
            slot_ms = self.next_deadline_ms
            if slot_ms is None or slot_ms > now_ms:
                break
            looked_at += self._take_from_slot(slot_ms, entries_max - looked_at, due)
        return due

    def clear(self) -> list[E]:
        """Remove all entries and return them, in no particular order."""
        entries = [entry for slot in self._slots.values() for entry in slot]
        for entry in entries:
            entry.armed_ms = None
        self._slots = {}
        self._slot_times = []
        self._unordered = set()
        self._count = 0
        return entries

    def _take_from_slot(self, slot_ms: int, entries_max: int, due: list[E]) -> int:
        """Move the first entries of a slot to `due`, or to a later slot if their deadline has
        changed.
        """
        slot = self._slots[slot_ms]
        if slot_ms in self._unordered:
            self._unordered.remove(slot_ms)
            slot = self._slots[slot_ms] = dict.fromkeys(sorted(slot, key=_scheduling_order))
        taken = list(islice(slot, entries_max))
        if len(taken) == len(slot):
            del self._slots[slot_ms]
        else:
            for entry in taken:
                del slot[entry]
        for entry in taken:
            if entry.deadline_ms <= slot_ms:
                entry.armed_ms = None
                self._count -= 1
                due.append(entry)
            else:
                self._put(entry, entry.deadline_ms)
                self._unordered.add(entry.deadline_ms)
        return len(taken)

    def _put(self, entry: E, slot_ms: int) -> None:
        entry.armed_ms = slot_ms
        slot = self._slots.get(slot_ms)
        if slot is None:
            self._slots[slot_ms] = {entry: None}
            heappush(self._slot_times, slot_ms)
        else:
            slot[entry] = None

    def _take_out(self, entry: E, slot_ms: int) -> None:
        slot = self._slots[slot_ms]
        del slot[entry]
        if slot:
            return
        del self._slots[slot_ms]
        self._unordered.discard(slot_ms)
        if len(self._slot_times) > 2 * len(self._slots) + _STALE_SLOT_TIMES_ALLOWED:
            # A new dict, because a dict that has shrunk keeps the table of its largest size.
            self._slots = dict(self._slots)
            self._slot_times = list(self._slots)
            heapify(self._slot_times)


K = TypeVar("K", bound=Hashable)


class KeyedEntry(TimerEntry):
    __slots__ = ("key", "sink")

    def __init__(self, key: Hashable, sink: "KeyedTimers[Any]") -> None:
        super().__init__()
        self.key = key
        self.sink = sink


class KeyedTimers(Generic[K]):
    __slots__ = ("_entries", "_host", "_kind", "_on_expired")

    def __init__(
        self, host: "Purgatory", on_expired: Callable[[list[K], int], None], kind: str
    ) -> None:
        """`on_expired` is called with the keys, earliest deadline first, and the current time."""
        self._host = host
        self._on_expired = on_expired
        self._kind = kind
        self._entries: dict[K, KeyedEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def schedule(self, key: K, deadline_ms: int) -> None:
        """Make `key` expire at `deadline_ms` (monotonic); replaces a previous deadline."""
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
        """Cancel all timers; called when the owner is removed."""
        for entry in self._entries.values():
            self._host.cancel_entry(entry)
        self._host.count_timers(self._kind, -len(self._entries))
        self._entries = {}

    def deadline_ms(self, key: K) -> int | None:
        """Return when `key` expires, None if it is not scheduled."""
        entry = self._entries.get(key)
        return None if entry is None else entry.deadline_ms

    def fire(self, entries: Sequence[TimerEntry], now_ms: int) -> None:
        """Report keys as expired; the purgatory passes the entries that it took from the wheel."""
        keys: list[K] = []
        for entry in entries:
            assert isinstance(entry, KeyedEntry)
            key: K = entry.key  # type: ignore[assignment]  # Only this object puts keys into its entries.
            if self._entries.get(key) is entry and entry.armed_ms is None:
                del self._entries[key]
                keys.append(key)
        self._host.count_timers(self._kind, -len(keys))
        if keys:
            self._on_expired(keys, now_ms)

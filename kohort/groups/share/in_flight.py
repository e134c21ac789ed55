"""The offsets in flight of a share-partition: their states, and counts of offsets by state."""

from collections.abc import Iterable, Sequence
from typing import Final

from kohort.groups.share.segments import Lock, Range, Segment, Segments
from kohort.groups.share.states import RecordState, StateBatch, joined

AVAILABLE: Final = RecordState.AVAILABLE
ACQUIRED: Final = RecordState.ACQUIRED
ARCHIVING: Final = RecordState.ARCHIVING
SKIPPED: Final = RecordState.SKIPPED


class InFlight:
    """The offsets from `start` to `end` as segments; each change updates the counts."""

    __slots__ = (
        "_available_from",
        "_earliest_ms",
        "archiving",
        "available",
        "complete",
        "end",
        "locks",
        "segments",
        "start",
    )

    def __init__(self, start: int, batches: Iterable[StateBatch] = ()) -> None:
        self.segments = Segments()
        self.start = start
        self.end = start - 1
        self.available = 0
        """Number of offsets that can be acquired: Available, and not being written."""
        self.archiving = 0
        self.complete = 0
        """Number of finished offsets at or above the start offset."""
        self.locks: dict[Lock, None] = {}
        """Locks that hold offsets."""
        self._available_from = start
        """No offset below this one can be acquired."""
        self._earliest_ms = 0
        """No lock ends before this time."""
        restored = self._restored(batches)
        if restored:
            self.append(restored)
        self.advance()

    def _restored(self, batches: Iterable[StateBatch]) -> list[Segment]:
        restored: list[Segment] = []
        next_offset = self.start
        for batch_first, last, state, count in batches:
            first = max(batch_first, next_offset)
            if last < first:
                continue
            if first > next_offset:
                restored.append(Segment(next_offset, first - 1, None, AVAILABLE, 0))
            origin = Range(first, last, count, is_split=False)
            restored.append(Segment(first, last, origin, state, count))
            next_offset = last + 1
        return restored

    def append(self, segments: list[Segment]) -> None:
        """Add segments after the end."""
        self.insert(len(self.segments.items), segments)
        self.end = segments[-1].last
        self.start = self.segments.items[0].first

    def insert(self, index: int, segments: list[Segment]) -> None:
        """Insert segments before the segment at `index`."""
        self.segments.insert(index, segments)
        for segment in segments:
            size = segment.last - segment.first + 1
            self._count(segment.state, segment.lock, segment.write, segment.first, size)

    def shrink_hole(self, index: int, first: int) -> None:
        """Remove the offsets below `first` from a hole (see `Segment.origin`), or the whole hole if
        it ends below `first`.
        """
        hole = self.segments.items[index]
        self.available -= first - hole.first
        if first > hole.last:
            self.segments.remove(index, index + 1)
        else:
            self.segments.raise_first(index, first)

    def change(
        self,
        index: int,
        first: int,
        last: int,
        state: RecordState,
        count: int,
        lock: Lock | None = None,
        write: object = None,
    ) -> int:
        """Set the state of the offsets `first` to `last`, in the segment at `index`; return the
        index of the segment that contains `last` afterwards.
        """
        segment = self.segments.items[index]
        size = last - first + 1
        self._discount(segment, size)
        index = self.segments.change(index, first, last, state, count, lock, write)
        self._count(state, lock, write, first, size)
        return index

    def end_lock(
        self, index: int, parts: Sequence[tuple[int, int, RecordState]], write: object
    ) -> None:
        """Set the states of adjacent offset ranges in the Acquired segment at `index`. `parts` has
        each range's first and last offset, and the state that `write` makes durable.
        """
        segment = self.segments.items[index]
        origin, count, lock = segment.origin, segment.count, segment.lock
        first, last = parts[0][0], parts[-1][1]
        self._discount(segment, last - first + 1)
        pieces: list[Segment] = []
        if segment.first < first:
            pieces.append(Segment(segment.first, first - 1, origin, ACQUIRED, count, lock))
        before: Segment | None = None
        for begin, end, state in parts:
            self._count(state, None, write, begin, end - begin + 1)
            if before is not None and before.state is state:
                before.last = end
            else:
                before = Segment(begin, end, origin, state, count, None, write)
                pieces.append(before)
        if last < segment.last:
            pieces.append(Segment(last + 1, segment.last, origin, ACQUIRED, count, lock))
        self.segments.splice(index, index + 1, pieces)

    def change_whole(self, segment: Segment, state: RecordState, write: object) -> None:
        """End a segment's lock and set its state; do not join the segment with its neighbours."""
        size = segment.last - segment.first + 1
        self._discount(segment, size)
        segment.state = state
        segment.lock = None
        segment.write = write
        self._count(state, None, write, segment.first, size)

    def written(self, first: int, last: int, write: object) -> None:
        """Record that `write`, which set states of the offsets `first` to `last`, is durable."""
        segments = self.segments
        items = segments.items
        low = max(0, segments.index(first))
        high = low
        while high < len(items) and (segment := items[high]).first <= last:
            high += 1
            if segment.write is write:
                segment.write = None
                if segment.state is AVAILABLE:
                    self.available += segment.last - segment.first + 1
                    self._available_from = min(self._available_from, segment.first)
        segments.join(max(0, low - 1), min(high + 1, len(items)))

    def undo(
        self, first: int, last: int, write: object, state: RecordState, lock: Lock | None
    ) -> None:
        """Undo a write that changed these offsets: set `state` and `lock`. The log start may have
        passed some of the offsets in the meantime.
        """
        segments = self.segments
        items = segments.items
        begin = end = max(0, segments.index(first))
        pieces: list[Segment] = []
        while end < len(items) and (segment := items[end]).first <= last:
            end += 1
            if segment.write is not write or segment.last < first:
                pieces.append(segment)
                continue
            origin, count = segment.origin, segment.count
            low = max(first, segment.first)
            high = min(last, segment.last)
            self._discount(segment, high - low + 1)
            if segment.first < low:
                pieces.append(
                    Segment(segment.first, low - 1, origin, segment.state, count, None, write)
                )
            pieces.append(Segment(low, high, origin, state, count, lock))
            if high < segment.last:
                pieces.append(
                    Segment(high + 1, segment.last, origin, segment.state, count, None, write)
                )
            self._count(state, lock, None, low, high - low + 1)
        segments.splice(begin, end, pieces)

    def _discount(self, segment: Segment, size: int) -> None:
        """Subtract `size` offsets of a segment from the counts."""
        state = segment.state
        if state is ACQUIRED:
            lock = segment.lock
            assert lock is not None
            lock.held -= size
            if not lock.held:
                del self.locks[lock]
        elif state is not AVAILABLE:
            if state is ARCHIVING:
                self.archiving -= size
            else:
                self.complete -= size
        elif segment.write is None:
            self.available -= size

    def _count(
        self, state: RecordState, lock: Lock | None, write: object, first: int, size: int
    ) -> None:
        """Add to the counts the `size` offsets that begin at `first`."""
        if state is ACQUIRED:
            assert lock is not None
            if not lock.held:
                if not self.locks or lock.deadline_ms < self._earliest_ms:
                    self._earliest_ms = lock.deadline_ms
                self.locks[lock] = None
            lock.held += size
        elif state is not AVAILABLE:
            if state is ARCHIVING:
                self.archiving += size
            else:
                self.complete += size
        elif write is None:
            self.available += size
            self._available_from = min(self._available_from, first)

    @property
    def size(self) -> int:
        """The length of the window, including finished offsets."""
        return self.end - self.start + 1

    @property
    def position(self) -> int:
        """The lowest offset that can be acquired; if there is none, the end offset + 1."""
        if not self.available:
            return self.end + 1
        segments = self.segments
        index = max(0, segments.index(self._available_from))
        while (
            segment := segments.items[index]
        ).state is not AVAILABLE or segment.write is not None:
            index += 1
        self._available_from = max(self._available_from, segment.first)
        return segment.first

    @property
    def next_deadline_ms(self) -> int | None:
        return self._earliest_ms if self.locks else None

    def recompute_deadline(self) -> None:
        """Recompute the earliest deadline of the remaining locks."""
        self._earliest_ms = min((lock.deadline_ms for lock in self.locks), default=0)

    def advance(self) -> None:
        """Advance the start offset past finished offsets whose state is durable."""
        items = self.segments.items
        finished = 0
        for segment in items:
            if segment.state in (AVAILABLE, ACQUIRED, ARCHIVING) or segment.write is not None:
                break
            finished += 1
            self.complete -= segment.last - segment.first + 1
        if finished:
            self.segments.remove(0, finished)
            self.start = items[0].first if items else self.end + 1

    def drop_below(self, offset: int) -> None:
        """Remove the offsets below `offset`, whatever their state."""
        items = self.segments.items
        dropped = 0
        for segment in items:
            if segment.first >= offset:
                break
            if segment.last >= offset:
                self._discount(segment, offset - segment.first)
                self.segments.raise_first(dropped, offset)
                break
            self._discount(segment, segment.last - segment.first + 1)
            dropped += 1
        self.segments.remove(0, dropped)
        self.end = max(self.end, offset - 1)
        self.start = items[0].first if items else self.end + 1
        self.advance()

    def stored_batches(self) -> list[StateBatch]:
        """Return the states for a snapshot, without the delivery of Acquired or Skipped offsets."""
        batches: list[StateBatch] = []
        for segment in self.segments.items:
            state = segment.state
            count = segment.count
            if state is ACQUIRED or state is SKIPPED:
                state = AVAILABLE
                count -= 1
            if state is not AVAILABLE or count > 0:
                batches.append(StateBatch(segment.first, segment.last, state, count))
        return joined(batches)

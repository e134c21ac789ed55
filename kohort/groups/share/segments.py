"""The states of a window's offsets as segments: sorted, disjoint, each as long as possible.

A list of segments and a list of their first offsets, for bisection. Inserting into a list of a few
thousand is a short move of memory, and acknowledgements in offset order insert nothing: they move
the border between two segments. A tree of segments would cost more per step.
"""

from bisect import bisect_right

from kohort.groups.share.states import RecordState


class Range:
    """Offsets that were added to the window together; an InFlightBatch in Kafka."""

    __slots__ = ("first", "highest_count", "is_split", "last")

    def __init__(self, first: int, last: int, highest_count: int, *, is_split: bool) -> None:
        self.first = first
        self.last = last
        self.highest_count = highest_count
        """The highest delivery count of the offsets."""
        self.is_split = is_split
        """Whether a change ever affected only some of the offsets, even if all are equal again."""


class Lock:
    """An acquisition lock of one member, with one deadline for all its offsets."""

    __slots__ = ("deadline_ms", "has_ended", "held", "member_id", "since_ms")

    def __init__(self, member_id: str, since_ms: int, deadline_ms: int) -> None:
        self.member_id = member_id
        self.since_ms = since_ms
        """Monotonic time of the acquisition; for a renewed lock, the time of the earliest
        acquisition that it renews."""
        self.deadline_ms = deadline_ms
        self.held = 0
        """Number of offsets that are Acquired by this lock."""
        self.has_ended = False
        """Whether the member's session ended while its acknowledgement was being written."""


class Segment:
    """Consecutive offsets of one range in the same state."""

    __slots__ = ("count", "first", "last", "lock", "origin", "state", "write")

    def __init__(
        self,
        first: int,
        last: int,
        origin: Range | None,
        state: RecordState,
        count: int,
        lock: Lock | None = None,
        write: object = None,
    ) -> None:
        self.first = first
        self.last = last
        self.origin = origin
        """The range of the offsets. None: a hole in a restored window, never acquired in this
        process."""
        self.state = state
        self.count = count
        """Number of deliveries."""
        self.lock = lock
        """The lock of Acquired offsets; None in other states."""
        self.write = write
        """The write that will make this state durable; None if there is nothing to write."""


class Segments:
    __slots__ = ("firsts", "items")

    def __init__(self) -> None:
        self.items: list[Segment] = []
        self.firsts: list[int] = []

    def index(self, offset: int) -> int:
        """Return the index of the last segment that begins at or before an offset; -1 if there is
        none.
        """
        return bisect_right(self.firsts, offset) - 1

    def insert(self, index: int, segments: list[Segment]) -> None:
        self.items[index:index] = segments
        self.firsts[index:index] = [segment.first for segment in segments]

    def remove(self, low: int, high: int) -> None:
        del self.items[low:high]
        del self.firsts[low:high]

    def splice(self, low: int, high: int, pieces: list[Segment]) -> None:
        """Replace segments [low, high) by `pieces` of the same offsets; join equal neighbours."""
        self.items[low:high] = pieces
        self.firsts[low:high] = [piece.first for piece in pieces]
        self.join(max(0, low - 1), min(low + len(pieces) + 1, len(self.items)))

    def raise_first(self, index: int, first: int) -> None:
        """Cut the beginning of a segment."""
        self.items[index].first = self.firsts[index] = first

    def change(
        self,
        index: int,
        first: int,
        last: int,
        state: RecordState,
        count: int,
        lock: Lock | None,
        write: object,
    ) -> int:
        """Set the state of some of a segment's offsets; return the index of `last`'s segment."""
        items = self.items
        segment = items[index]
        origin = segment.origin
        if first != segment.first:
            head = Segment(
                segment.first,
                first - 1,
                origin,
                segment.state,
                segment.count,
                segment.lock,
                segment.write,
            )
            items.insert(index, head)
            self.firsts.insert(index, segment.first)
            index += 1
            self.raise_first(index, first)
        elif index:
            left = items[index - 1]
            if (
                left.state is state
                and left.write is write
                and left.lock is lock
                and left.count == count
                and left.origin is origin
                and left.last == first - 1
            ):
                left.last = last
                if last != segment.last:
                    self.raise_first(index, last + 1)
                    return index - 1
                del items[index], self.firsts[index]
                return self._joined_with_next(index - 1)
        if last != segment.last:
            items.insert(index, Segment(first, last, origin, state, count, lock, write))
            self.firsts.insert(index, first)
            self.raise_first(index + 1, last + 1)
            return index
        segment.state = state
        segment.count = count
        segment.lock = lock
        segment.write = write
        return self._joined_with_next(index)

    def _joined_with_next(self, index: int) -> int:
        """Join a segment with the next one if they are equal; return the index of the result."""
        if index + 1 < len(self.items):
            segment = self.items[index]
            right = self.items[index + 1]
            if right.state is segment.state and _are_equal(segment, right):
                segment.last = right.last
                del self.items[index + 1], self.firsts[index + 1]
        return index

    def join(self, low: int, high: int) -> None:
        """Join equal neighbours among segments [low, high)."""
        kept: list[Segment] = []
        for segment in self.items[low:high]:
            if kept and kept[-1].state is segment.state and _are_equal(kept[-1], segment):
                kept[-1].last = segment.last
            else:
                kept.append(segment)
        if len(kept) != high - low:
            self.items[low:high] = kept
            self.firsts[low:high] = [segment.first for segment in kept]


def _are_equal(left: Segment, right: Segment) -> bool:
    """Check whether two adjacent segments in the same state may be joined."""
    return (
        left.write is right.write
        and left.lock is right.lock
        and left.count == right.count
        and left.origin is right.origin
        and left.last + 1 == right.first
    )

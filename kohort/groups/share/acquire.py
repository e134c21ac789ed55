"""Acquisition: which records a fetch gets from a share-partition.

Records are acquired in offset order: first those in the window, then new ones. A range (Kafka's
InFlightBatch) has new offsets that were acquired together, and with RECORD_LIMIT also the rest of
their last producer batch. As delivery counts in a range approach their limit, the range is
throttled: fewer of its records are delivered together, at last one by one (KIP-1222).
"""

from bisect import bisect_right
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from kohort.groups.share.in_flight import ACQUIRED, AVAILABLE, SKIPPED, InFlight
from kohort.groups.share.segments import Lock, Range, Segment


class AcquireMode(IntEnum):
    BATCH_OPTIMIZED = 0
    """Whole producer batches until MaxRecords is reached."""
    RECORD_LIMIT = 1
    """At most MaxRecords records."""


class LogBatch(NamedTuple):
    """Header of a record batch in the log, data or control."""

    first_offset: int
    last_offset: int
    """Inclusive."""
    is_aborted: bool = False
    """Whether the batch's transaction was aborted, in a group that reads only committed records."""


class AcquiredRange(NamedTuple):
    first_offset: int
    last_offset: int
    """Inclusive."""
    delivery_count: int


class Acquisition(NamedTuple):
    ranges: Sequence[AcquiredRange]
    """In offset order."""
    record_count: int
    """Number of offsets that count towards MaxRecords: those in `ranges`, and aborted ones."""


NOTHING = Acquisition((), 0)


class Acquirer:
    """Acquires records of a share-partition for one fetch."""

    def __init__(
        self,
        in_flight: InFlight,
        log: Sequence[LogBatch],
        lock: Lock,
        *,
        limit: int,
        record_limit: bool,
        batch_size: int,
    ) -> None:
        self.in_flight = in_flight
        self.log = log
        self.lock = lock
        self.limit = limit
        """The delivery count limit."""
        self.record_limit = record_limit
        self.batch_size = max(1, batch_size)
        self.ranges: list[AcquiredRange] = []
        self.taken = 0

    def run(self, max_records: int, room: int) -> Acquisition:
        """Acquire up to `max_records`; BATCH_OPTIMIZED also completes the last batch. `room` more
        offsets may be locked before the window is full.
        """
        in_flight = self.in_flight
        last = self.log[-1].last_offset
        quota = min(max_records, room)
        if room <= 0:
            quota = max_records
            last = min(last, in_flight.end)
        if quota <= 0:
            return NOTHING
        end = in_flight.end
        position = in_flight.position
        throttled = position <= end and self._from_window(position, last, quota)
        if not throttled and self.taken < quota and end < last:
            first = max(end + 1, self.log[0].first_offset)
            in_flight.append(self._new(first, last, quota - self.taken))
        self._skip_aborted()
        return Acquisition(self.ranges, self.taken)

    def _from_window(self, position: int, last: int, quota: int) -> bool:
        """Acquire offsets in the window; return whether a throttled range ends the acquisition."""
        in_flight = self.in_flight
        items = in_flight.segments.items
        index = in_flight.segments.index(position)
        while index < len(items) and self.taken < quota:
            segment = items[index]
            if segment.first > last:
                break
            if segment.origin is not None:
                index, is_throttled = self._from_range(index, segment.origin, last, quota)
                if is_throttled:
                    return True
            elif segment.state is AVAILABLE:
                until = min(segment.last, last)
                new = self._new(segment.first, until, quota - self.taken)
                in_flight.shrink_hole(index, new[-1].last + 1)
                in_flight.insert(index, new)
                index += len(new)
            else:
                index += 1
        return False

    def _from_range(self, index: int, origin: Range, last: int, quota: int) -> tuple[int, bool]:
        """Acquire Available offsets of a range; return the index of the next range's first segment,
        and whether the range is throttled, which ends the acquisition.
        """
        is_throttled = self._is_throttled(index, origin, last)
        if is_throttled and self.taken:
            return index, True
        range_size = origin.last - origin.first + 1
        most = quota - self.taken if self.record_limit else range_size
        threshold = throttle_threshold(self.limit)
        is_limited = False
        items = self.in_flight.segments.items
        before = self.taken
        result: list[AcquiredRange] = []
        while index < len(items) and (segment := items[index]).origin is origin:
            if segment.state is AVAILABLE and segment.write is None and segment.first <= last:
                first = segment.first
                count = segment.count
                if count >= threshold and not is_limited:
                    is_limited = True
                    # As in Kafka, no limit applies once the range has yielded that many records.
                    left = records_to_take(range_size, count, self.limit) - self.taken + before
                    if left > 0:
                        most = min(most, left)
                size = min(segment.last - first + 1, most, last - first + 1)
                is_last = is_last_delivery(count, self.limit)
                if is_last:
                    size = min(size, 1 - (self.taken - before))
                if size <= 0:
                    break
                until = first + size - 1
                if first != origin.first or until != origin.last:
                    origin.is_split = True
                index = self.in_flight.change(index, first, until, ACQUIRED, count + 1, self.lock)
                origin.highest_count = max(origin.highest_count, count + 1)
                self.taken += size
                most -= size
                _add(result, first, until, count + 1)
                if is_last:
                    break
            index += 1
        self.ranges += result
        return index, is_throttled

    def _is_throttled(self, index: int, origin: Range, last: int) -> bool:
        """Whether the delivery count of an Available offset up to `last` throttles the range."""
        threshold = throttle_threshold(self.limit)
        if origin.highest_count < threshold:
            return False
        items = self.in_flight.segments.items
        while index < len(items) and (segment := items[index]).origin is origin:
            if segment.first > last:
                break
            if segment.count >= threshold and segment.state is AVAILABLE and segment.write is None:
                return True
            index += 1
        return False

    def _new(self, first: int, last: int, most: int) -> list[Segment]:
        """Acquire new offsets; return their segments, which cover whole producer batches."""
        wanted = min(last, first + most - 1)
        if wanted < last:
            index = bisect_right(self.log, wanted, key=_first_offset) - 1
            if self.log[index].last_offset < first:  # The log has nothing up to `wanted`.
                index += 1
            last = min(last, self.log[index].last_offset)
            wanted = min(wanted, last)
        segments: list[Segment] = []
        if self.record_limit:
            origin = Range(first, last, 1, is_split=wanted < last)
            segments.append(Segment(first, wanted, origin, ACQUIRED, 1, self.lock))
            if wanted < last:
                segments.append(Segment(wanted + 1, last, origin, AVAILABLE, 0))
            last = wanted
            self.ranges.append(AcquiredRange(first, last, 1))
        else:
            for begin, end in self._cut(first, last):
                origin = Range(begin, end, 1, is_split=False)
                segments.append(Segment(begin, end, origin, ACQUIRED, 1, self.lock))
                self.ranges.append(AcquiredRange(begin, end, 1))
        self.taken += last - first + 1
        return segments

    def _cut(self, first: int, last: int) -> list[tuple[int, int]]:
        """Cut offsets at producer batches; each range but the last has at least `batch_size`."""
        result: list[tuple[int, int]] = []
        if last - first + 1 > self.batch_size:
            index = max(0, bisect_right(self.log, first, key=_first_offset) - 1)
            while index < len(self.log) and (begin := self.log[index].first_offset) <= last:
                if begin - first >= self.batch_size:
                    result.append((first, begin - 1))
                    first = begin
                index += 1
        result.append((first, last))
        return result

    def _skip_aborted(self) -> None:
        """Archive the acquired records in aborted batches of `log`, including those acquired
        before the group switched to read_committed. This is not stored: after a restart the log
        shows them as aborted again.
        """
        aborted = [batch for batch in self.log if batch.is_aborted]
        for batch in aborted:
            self._skip(batch.first_offset, batch.last_offset)
        if aborted:
            self.ranges = _without(self.ranges, aborted)
            self.in_flight.advance()

    def _skip(self, first: int, last: int) -> None:
        segments = self.in_flight.segments
        index = max(0, segments.index(first))
        while index < len(segments.items) and segments.items[index].first <= last:
            segment = segments.items[index]
            low = max(first, segment.first)
            high = min(last, segment.last)
            if segment.state is ACQUIRED and low <= high:
                assert segment.origin is not None
                segment.origin.is_split = True
                index = self.in_flight.change(index, low, high, SKIPPED, segment.count)
            index += 1


def _first_offset(batch: LogBatch) -> int:
    return batch.first_offset


def _add(ranges: list[AcquiredRange], first: int, last: int, count: int) -> None:
    """Add offsets of a range; join them with the previous ones if delivery counts are equal."""
    if ranges and ranges[-1].last_offset == first - 1 and ranges[-1].delivery_count == count:
        ranges[-1] = ranges[-1]._replace(last_offset=last)
    else:
        ranges.append(AcquiredRange(first, last, count))


def _without(ranges: list[AcquiredRange], removed: list[LogBatch]) -> list[AcquiredRange]:
    """Remove offsets from acquired ranges; both are sorted."""
    result: list[AcquiredRange] = []
    index = 0
    for first, last, count in ranges:
        while index < len(removed) and removed[index].last_offset < first:
            index += 1
        kept_from = first
        following = index
        while following < len(removed) and removed[following].first_offset <= last:
            if kept_from < removed[following].first_offset:
                until = removed[following].first_offset - 1
                result.append(AcquiredRange(kept_from, until, count))
            kept_from = removed[following].last_offset + 1
            following += 1
        if kept_from <= last:
            result.append(AcquiredRange(kept_from, last, count))
    return result


def throttle_threshold(limit: int) -> int:
    """Return the lowest delivery count at which an Available record throttles its range."""
    return max(2, (limit + 1) // 2)


def records_to_take(range_size: int, delivery_count: int, limit: int) -> int:
    """Return the most records that are acquired from a throttled range.

    `range_size` is the size of the range when it was first acquired, `delivery_count` the count of
    its first Available record at or above the threshold. The Available records before that record
    are always acquired, and included in the result.
    """
    return max(1, range_size >> (delivery_count - throttle_threshold(limit) + 1))


def is_last_delivery(delivery_count: int, limit: int) -> bool:
    """Whether an Available record must be delivered alone, because its next delivery is its last.
    As in Kafka, this is not done if the limit is 1 or 2, or if it was lowered and the record has
    already been delivered that many times.
    """
    return limit > 2 and delivery_count == limit - 1

"""Acknowledgements of the records that a member has acquired.

Clients may send huge ranges: these are intersected with the in-flight records, never enumerated.
"""

from bisect import bisect_right
from collections.abc import Sequence
from enum import IntEnum
from itertools import groupby
from typing import Final, NamedTuple

from kohort.groups.share.in_flight import ACQUIRED, AVAILABLE, InFlight
from kohort.groups.share.segments import Lock, Range, Segment
from kohort.groups.share.states import RecordState
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.share_acknowledge import AcknowledgementBatch


class AcknowledgeType(IntEnum):
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


RENEW: Final = AcknowledgeType.RENEW


class AcknowledgementError(NamedTuple):
    code: ErrorCode
    message: str | None = None


def _invalid_state(message: str) -> AcknowledgementError:
    return AcknowledgementError(ErrorCode.INVALID_RECORD_STATE, message)


_FIRST_BEYOND: Final = AcknowledgementError(
    ErrorCode.INVALID_REQUEST,
    "Batch record not found. The first offset in request is past acquired records.",
)
_LAST_BEYOND: Final = AcknowledgementError(
    ErrorCode.INVALID_REQUEST,
    "Batch record not found. The last offset in request is past acquired records.",
)
_NOT_FOUND: Final = _invalid_state(
    "Batch record not found. The request batch offsets are not found in the cache."
)
_BATCH_NOT_ACQUIRED: Final = _invalid_state(
    "The batch cannot be acknowledged. The batch is not in the acquired state."
)
_OFFSET_NOT_ACQUIRED: Final = _invalid_state(
    "The offset cannot be acknowledged. The offset is not acquired."
)
_BATCH_OF_ANOTHER: Final = _invalid_state("Member is not the owner of batch record")
_OFFSET_OF_ANOTHER: Final = _invalid_state("Member is not the owner of offset")
_BEING_WRITTEN: Final = _invalid_state(
    "The record state is invalid. The acknowledgement of delivery could not be completed."
)
_NO_RENEWALS: Final = _invalid_state("Renewing acquisition locks is not enabled for the group.")


def are_valid(
    batches: Sequence[AcknowledgementBatch], *, may_renew: bool, highest_type: int
) -> bool:
    """Check the acknowledgements of a partition without looking at its state; if they are not
    valid, the partition's answer is INVALID_REQUEST without a message.

    `highest_type` is 3 in version 1 of the requests, 4 from version 2 on.
    """
    previous_last = -1
    for batch in batches:
        first = batch.first_offset
        types = batch.acknowledge_types
        count = len(types)
        if first > batch.last_offset or first < previous_last:
            return False
        if count == 1:
            highest = types[0]
            if highest < 0:
                return False
        elif count != batch.last_offset - first + 1 or min(types) < 0:
            return False
        else:
            highest = max(types)
        if highest > highest_type or (highest == RENEW and not may_renew):
            return False
        previous_last = batch.last_offset
    return True


LOCK_TIMEOUT: Final = 5
SESSION_END: Final = 6
"""LOCK_TIMEOUT and SESSION_END: `Change.cause` of a release without an acknowledgement."""
DEAD_LETTER: Final = 7
"""`Change.cause` when Archiving becomes Archived: the dead letter was appended, or cannot be."""


class Change(NamedTuple):
    """Acquired offsets that are finished or released."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int
    lock: Lock
    """The lock of the offsets before the change."""
    cause: int
    """An acknowledge type, or LOCK_TIMEOUT, SESSION_END or DEAD_LETTER."""

    @property
    def stands(self) -> bool:
        """Whether the change remains if its write fails; only acknowledgements are undone."""
        return self.cause >= LOCK_TIMEOUT


class _Run(NamedTuple):
    """The offsets of one batch, or of adjacent batches that each have the same single type."""

    first_offset: int
    last_offset: int
    types: Sequence[int]
    """The acknowledge types: one for all offsets, or one per offset."""
    borders: Sequence[int] = ()
    """First offsets of all batches in this run except the first batch."""


def _joined(batches: Sequence[AcknowledgementBatch]) -> list[_Run]:
    """Join adjacent batches of the same type: some clients send a batch per record."""
    runs: list[_Run] = []
    first = last = -1
    types: Sequence[int] = ()
    borders: list[int] = []
    for batch in batches:
        if (
            batch.first_offset == last + 1
            and batch.acknowledge_types == types
            and len(types) == 1
            and first >= 0
        ):
            borders.append(batch.first_offset)
            last = batch.last_offset
            continue
        if types:
            runs.append(_Run(first, last, types, borders))
            borders = []
        first = batch.first_offset
        last = batch.last_offset
        types = batch.acknowledge_types
    if types:
        runs.append(_Run(first, last, types, borders))
    return runs


class Acknowledger:
    """Applies the acknowledgements of one request for one share-partition: all of them or none."""

    def __init__(
        self,
        in_flight: InFlight,
        member_id: str,
        write: object,
        *,
        limit: int,
        archived: RecordState,
        renewed_until_ms: int | None,
    ) -> None:
        self.in_flight = in_flight
        self.member_id = member_id
        self.write = write
        self.limit = limit
        """The delivery count limit."""
        self.archived = archived
        """The state of rejected records, and of those released at the delivery count limit."""
        self.renewed_until_ms = renewed_until_ms
        """The deadline of renewed locks; None if the group does not renew locks."""
        self.changes: list[Change] = []
        self._renewed: list[tuple[int, int]] = []

    def run(self, batches: Sequence[AcknowledgementBatch]) -> AcknowledgementError | None:
        """Apply all batches; on error undo what was applied."""
        runs = _joined(batches)
        error = self._apply(runs)
        if error is not None and len(runs) < len(batches):
            # Joining the batches may have caused the error: apply them again as they were sent.
            error = self._apply(
                [
                    _Run(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                    for batch in batches
                ]
            )
        if error is None and self._renewed:
            self._renew()
        return error

    def _apply(self, runs: Sequence[_Run]) -> AcknowledgementError | None:
        index = 0
        while index < len(runs):
            count = self._apply_adjacent(runs, index)
            if count:
                index += count
                continue
            error = self._apply_run(runs[index])
            index += 1
            if error is not None:
                self._undo()
                return error
        return None

    def _undo(self) -> None:
        """Undo the changes so far: lock the records again. Adjacent offsets of the same lock are
        changed together.
        """
        changes = self.changes
        index = 0
        while index < len(changes):
            first, last, _, _, lock, _ = changes[index]
            index += 1
            while index < len(changes) and changes[index][0] == last + 1:
                if changes[index].lock is not lock:
                    break
                last = changes[index].last_offset
                index += 1
            self.in_flight.undo(first, last, self.write, ACQUIRED, lock)
        changes.clear()

    def _apply_adjacent(self, runs: Sequence[_Run], index: int) -> int:
        """Apply adjacent runs in one segment together: a client that alternately accepts and
        releases sends many. Return the number of runs; 0 if they must be applied one by one.
        """
        first, last, types, _ = runs[index]
        if len(types) == 1 and (index + 1 == len(runs) or runs[index + 1][0] != last + 1):
            return 0
        in_flight = self.in_flight
        at = in_flight.segments.index(first)
        if at < 0 or first < in_flight.start:
            return 0
        segment = in_flight.segments.items[at]
        lock = segment.lock
        if lock is None or lock.member_id != self.member_id:
            return 0
        count = segment.count
        states = [state_after(kind, count, self.limit, self.archived) for kind in range(RENEW)]
        parts: list[Change] = []
        following = index
        while following < len(runs):
            begin, end, types, _ = runs[following]
            if begin != first or end > segment.last or RENEW in types:
                break
            if len(types) == 1:
                parts.append(Change(begin, end, states[types[0]], count, lock, types[0]))
            else:
                for kind, group in groupby(types):
                    end = begin + len(list(group)) - 1
                    parts.append(Change(begin, end, states[kind], count, lock, kind))
                    begin = end + 1
            first = end + 1
            following += 1
        if len(parts) < 2:
            return 0
        assert segment.origin is not None
        segment.origin.is_split = True
        self.changes += parts
        in_flight.end_lock(at, [part[:3] for part in parts], self.write)
        return following - index

    def _apply_run(self, run: _Run) -> AcknowledgementError | None:
        first, last, types, _ = run
        in_flight = self.in_flight
        if last < in_flight.start:
            return None
        if len(types) == 1:
            index = in_flight.segments.index(last)
            segment = in_flight.segments.items[index] if index >= 0 else None
            if segment is not None and segment.first <= first and last <= segment.last:
                # Nearly always, the whole run is in one segment.
                origin = segment.origin
                if origin is not None:
                    return self._apply_part(index, first, last, types[0], run)
        error = self._missing(first, last)
        if error is not None:
            return error
        offset = max(first, in_flight.start)
        if len(types) == 1:
            return self._apply_type(offset, last, types[0], run)
        for kind, group in groupby(types[offset - first :]):
            size = sum(1 for _ in group)
            error = self._apply_type(offset, offset + size - 1, kind, run)
            if error is not None:
                return error
            offset += size
        return None

    def _missing(self, first: int, last: int) -> AcknowledgementError | None:
        """Return the error if no acquired range begins at or before `first`, or none contains
        `last`. As in Kafka, gaps between the acquired ranges are no error.
        """
        if self._acquired_before(max(first, self.in_flight.start)) is None:
            return _NOT_FOUND
        origin = self._acquired_before(last)
        assert origin is not None
        if origin.last < first:
            return _FIRST_BEYOND
        return _LAST_BEYOND if origin.last < last else None

    def _acquired_before(self, offset: int) -> Range | None:
        """Return the last acquired range that begins at or before an offset."""
        segments = self.in_flight.segments
        index = segments.index(offset)
        while index >= 0:
            origin = segments.items[index].origin
            if origin is not None:
                return origin
            index -= 1
        return None

    def _apply_type(
        self, first: int, last: int, kind: int, run: _Run
    ) -> AcknowledgementError | None:
        """Apply an acknowledge type to the offsets `first` to `last` of a run."""
        segments = self.in_flight.segments
        items = segments.items
        offset = first
        while offset <= last:
            index = segments.index(offset)
            if index < 0 or items[index].last < offset:
                index += 1
            if index == len(items) or (segment := items[index]).first > last:
                break
            if run.borders and (segment.origin is None or segment.first > offset):
                return _NOT_FOUND
            low = max(offset, segment.first)
            high = min(last, segment.last)
            offset = high + 1
            if segment.origin is not None:
                error = self._apply_part(index, low, high, kind, run)
                if error is not None:
                    return error
        return None

    def _apply_part(
        self, index: int, low: int, high: int, kind: int, run: _Run
    ) -> AcknowledgementError | None:
        """Apply an acknowledge type to the offsets `low` to `high` of the segment at `index`."""
        segment = self.in_flight.segments.items[index]
        origin = segment.origin
        lock = segment.lock
        assert origin is not None
        if lock is None or lock.member_id != self.member_id or kind == RENEW:
            error = self._refused(segment, origin, kind)
            if error is not None:
                return error
        if not origin.is_split:
            origin.is_split = _splits(origin, run)
        if kind == RENEW:
            self._renewed.append((low, high))
            return None
        count = segment.count
        assert lock is not None
        state = state_after(kind, count, self.limit, self.archived)
        self.changes.append(Change(low, high, state, count, lock, kind))
        self.in_flight.change(index, low, high, state, count, None, self.write)
        return None

    def _refused(self, segment: Segment, origin: Range, kind: int) -> AcknowledgementError | None:
        if segment.write is not None:
            return _BEING_WRITTEN
        if segment.lock is None:
            return _OFFSET_NOT_ACQUIRED if origin.is_split else _BATCH_NOT_ACQUIRED
        if segment.lock.member_id != self.member_id:
            return _OFFSET_OF_ANOTHER if origin.is_split else _BATCH_OF_ANOTHER
        if kind == RENEW and self.renewed_until_ms is None:
            return _NO_RENEWALS
        return None

    def _renew(self) -> None:
        assert self.renewed_until_ms is not None
        lock = Lock(self.member_id, self.renewed_until_ms, self.renewed_until_ms)
        segments = self.in_flight.segments
        for first, last in self._renewed:
            index = segments.index(first)
            while index < len(segments.items) and segments.items[index].first <= last:
                segment = segments.items[index]
                low = max(first, segment.first)
                high = min(last, segment.last)
                # The same request may have finished an offset after renewing it.
                if segment.lock is not None and low <= high:
                    lock.since_ms = min(lock.since_ms, segment.lock.since_ms)
                    index = self.in_flight.change(index, low, high, ACQUIRED, segment.count, lock)
                index += 1


def state_after(kind: int, count: int, limit: int, archived: RecordState) -> RecordState:
    """Return the state after an acknowledgement that is not a renewal; `archived` is the state of
    rejected records, and of records released at the delivery count limit.
    """
    if kind == AcknowledgeType.ACCEPT:
        return RecordState.ACKNOWLEDGED
    if kind == AcknowledgeType.RELEASE and count < limit:
        return AVAILABLE
    return RecordState.ARCHIVED if kind == AcknowledgeType.GAP else archived


def _splits(origin: Range, run: _Run) -> bool:
    """Check whether `run` acknowledges only a part of `origin`, or parts of it separately."""
    if len(run.types) > 1 or run.first_offset > origin.first or run.last_offset < origin.last:
        return True
    index = bisect_right(run.borders, origin.first)
    return index < len(run.borders) and run.borders[index] <= origin.last

"""States of records in a share-partition, and lists of offset ranges in the same state."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple


class RecordState(IntEnum):
    """State of an in-flight offset; the numbers are those of the state topic."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Locked for a member. Never written to the state topic."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """To be archived once its copy is in the dead-letter queue."""
    ARCHIVED = 4
    SKIPPED = 5
    """Archived because the record's transaction was aborted, or the log has no such record. Never
    written: a snapshot stores Available with one delivery less, so the log is read again after a
    restart."""


class StateBatch(NamedTuple):
    """Consecutive offsets in the same state."""

    first_offset: int
    last_offset: int
    """Inclusive."""
    state: RecordState
    delivery_count: int


class StateWrite(NamedTuple):
    """A state change of a share-partition, to be written to the state topic."""

    start_offset: int
    """Start offset of the share-partition before this change."""
    delivery_complete_count: int
    """Number of finished offsets at or above `start_offset`, after this change."""
    batches: Sequence[StateBatch]


def joined(batches: Iterable[tuple[int, int, RecordState, int]]) -> list[StateBatch]:
    """Merge adjacent batches of equal state and delivery count. The argument must be sorted."""
    rest = iter(batches)
    head = next(rest, None)
    if head is None:
        return []
    result: list[StateBatch] = []
    first, last, state, count = head
    for batch_first, batch_last, batch_state, batch_count in rest:
        if batch_first == last + 1 and batch_state == state and batch_count == count:
            last = batch_last
        else:
            result.append(StateBatch(first, last, state, count))
            first, last, state, count = batch_first, batch_last, batch_state, batch_count
    result.append(StateBatch(first, last, state, count))
    return result


def overlay(batches: list[StateBatch], changes: Iterable[StateBatch], start_offset: int) -> None:
    """Apply changes to disjoint, sorted batches, and remove offsets below `start_offset`.

    Where ranges overlap, the higher delivery count wins, and at equal counts the higher state. A
    delivery count never decreases, so the changes in a record always win.
    """
    for change in changes:
        low = bisect_left(batches, change.first_offset, key=_last_offset)
        high = low
        parts: list[StateBatch] = []
        begin = change.first_offset
        while high < len(batches) and batches[high].first_offset <= change.last_offset:
            old = batches[high]
            high += 1
            if old.first_offset < change.first_offset:
                parts.append(old._replace(last_offset=change.first_offset - 1))
            if (old.delivery_count, old.state) > (change.delivery_count, change.state):
                first = max(old.first_offset, change.first_offset)
                last = min(old.last_offset, change.last_offset)
                if begin < first:
                    parts.append(change._replace(first_offset=begin, last_offset=first - 1))
                parts.append(old._replace(first_offset=first, last_offset=last))
                begin = last + 1
            if old.last_offset > change.last_offset:
                if begin <= change.last_offset:
                    parts.append(change._replace(first_offset=begin))
                    begin = change.last_offset + 1
                parts.append(old._replace(first_offset=change.last_offset + 1))
        if begin <= change.last_offset:
            parts.append(change._replace(first_offset=begin))
        around = slice(max(0, low - 1), high + 1)
        batches[around] = joined([*batches[around.start : low], *parts, *batches[high : high + 1]])
    below = bisect_left(batches, start_offset, key=_last_offset)
    del batches[:below]
    if batches and batches[0].first_offset < start_offset:
        batches[0] = batches[0]._replace(first_offset=start_offset)


def _last_offset(batch: StateBatch) -> int:
    return batch.last_offset

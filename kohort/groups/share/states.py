"""States of records in a share-partition, and lists of offset ranges in the same state."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple


class RecordState(IntEnum):
    """State of an offset in a window; the numbers are those of the state topic."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Locked for a member. Never written."""
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    SKIPPED = 5
    """Archived because of the log: aborted, or missing in it. Never written, since the log shows it
    again after a restart."""


class StateBatch(NamedTuple):
    """Consecutive offsets in the same state."""

    first_offset: int
    last_offset: int
    """Inclusive."""
    state: RecordState
    delivery_count: int


class StateWrite(NamedTuple):
    """A change of a share-partition for the state topic."""

    start_offset: int
    """The start before this change moves it."""
    delivery_complete_count: int
    """Finished offsets from `start_offset` on, after this change."""
    batches: Sequence[StateBatch]


def joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Join neighbours in the same state with equal counts; the batches are disjoint and sorted."""
    result: list[StateBatch] = []
    for batch in batches:
        if result:
            before = result[-1]
            if before.last_offset + 1 == batch.first_offset and before[2:] == batch[2:]:
                result[-1] = StateBatch(before.first_offset, *batch[1:])
                continue
        result.append(batch)
    return result


def overlaid(
    batches: Sequence[StateBatch], changes: Iterable[StateBatch], start_offset: int
) -> list[StateBatch]:
    """Return `batches` after `changes`, without offsets below the start. `batches` are disjoint and
    sorted, `changes` need not be.

    The higher count wins, at equal counts the higher state. A window never lowers a count, so that
    in its records a change always wins.
    """
    result = list(batches)
    for change in changes:
        low = bisect_left(result, change.first_offset, key=_last_offset)
        high = low
        parts: list[StateBatch] = []
        rest: StateBatch | None = change
        while high < len(result) and result[high].first_offset <= change.last_offset:
            assert rest is not None
            old = result[high]
            high += 1
            first, last = old.first_offset, old.last_offset
            if first < change.first_offset:
                parts.append(old._replace(last_offset=change.first_offset - 1))
                first = change.first_offset
            if (old.delivery_count, old.state) > (change.delivery_count, change.state):
                last = min(last, change.last_offset)
                if rest.first_offset < first:
                    parts.append(rest._replace(last_offset=first - 1))
                parts.append(StateBatch(first, last, *old[2:]))
                rest = rest._replace(first_offset=last + 1) if last < change.last_offset else None
            if old.last_offset > change.last_offset:
                if rest is not None:
                    parts.append(rest)
                    rest = None
                parts.append(old._replace(first_offset=change.last_offset + 1))
        if rest is not None:
            parts.append(rest)
        result[low:high] = parts
    return joined(_from(result, start_offset))


def _last_offset(batch: StateBatch) -> int:
    return batch.last_offset


def _from(batches: Iterable[StateBatch], start_offset: int) -> Iterable[StateBatch]:
    """Cut what lies below an offset."""
    for batch in batches:
        if batch.first_offset >= start_offset:
            yield batch
        elif batch.last_offset >= start_offset:
            yield batch._replace(first_offset=start_offset)

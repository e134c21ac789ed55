"""States of records in a share-partition, and lists of offset ranges in the same state."""

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
    """Archived because of the log: aborted, or missing in it. Never written, since the log tells it
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
    raise NotImplementedError


def overlaid(
    batches: Sequence[StateBatch], changes: Iterable[StateBatch], start_offset: int
) -> list[StateBatch]:
    """Return `batches` after `changes`, without offsets below the start.

    The higher count wins, at equal counts the higher state. A window never lowers a count, so that
    in its records a change always wins.
    """
    raise NotImplementedError

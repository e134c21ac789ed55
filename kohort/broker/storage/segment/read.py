"""Reading whole batches from a segment, none of them damaged.

Bytes that this process has not written itself are checked when they are read for the first time:
CRC, neighbours and leader epoch of every batch. From then on a read costs two index searches at
most and the copy.

What is large and in memory may be given as a range of the file, for the kernel to send. Otherwise
pread, not mmap: both cost a copy, but a page of a mapping that the disk cannot deliver kills the
process with SIGBUS instead of raising OSError.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.segment.batch_walk import FEW_BYTES, MANY_BYTES, BatchAt, walk_batches
from kohort.broker.storage.segment.search import header_of_entry, locate
from kohort.broker.storage.segment.segment import LogSegment

if TYPE_CHECKING:
    from kohort.broker.storage.file_range import FileRange

logger = logging.getLogger(__name__)

EpochAt = Callable[[int], int]
"""The leader epoch that wrote an offset, -1 if unknown."""

Found: TypeAlias = "bytes | FileRange"
"""Whole batches, read or to be sent."""

RANGE_BYTES_MIN = 64 << 10
"""Less than this is sent sooner if it is read: a range takes system calls of its own."""


class _Wish(NamedTuple):
    """Positions in a segment: what a read wants and what it may get."""

    start: int
    """Where the first batch starts."""
    stop: int
    """Batches that end behind it are not wanted,"""
    limit: int
    """and behind this must not be given."""
    base_offset: int
    """Base offset of the first batch."""
    min_one: bool
    """The first batch is wanted, however long it is."""

    def takes(self, batch: BatchAt) -> bool:
        """Whether a batch belongs to the answer."""
        return batch.stop <= self.stop or (self.min_one and batch.position == self.start)


def read_batches(
    segment: LogSegment,
    offset: int,
    max_bytes: int,
    *,
    up_to_offset: int | None,
    min_one: bool,
    epoch_at: EpochAt,
    as_range: bool = False,
) -> Found | None:
    """Whole batches from the one that holds `offset` on, of offsets below `up_to_offset` if given.

    A range of the file only if `as_range`, and for what is large.

    b"" if the first one is longer than `max_bytes` and not `min_one`, or not below `up_to_offset`;
    None if all end below `offset`. The answer ends before a damaged batch; CorruptBatchError if the
    first one is damaged. Raises OSError.
    """
    found = locate(segment, offset)
    if found is None:
        return None
    start, base_offset = found
    behind = None if up_to_offset is None else locate(segment, up_to_offset)
    limit = segment.size_bytes if behind is None else behind[0]
    if start >= limit:
        return b""
    wish = _Wish(start, min(limit, start + max_bytes), limit, base_offset, min_one)
    if not segment.verified.covers(start, wish.stop):
        stop = _verify(segment, wish, epoch_at)
    elif wish.stop == limit:
        stop = limit
    else:
        stop = _last_boundary(segment, wish)
    if stop <= start:
        return b""
    if as_range and stop - start >= RANGE_BYTES_MIN:
        found_range = segment.log.range(start, stop)
        if found_range is not None:
            return found_range
    data = segment.log.pread(stop - start, start)
    if len(data) != stop - start:
        raise CorruptBatchError(f"{segment!r} has lost its end")
    return data


def is_at_hand(segment: LogSegment, offset: int, max_bytes: int) -> bool:
    """Whether `read_batches` would neither wait for a disk nor check anything.

    Where it is not sure of that, False.
    """
    start = segment.hinted(offset)
    if start is None or start >= segment.size_bytes:
        return False
    wanted = min(start + max_bytes, segment.size_bytes)
    # The batch behind those wanted is looked at, to see that it ends too late.
    looked_at = min(wanted + FEW_BYTES, segment.size_bytes)
    return (
        segment.verified.covers(start, wanted)
        and segment.log.is_cached(start, looked_at)
        and segment.index.is_cached()
    )


def _verify(segment: LogSegment, wish: _Wish, epoch_at: EpochAt) -> int:
    """Check what was never looked at; returns where the last good batch of those wanted ends."""
    stop, next_offset = wish.start, wish.base_offset
    batches = walk_batches(
        segment.log,
        wish.start,
        wish.limit,
        expected_offset=wish.base_offset,
        following_offset=segment.following_offset,
        check_crc=True,
        chunk_bytes=min(MANY_BYTES, max(FEW_BYTES, wish.stop - wish.start)),
    )
    try:
        for batch in batches:
            if not wish.takes(batch):
                break
            _check_epoch(segment, batch, epoch_at)
            stop, next_offset = batch.stop, batch.header.next_offset
            if stop >= wish.stop:
                break
    except CorruptBatchError as error:
        if stop == wish.start:
            raise
        logger.warning("%s", error)
    segment.verified.add(wish.start, stop)
    segment.hint(next_offset, stop)
    return stop


def _last_boundary(segment: LogSegment, wish: _Wish) -> int:
    """The end of the last whole batch of those wanted, in a range that is verified."""
    position, next_offset = wish.start, wish.base_offset
    number = segment.index.find_position(wish.stop)
    if number >= 0 and segment.index[number].position > position:
        header = header_of_entry(segment, number)
        if header is not None:
            position, next_offset = segment.index[number].position, header.base_offset
    for batch in segment.walk(position, next_offset):
        if not wish.takes(batch):
            break
        position, next_offset = batch.stop, batch.header.next_offset
        if position >= wish.stop:
            break
    segment.hint(next_offset, position)
    return position


def _check_epoch(segment: LogSegment, batch: BatchAt, epoch_at: EpochAt) -> None:
    header = batch.header
    expected = epoch_at(header.base_offset)
    if expected not in {header.partition_leader_epoch, -1}:
        raise CorruptBatchError(
            f"{segment!r}: batch at {batch.position} has leader epoch "
            f"{header.partition_leader_epoch}, {expected} was expected"
        )

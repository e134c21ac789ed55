"""Reads whole batches from a segment, verified.

Bytes that this process has not written itself are verified when they are read for the first time:
each batch's CRC, leader epoch, and offsets, which must follow those of the batch before. From then
on a read costs at most two index searches and the copy.

Large data in the page cache may be returned as a range of the file, for the kernel to send.
Otherwise pread is used, not mmap: both cost a copy, but a page of a mapping that the disk cannot
deliver kills the process with SIGBUS instead of raising OSError.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.segment.batch_walk import FEW_BYTES, MANY_BYTES, BatchAt, walk_batches
from kohort.broker.storage.segment.search import header_of_entry, locate
from kohort.broker.storage.segment.segment import LogSegment
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import HEADER_BYTES, read_header

if TYPE_CHECKING:
    from kohort.broker.storage.file_range import FileRange

logger = logging.getLogger(__name__)

EpochAt = Callable[[int], int]
"""Returns the leader epoch in which an offset was written, -1 if unknown."""

BatchData: TypeAlias = "bytes | FileRange"
"""Whole batches: in memory, or as a range of the file to be sent."""

RANGE_BYTES_MIN = 64 << 10
"""Smaller data is read into memory, which is faster: a range needs additional system calls."""
CHECKS_MAX = 8
"""Maximum number of batch headers that `cached_range` reads, from the nearest index entry on, to
find the end of its range."""


class _Wish(NamedTuple):
    """A read as positions in a segment: the requested and the permitted range."""

    start: int
    """File position of the first batch."""
    stop: int
    """Batches that end after this position are not requested."""
    limit: int
    """Data after this position must not be returned."""
    base_offset: int
    """Base offset of the first batch."""
    min_one: bool
    """Whether the first batch is returned regardless of its size."""

    def takes(self, batch: BatchAt) -> bool:
        """Whether a batch belongs to the result."""
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
) -> BatchData | None:
    """Return whole batches, starting with the one that contains `offset`, below `up_to_offset` if
    given.

    A range of the file is returned only if `as_range`, and only for large data.

    b"" if the first batch is not below `up_to_offset`, or, without `min_one`, longer than
    `max_bytes`; None if all batches of the segment end below `offset`. The result ends before a
    damaged batch; CorruptBatchError if the first batch is damaged. Raises OSError.
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
    if not segment.is_verified(start, wish.stop):
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
        raise CorruptBatchError(f"{segment!r} is truncated")
    return data


def cached_range(segment: LogSegment, offset: int, max_bytes: int) -> FileRange | None:
    """Like `read_batches`, but return only a range, and only if that needs neither the disk nor
    verification.

    Runs for every response to a consumer that is catching up, so it checks each condition once.
    After None or an OSError, call `is_cached` to see whether `read_batches` needs neither.
    """
    start, size = segment.hinted(offset), segment.size_bytes
    if start is None or max_bytes < RANGE_BYTES_MIN:
        return None
    stop = min(start + max_bytes, size)
    if not segment.is_verified(start, stop):
        return None
    if stop < size:
        stop = _cached_boundary(segment, offset, start, stop)
    return segment.log.range(start, stop) if stop - start >= RANGE_BYTES_MIN else None


def is_cached(segment: LogSegment, offset: int, max_bytes: int) -> bool:
    """Whether `read_batches` needs neither the disk nor verification; False if unknown."""
    start = segment.hinted(offset)
    if start is None or start >= segment.size_bytes:
        return False
    wanted = min(start + max_bytes, segment.size_bytes)
    # The batch after the requested ones is examined as well, to see that it exceeds the limit.
    examined = min(wanted + FEW_BYTES, segment.size_bytes)
    return (
        segment.is_verified(start, wanted)
        and segment.log.is_cached(start, examined)
        and segment.index.is_cached()
    )


def _verify(segment: LogSegment, wish: _Wish, epoch_at: EpochAt) -> int:
    """Verify unverified bytes; return the end of the last valid batch in the requested range."""
    segment.check_identity()
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
    segment.note_verified(wish.start, stop)
    segment.hint(next_offset, stop)
    return stop


def _last_boundary(segment: LogSegment, wish: _Wish) -> int:
    """Return the position after the last requested batch; the range must have been verified."""
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


def _cached_boundary(segment: LogSegment, offset: int, start: int, stop: int) -> int:
    """Find the same position as `_last_boundary`, reading at most `CHECKS_MAX` headers; return
    0 if they do not suffice.

    Raises OSError if data or index entries are not in the page cache.
    """
    entry = segment.index.cached_entry(stop)
    if entry is None or entry.position <= start:
        position, last_offset = start, None
    else:
        position, last_offset = entry.position, entry.last_offset
    try:
        for _ in range(CHECKS_MAX):
            header = read_header(segment.log.pread_cached(HEADER_BYTES, position))
            if last_offset is None:
                is_expected = header.base_offset == offset
            else:
                is_expected = header.last_offset == last_offset
            if not is_expected:
                break
            if position + header.size_bytes > stop:
                segment.hint(header.base_offset, position)
                return position
            position += header.size_bytes
            offset, last_offset = header.next_offset, None
    except DecodeError:
        pass
    return 0


def _check_epoch(segment: LogSegment, batch: BatchAt, epoch_at: EpochAt) -> None:
    header = batch.header
    expected = epoch_at(header.base_offset)
    if expected not in {header.partition_leader_epoch, -1}:
        raise CorruptBatchError(
            f"{segment!r}: batch at {batch.position}, offset {header.base_offset}, has epoch "
            f"{header.partition_leader_epoch}, {expected} was expected"
        )

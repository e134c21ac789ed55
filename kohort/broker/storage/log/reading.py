"""Reads segments, in the log's thread, or on copies of some of them in another thread."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kohort.broker.storage.log.detached import Detached
from kohort.broker.storage.log.queries import first_at_or_after, first_timestamp_from, latest_record
from kohort.broker.storage.log.state import LogState
from kohort.broker.storage.segment.indexes import TimestampOffset
from kohort.broker.storage.segment.read import BatchData, EpochAt, cached_range, read_batches
from kohort.broker.storage.segment.segment import LogSegment, with_ends

if TYPE_CHECKING:
    from kohort.broker.storage.file_range import FileRange

SEGMENTS_READ_MAX = 4
"""A read continues in the next segment only if compaction has left nothing in this one."""


def segment_number(segments: Sequence[LogSegment], offset: int) -> int:
    """Return the index of the segment to which an offset belongs."""
    if offset >= segments[-1].base_offset:
        return len(segments) - 1
    return bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1


def read_on(
    segments: Sequence[LogSegment],
    offset: int,
    max_bytes: int,
    *,
    end_offset: int,
    limit: int,
    min_one: bool,
    epoch_at: EpochAt,
    as_range: bool,
) -> BatchData | None:
    """Read as `PartitionLog.read` does, from the first of these segments that has data.

    None if none of them has anything from `offset` on below `limit`. Raises OSError.

    Args:
        end_offset: where the last of these segments ends.
    """
    for number, segment in enumerate(segments, start=1):
        if offset >= limit:
            return None
        next_offset = end_offset if number == len(segments) else segments[number].base_offset
        data = read_batches(
            segment,
            offset,
            max_bytes,
            up_to_offset=limit if limit < next_offset else None,
            min_one=min_one,
            epoch_at=epoch_at,
            as_range=as_range,
        )
        if data is not None:
            return data
        # The end of this segment is missing; the data after it starts in the next one.
    return None


def find_range(
    state: LogState, offset: int, max_bytes: int, *, up_to_offset: int
) -> FileRange | None:
    """Find the result of `PartitionLog.read_cached` as a file range if immediate, else None."""
    segments = state.segments
    number = segment_number(segments, offset)
    is_last = number + 1 == len(segments)
    if up_to_offset < (state.end_offset if is_last else segments[number + 1].base_offset):
        return None
    try:
        return cached_range(segments[number], offset, max_bytes)
    except OSError:
        # Not in memory; or damaged, which the actual read will report.
        return None


def detached_read(
    state: LogState,
    offset: int,
    max_bytes: int,
    *,
    up_to_offset: int,
    min_one: bool,
    as_range: bool,
) -> Detached[BatchData | None]:
    """Return `PartitionLog.read` for another thread; None if it needs many segments."""
    limit = min(up_to_offset, state.end_offset)
    epoch_at = state.epochs.epoch_at
    first = segment_number(state.segments, offset)
    asked = state.segments[first : first + SEGMENTS_READ_MAX]
    behind = state.segments[first + SEGMENTS_READ_MAX : first + SEGMENTS_READ_MAX + 1]
    end_offset = behind[0].base_offset if behind else state.end_offset
    return Detached(
        state.directory,
        asked,
        lambda twins: read_on(
            twins,
            offset,
            max_bytes,
            end_offset=end_offset,
            limit=limit,
            min_one=min_one,
            epoch_at=epoch_at,
            as_range=as_range,
        ),
    )


def detached_time_lookup(state: LogState, timestamp: int) -> Detached[TimestampOffset | None]:
    """Return `PartitionLog.offset_for_timestamp` for another thread, regardless of visibility."""
    start_offset = state.start_offset
    asked = []
    late_count = 0
    for segment, end_offset in with_ends(state.segments, state.end_offset):
        latest = segment.max_timestamp
        if end_offset <= start_offset or (latest is not None and latest < timestamp):
            continue
        asked.append(segment)
        late_count += latest is not None
        # In the first segment the record may be before the log start, but not in two.
        if late_count == 2:
            break
    return Detached(
        state.directory, asked, lambda twins: first_at_or_after(twins, timestamp, start_offset)
    )


def detached_latest(state: LogState) -> Detached[TimestampOffset | None]:
    """Return `PartitionLog.max_timestamp` for another thread."""
    known = [segment for segment in state.segments if segment.max_timestamp is not None]
    best = max(known, key=lambda segment: segment.max_timestamp or 0, default=None)
    asked = [
        segment for segment in state.segments if segment is best or segment.max_timestamp is None
    ]
    return Detached(state.directory, asked, latest_record)


def detached_timestamp_at(state: LogState, offset: int) -> Detached[int | None]:
    """Return `PartitionLog.timestamp_at` for another thread, in the segments that matter."""
    wanted = max(offset, state.start_offset)
    first = segment_number(state.segments, wanted)
    asked = state.segments[first : first + SEGMENTS_READ_MAX]
    return Detached(state.directory, asked, lambda twins: first_timestamp_from(twins, wanted))

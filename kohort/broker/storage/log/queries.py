"""Queries on a log's segments: timestamps, and which segments retention may delete."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from kohort.broker.storage.config import LogConfig
from kohort.broker.storage.segment.indexes import TimestampOffset
from kohort.broker.storage.segment.segment import LogSegment
from kohort.broker.storage.segment.times import (
    find_max_timestamp,
    find_timestamp,
    load_max_timestamp,
    timestamp_at,
)
from kohort.protocol.records.batch import NO_TIMESTAMP


def first_at_or_after(
    segments: Sequence[LogSegment], timestamp: int, start_offset: int
) -> TimestampOffset | None:
    """Return the first record from `start_offset` on whose timestamp is at least `timestamp`.

    None if there is none. Raises OSError, and CorruptBatchError if damage hides the answer.
    """
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start_offset:
            continue
        latest = load_max_timestamp(segment)
        if latest is None or latest >= timestamp:
            found = find_timestamp(segment, timestamp, start_offset)
            if found is not None:
                return found
    return None


def latest_record(segments: Sequence[LogSegment]) -> TimestampOffset | None:
    """Return the first record with the largest timestamp; None if no record has one.

    Raises OSError, and CorruptBatchError if it is in a damaged batch.
    """
    latest = NO_TIMESTAMP
    holder: LogSegment | None = None
    for segment in segments:
        timestamp = load_max_timestamp(segment)
        if timestamp is not None and timestamp > latest:
            latest, holder = timestamp, segment
    return None if holder is None else find_max_timestamp(holder)


def first_timestamp_from(segments: Sequence[LogSegment], offset: int) -> int | None:
    """Return the timestamp of the first record at or after `offset`, which is in the first of these
    segments or a later one; NO_TIMESTAMP if it has none, None if there is no such record.

    Raises OSError, and CorruptBatchError if damage hides the answer.
    """
    for segment in segments:
        found = timestamp_at(segment, offset)
        if found is not None:
            return found
    return None


def expired_segments(
    segments: Sequence[LogSegment],
    config: LogConfig | None,
    *,
    log_start_offset: int,
    log_end_offset: int,
    up_to_offset: int,
    wall_ms: int,
) -> int:
    """Return how many of the oldest segments may be deleted, by Kafka's rules: possibly all.

    A segment may be deleted if it is below the log start; with cleanup.policy=delete also if its
    latest record is older than retention.ms, or if the rest has retention.bytes without it.

    Args:
        config: None if only the log start is to be considered.
        up_to_offset: segments with batches at or above it are kept.
    """
    is_surplus = _surplus_rule(segments, config)
    count = 0
    for segment, next_offset in _with_next_offsets(segments, log_end_offset):
        if next_offset > up_to_offset:
            break
        surplus = is_surplus(segment)
        if next_offset > log_start_offset and not surplus and not _is_old(segment, config, wall_ms):
            break
        count += 1
    return count


def _with_next_offsets(
    segments: Sequence[LogSegment], log_end_offset: int
) -> list[tuple[LogSegment, int]]:
    """Pair each segment with the start of the next one; an empty last one is left out."""
    pairs = [(segment, following.base_offset) for segment, following in pairwise(segments)]
    if segments[-1].size_bytes:
        pairs.append((segments[-1], log_end_offset))
    return pairs


def _surplus_rule(
    segments: Sequence[LogSegment], config: LogConfig | None
) -> Callable[[LogSegment], bool]:
    """Return a function that says, segment by segment, whether retention.bytes is exceeded."""
    if config is None or "delete" not in config.cleanup_policy or config.retention_bytes < 0:
        return lambda _segment: False
    surplus = sum(segment.size_bytes for segment in segments) - config.retention_bytes

    def is_surplus(segment: LogSegment) -> bool:
        nonlocal surplus
        surplus -= segment.size_bytes
        return surplus >= 0

    return is_surplus


def _is_old(segment: LogSegment, config: LogConfig | None, wall_ms: int) -> bool:
    """Whether a segment has expired, by its latest record or else its last write."""
    if config is None or "delete" not in config.cleanup_policy or config.retention_ms < 0:
        return False
    latest = load_max_timestamp(segment)
    if latest is None:
        return False
    written_ms = segment.created_ms if latest == NO_TIMESTAMP else latest
    return wall_ms - written_ms > config.retention_ms

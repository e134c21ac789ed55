"""Queries on a log's segments: timestamps, and which segments retention may delete."""

from collections.abc import Sequence

from kohort.broker.storage.config import LogConfig
from kohort.broker.storage.segment.indexes import TimestampOffset
from kohort.broker.storage.segment.segment import LogSegment, with_ends
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
    surplus_bytes = -1
    if config is not None and "delete" in config.cleanup_policy and config.retention_bytes >= 0:
        surplus_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for segment, next_offset in with_ends(segments, log_end_offset):
        is_unused = segment is segments[-1] and not segment.size_bytes
        if next_offset > up_to_offset or is_unused:
            break
        surplus_bytes -= segment.size_bytes
        is_expired = next_offset <= log_start_offset or surplus_bytes >= 0
        if not is_expired and not _is_old(segment, config, wall_ms):
            break
        count += 1
    return count


def _is_old(segment: LogSegment, config: LogConfig | None, wall_ms: int) -> bool:
    """Whether a segment has expired, by its latest record or else its last write."""
    if config is None or "delete" not in config.cleanup_policy or config.retention_ms < 0:
        return False
    latest = load_max_timestamp(segment)
    if latest is None:
        return False
    written_ms = segment.created_ms if latest == NO_TIMESTAMP else latest
    return wall_ms - written_ms > config.retention_ms

"""Questions to a log that its segments answer: timestamps, and what is old enough to go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from kohort.broker.storage.config import LogConfig
from kohort.broker.storage.segment.segment import LogSegment
from kohort.broker.storage.segment.time_index import TimestampOffset
from kohort.broker.storage.segment.times import (
    find_max_timestamp,
    find_timestamp,
    load_max_timestamp,
)
from kohort.protocol.records.batch import NO_TIMESTAMP


def first_at_or_after(
    segments: Sequence[LogSegment], timestamp: int, start_offset: int
) -> TimestampOffset | None:
    """The first record from `start_offset` on whose timestamp is at least `timestamp`.

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
    """The first record with the largest timestamp; None if no record has one.

    Raises OSError, and CorruptBatchError if it lies in a damaged batch.
    """
    latest = NO_TIMESTAMP
    holder: LogSegment | None = None
    for segment in segments:
        timestamp = load_max_timestamp(segment)
        if timestamp is not None and timestamp > latest:
            latest, holder = timestamp, segment
    return None if holder is None else find_max_timestamp(holder)


def expired_segments(
    segments: Sequence[LogSegment],
    config: LogConfig | None,
    *,
    log_start_offset: int,
    log_end_offset: int,
    up_to_offset: int,
    wall_ms: int,
) -> int:
    """How many of the oldest segments may go, by Kafka's rules: all of them is possible.

    A segment goes if it lies below the log's start; by cleanup.policy=delete also if its latest
    record is older than retention.ms, or if the rest has retention.bytes without it.

    Args:
        config: None if only the log's start is to be looked at.
        up_to_offset: segments with batches at or above it stay.
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
    """Each segment with the offset where the next one starts; an empty last one is left out."""
    pairs = [(segment, following.base_offset) for segment, following in pairwise(segments)]
    if segments[-1].size_bytes:
        pairs.append((segments[-1], log_end_offset))
    return pairs


def _surplus_rule(
    segments: Sequence[LogSegment], config: LogConfig | None
) -> Callable[[LogSegment], bool]:
    """Whether a segment is more than retention.bytes; to be asked once for each, in order."""
    if config is None or "delete" not in config.cleanup_policy or config.retention_bytes < 0:
        return lambda _segment: False
    surplus = sum(segment.size_bytes for segment in segments) - config.retention_bytes

    def is_surplus(segment: LogSegment) -> bool:
        nonlocal surplus
        surplus -= segment.size_bytes
        return surplus >= 0

    return is_surplus


def _is_old(segment: LogSegment, config: LogConfig | None, wall_ms: int) -> bool:
    """By the latest record, or by the last write if no record has a time."""
    if config is None or "delete" not in config.cleanup_policy or config.retention_ms < 0:
        return False
    latest = load_max_timestamp(segment)
    if latest is None:
        return False
    written_ms = segment.created_ms if latest == NO_TIMESTAMP else latest
    return wall_ms - written_ms > config.retention_ms

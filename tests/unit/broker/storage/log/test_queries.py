import pytest

from kohort.broker.storage.log.log import PartitionLog, expired_segments
from kohort.broker.storage.log.reading import first_at_or_after, latest_record
from tests.support.records.storage_tools import WALL_MS, append, batch_of, memory_log, settings

BATCH_BYTES = len(batch_of(b"v" * 100))


def log_of(*timestamps: int) -> PartitionLog:
    """A segment for each timestamp, with one batch of one record; the active one is empty."""
    log, _ = memory_log()
    for timestamp in timestamps:
        append(log, batch_of(b"v" * 100, timestamp=timestamp))
        log.roll(wall_ms=WALL_MS)
    return log


def expired(
    log: PartitionLog, *, start: int = 0, up_to: int = 10**9, wall_ms: int = 1000, **changes: object
) -> int:
    defaults: dict[str, object] = {"retention_ms": -1, "retention_bytes": -1}
    return expired_segments(
        log.segments,
        settings(**(defaults | changes)),
        log_start_offset=start,
        log_end_offset=log.log_end_offset,
        up_to_offset=up_to,
        wall_ms=wall_ms,
    )


def test_segments_go_when_their_latest_record_is_older_than_allowed() -> None:
    log = log_of(100, 200, 300)
    assert expired(log, retention_ms=800) == 1
    assert expired(log, retention_ms=900) == 0
    assert expired(log, retention_ms=699) == 3
    assert expired(log, retention_ms=-1) == 0
    assert expired(log, retention_ms=0) == 3
    assert expired(log, retention_ms=0, wall_ms=300) == 2


def test_a_younger_segment_protects_those_behind_it() -> None:
    assert expired(log_of(100, 900, 100), retention_ms=500) == 1


def test_segments_without_timestamps_go_by_the_age_of_their_files() -> None:
    log = log_of(-1, -1)
    assert expired(log, wall_ms=WALL_MS + 500, retention_ms=500) == 0
    assert expired(log, wall_ms=WALL_MS + 501, retention_ms=500) == 2


@pytest.mark.parametrize(
    ("kept_batches", "count"), [(0, 3), (0.5, 2), (1, 2), (1.5, 1), (2, 1), (3, 0), (9, 0)]
)
def test_segments_go_while_the_rest_has_the_size_to_keep(kept_batches: float, count: int) -> None:
    log = log_of(100, 200, 300)
    assert expired(log, retention_bytes=int(kept_batches * BATCH_BYTES)) == count


def test_segments_below_the_start_go_whatever_the_policy() -> None:
    log = log_of(100, 200, 300)
    assert expired(log, start=2, cleanup_policy=("compact",)) == 2
    assert expired(log, start=2, cleanup_policy=("compact",), retention_bytes=0) == 2
    assert expired(log, start=1, retention_bytes=BATCH_BYTES) == 2


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    log = log_of(100, 200, 300)
    assert expired(log, up_to=2, retention_bytes=0) == 2
    assert expired(log, up_to=1, start=3) == 1
    assert expired(log, up_to=0, start=3) == 0


def test_an_active_segment_with_batches_may_go_and_an_empty_one_stays() -> None:
    log = log_of(100)
    assert expired(log, retention_bytes=0) == 1
    append(log, batch_of(b"v", timestamp=100))
    assert expired(log, retention_bytes=0) == 2


def test_timestamps_are_looked_for_in_every_segment_from_the_start_on() -> None:
    log = log_of(300, 100, 500, 200)
    segments = log.segments
    assert first_at_or_after(segments, 50, 0) == (300, 0)
    assert first_at_or_after(segments, 50, 1) == (100, 1)
    assert first_at_or_after(segments, 301, 0) == (500, 2)
    assert first_at_or_after(segments, 150, 3) == (200, 3)
    assert first_at_or_after(segments, 501, 0) is None
    assert first_at_or_after(segments, 0, 4) is None


def test_the_latest_record_is_the_first_of_its_time() -> None:
    assert latest_record(log_of(300, 500, 100, 500).segments) == (500, 1)
    assert latest_record(log_of(-1, -1).segments) is None
    assert latest_record(log_of().segments) is None

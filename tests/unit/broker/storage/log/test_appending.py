import errno

import pytest

from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.segment.indexes import RELATIVE_OFFSET_MAX
from kohort.protocol.records.batch import read_header
from tests.support.records.batches import with_header
from tests.support.records.storage_tools import (
    WALL_MS,
    append,
    batch_of,
    fill,
    memory_log,
    open_log,
    read_all,
    settings,
    stored,
)

DAY_MS = 86_400_000


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    log, _ = memory_log(segment_bytes=100)
    for _ in range(3):
        append(log, batch_of(b"v" * 500))
    assert bases(log) == [0, 1, 2]


def test_a_segment_is_rolled_by_the_time_between_its_records() -> None:
    log, _ = memory_log(segment_ms=DAY_MS)
    append(log, batch_of(b"v", timestamp=1000))
    append(log, batch_of(b"v", timestamp=1000 + DAY_MS))
    append(log, batch_of(b"v", timestamp=-1), wall_ms=WALL_MS + 9 * DAY_MS)
    assert bases(log) == [0]
    append(log, batch_of(b"v", timestamp=1001 + DAY_MS))
    assert bases(log) == [0, 3]


def test_the_time_between_records_counts_across_a_restart() -> None:
    log, files = memory_log(segment_ms=DAY_MS)
    append(log, batch_of(b"v", timestamp=1000))
    log.close()
    log = open_log(files, config=settings(segment_ms=DAY_MS))
    append(log, batch_of(b"v", timestamp=1001 + DAY_MS))
    assert bases(log) == [0, 1]


def test_a_compacted_log_is_rolled_in_time_for_its_longest_lag() -> None:
    """The active segment is never compacted."""
    for policy, expected in ((("compact",), [0, 2]), (("delete",), [0])):
        log, _ = memory_log(segment_ms=DAY_MS, max_compaction_lag_ms=1000, cleanup_policy=policy)
        append(log, batch_of(b"v", timestamp=1000))
        append(log, batch_of(b"v", timestamp=2000))
        append(log, batch_of(b"v", timestamp=2001))
        assert bases(log) == expected


def test_without_timestamps_a_segment_is_rolled_by_its_age() -> None:
    log, _ = memory_log(segment_ms=DAY_MS)
    append(log, batch_of(b"v", timestamp=-1))
    append(log, batch_of(b"v", timestamp=-1), wall_ms=WALL_MS + DAY_MS)
    assert bases(log) == [0]
    append(log, batch_of(b"v", timestamp=-1), wall_ms=WALL_MS + DAY_MS + 1)
    assert bases(log) == [0, 2]


def test_a_segment_is_rolled_when_one_of_its_indexes_is_full() -> None:
    log, _ = memory_log(index_interval_bytes=0, segment_index_bytes=10 * 8, segment_bytes=10**6)
    for _ in range(30):
        append(log, batch_of(b"v", timestamp=5))
    assert bases(log) == [0, 11, 22]
    log, _ = memory_log(index_interval_bytes=0, segment_index_bytes=10 * 12, segment_bytes=10**6)
    for number in range(30):
        append(log, batch_of(b"v", timestamp=number))
    assert bases(log) == [0, 10, 20]


def test_a_segment_is_rolled_before_its_relative_offsets_overflow() -> None:
    log, _ = memory_log(segment_bytes=10**6)
    append(log, batch_of(b"v"))
    huge = with_header(batch_of(b"v"), last_offset_delta=RELATIVE_OFFSET_MAX - 1)
    append(log, huge)
    assert bases(log) == [0]
    append(log, batch_of(b"v"))
    assert bases(log) == [0, RELATIVE_OFFSET_MAX + 1]


@pytest.mark.parametrize(
    ("operation", "suffix"),
    [("create", ".log"), ("create", ".snapshot.tmp"), ("pwritev", ".timeindex")],
)
def test_a_segment_that_cannot_be_started_costs_one_append(operation: str, suffix: str) -> None:
    log, files = memory_log()
    batches = fill(log, 20)
    log.config = settings(segment_bytes=1)
    files.fail(operation, suffix=suffix, number=errno.ENOSPC)  # type: ignore[arg-type]
    with pytest.raises(StorageError):
        append(log, batch_of(b"v"))
    assert bases(log) == [0]
    batch = batch_of(b"after")
    assert append(log, batch).base_offset == 40
    assert bases(log) == [0, 40]
    assert read_all(log) == [*batches, stored(batch, 40)]
    log.close()
    assert read_all(open_log(files)) == [*batches, stored(batch, 40)]


def test_an_epoch_that_cannot_be_noted_costs_one_append() -> None:
    log, files = memory_log()
    files.fail("create", suffix="leader-epoch-checkpoint.tmp", number=errno.ENOSPC)
    with pytest.raises(StorageError):
        append(log, batch_of(b"v"))
    assert append(log, batch_of(b"v")).base_offset == 0
    assert log.end_offset_for_epoch(0) == (0, 1)


def test_a_batch_that_is_not_what_its_header_says_is_our_mistake() -> None:
    log, _ = memory_log()
    batch = batch_of(b"v")
    with pytest.raises(AssertionError):
        log.append(batch + b"x", read_header(batch), leader_epoch=0, wall_ms=WALL_MS)
    assert log.log_end_offset == 0

"""When a log is compacted, and how far; tests/property has what becomes of it."""

import pytest

from kohort.broker.storage.compaction.cleaner import Compaction, CompactionPlan, plan_compaction
from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.log.log import PartitionLog
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record, decode_records
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import WALL_MS, append, memory_log, read_all, settings

HOUR_MS = 3_600_000


def keyed_log(count: int = 40, **changes: object) -> PartitionLog:
    """Segments of ten batches; record `n` has key `n % 4` and a timestamp `n` hours on."""
    defaults: dict[str, object] = {"cleanup_policy": ("compact",), "segment_bytes": 10 * 75}
    log, _ = memory_log(**(defaults | changes))
    for number in range(count):
        record = Record(b"value", b"%d" % (number % 4), timestamp=WALL_MS + number * HOUR_MS)
        append(log, encode_batch([record]))
    return log


def plan(
    log: PartitionLog, *, first_dirty: int = 0, up_to: int | None = None, hours: int = 1000
) -> CompactionPlan | None:
    return plan_compaction(
        log,
        first_dirty_offset=first_dirty,
        up_to_offset=log.log_end_offset if up_to is None else up_to,
        wall_ms=WALL_MS + hours * HOUR_MS,
    )


def run(log: PartitionLog, found: CompactionPlan | None, memory_bytes: int = 1 << 20) -> Compaction:
    assert found is not None
    compaction = Compaction(log, found, memory_bytes=memory_bytes, wall_ms=WALL_MS)
    while compaction.work():
        compaction.swap(wall_ms=WALL_MS)
    compaction.close()
    return compaction


def test_everything_but_the_active_segment_is_compacted() -> None:
    log = keyed_log()
    found = plan(log)
    assert found is not None
    assert (found.end_offset, found.dirty_ratio) == (30, 1.0)
    assert run(log, found).cleaned_up_to == 30
    records = [record for batch in read_all(log) for record in decode_records(batch)]
    assert [record.offset for record in records] == [26, 27, 28, 29, *range(30, 40)]


def test_only_logs_with_the_policy_are_compacted() -> None:
    log = keyed_log(cleanup_policy=("delete",))
    assert plan(log) is None
    assert plan(keyed_log(cleanup_policy=("compact", "delete"))) is not None


def test_an_active_segment_alone_is_nothing_to_compact() -> None:
    assert plan(keyed_log(count=5)) is None
    assert plan(keyed_log(count=0)) is None


def test_segments_that_reach_the_high_watermark_are_left_alone() -> None:
    found = plan(keyed_log(), up_to=29)
    assert found is not None
    assert found.end_offset == 20
    assert plan(keyed_log(), up_to=9) is None


@pytest.mark.parametrize(
    ("ratio", "first_dirty", "is_due"),
    [(0.5, 10, True), (0.5, 20, False), (0.34, 20, False), (0.33, 20, True), (0.0, 30, False)],
)
def test_a_log_is_compacted_when_enough_of_it_is_dirty(
    ratio: float, first_dirty: int, is_due: bool
) -> None:
    log = keyed_log(min_cleanable_dirty_ratio=ratio)
    assert (plan(log, first_dirty=first_dirty) is not None) == is_due


def test_a_record_that_waited_too_long_makes_the_log_due() -> None:
    """Counted from the first batch of a segment, as in Kafka; the last one is younger."""
    log = keyed_log(min_cleanable_dirty_ratio=1.0)
    log.config = settings(
        cleanup_policy=("compact",),
        min_cleanable_dirty_ratio=1.0,
        max_compaction_lag_ms=5 * HOUR_MS,
    )
    assert plan(log, first_dirty=20, hours=25) is None
    assert plan(log, first_dirty=20, hours=26) is not None
    assert plan(log, first_dirty=30, hours=1000) is None


def test_young_records_are_not_compacted() -> None:
    log = keyed_log(min_compaction_lag_ms=10 * HOUR_MS)
    found = plan(log, hours=30)
    assert found is not None
    assert found.end_offset == 20
    assert plan(log, hours=19) is None


@pytest.mark.parametrize("first_dirty", [-1, 5, 1000])
def test_a_noted_offset_outside_of_the_log_means_from_the_start(first_dirty: int) -> None:
    log = keyed_log()
    log.delete_records_before(12, wall_ms=WALL_MS)
    found = plan(log, first_dirty=first_dirty)
    assert found is not None
    assert found.first_dirty_offset == 12


def test_an_indexed_and_timed_segment_comes_out_of_a_compaction() -> None:
    log = keyed_log(count=300, segment_bytes=100 * 75)
    run(log, plan(log))
    segment = log.segments[0]
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (-1, -1)
    last = log.segments[2].base_offset - 1
    assert log.segments[1].time_index.last() == (WALL_MS + last * HOUR_MS, last)
    found = log.offset_for_timestamp(WALL_MS, up_to_offset=300)
    assert found == (WALL_MS + (last - 3) * HOUR_MS, last - 3)


def test_what_is_not_swapped_is_thrown_away_by_close() -> None:
    log = keyed_log()
    before = read_all(log)
    found = plan(log)
    assert found is not None
    compaction = Compaction(log, found, memory_bytes=1 << 20, wall_ms=WALL_MS)
    assert compaction.work()
    names = [entry.name for entry in log.files.entries(str(log.directory))]
    assert any(name.endswith(".cleaned") for name in names)
    compaction.close()
    compaction.swap(wall_ms=WALL_MS)
    assert read_all(log) == before
    names = [entry.name for entry in log.files.entries(str(log.directory))]
    assert not [name for name in names if name.endswith((".swap", ".cleaned"))]


def test_a_damaged_batch_ends_a_run_and_the_next_one_compacts_what_is_before_it() -> None:
    log = keyed_log()
    assert isinstance(log.files, SimulatedFileSystem)
    damaged = log.segments[2]
    log.files.flip(damaged.path(".log"), 70, 1)
    with pytest.raises(CorruptBatchError):
        run(log, plan(log))
    assert run(log, plan(log)).cleaned_up_to == damaged.base_offset


@pytest.mark.parametrize(("count", "size"), [(12, 900_000), (400, 1_000)])
def test_a_long_run_is_done_in_many_steps(count: int, size: int) -> None:
    log = keyed_log(count=1, segment_bytes=1 << 30)
    for number in range(count):
        append(log, encode_batch([Record(b"x" * size, b"%d" % number)]))
    log.roll(wall_ms=WALL_MS)
    found = plan(log)
    assert found is not None
    compaction = Compaction(log, found, memory_bytes=1 << 20, wall_ms=WALL_MS)
    steps = 1
    while compaction.work():
        compaction.swap(wall_ms=WALL_MS)
        steps += 1
    compaction.close()
    assert steps > 10

"""Recovery of one log after an unclean stop; tests/property has the random part."""

import errno

import pytest

from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.filesystem import read_file
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.log.recovery import find_end
from kohort.broker.storage.segment.batch_walk import MANY_BYTES
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import (
    WALL_MS,
    append,
    batch_of,
    fill,
    memory_log,
    open_log,
    read_all,
    stored,
)

LOG = "/data/t-0/00000000000000000000.log"


def filled(count: int, **changes: object) -> tuple[SimulatedFileSystem, list[bytes]]:
    log, files = memory_log(**({"segment_bytes": 1_000_000} | changes))
    batches = fill(log, count)
    return files, batches


@pytest.mark.parametrize("position", [MANY_BYTES + 5000, 2 * MANY_BYTES + 70])
def test_a_batch_longer_than_one_read_is_verified_to_its_end(position: int) -> None:
    log, files = memory_log(segment_bytes=10_000_000)
    append(log, batch_of(b"small"))
    before = log.size_bytes
    append(log, batch_of(bytes(range(256)) * (3 * MANY_BYTES // 256)))
    assert log.size_bytes > 3 * MANY_BYTES
    append(log, batch_of(b"behind"))
    assert open_log(files.copy(), clean=False).log_end_offset == 3
    files.flip(LOG, before + position, 1)
    assert open_log(files, clean=False).log_end_offset == 1


def test_a_segment_that_somebody_took_away_leaves_what_lies_behind_it() -> None:
    files, batches = filled(120, segment_bytes=4000)
    log = open_log(files, clean=False)
    missing, following = log.segments[2:4]
    files.remove(missing.path(".log"))
    log = open_log(files, clean=False)
    assert log.log_end_offset == 240
    assert log.lost_offsets == following.base_offset - missing.base_offset
    kept = batches[: missing.base_offset // 2] + batches[following.base_offset // 2 :]
    assert read_all(log) == kept


def test_below_the_recovery_point_nothing_is_cut_and_damage_is_told_when_it_is_read() -> None:
    files, batches = filled(50)
    files.flip(LOG, len(batches[0]) * 10 + 70, 1)
    log = open_log(files, clean=False, recovery_point=80)
    assert log.log_end_offset == 100
    with pytest.raises(CorruptBatchError):
        log.read(20, 1000, up_to_offset=100, min_one=True)
    assert log.read(80, 10**6, up_to_offset=100, min_one=True) == b"".join(batches[40:])


def test_damage_right_below_the_recovery_point_leaves_what_lies_behind_it() -> None:
    files, batches = filled(50)
    for path in (LOG, LOG.replace(".log", ".index"), LOG.replace(".log", ".timeindex")):
        if path != LOG and files.exists(path):
            files.remove(path)
    files.flip(LOG, len(batches[0]) * 10 + 9, 1)  # The length: nothing leads on from here.
    log = open_log(files, clean=False, recovery_point=30)
    assert log.log_end_offset == 100
    assert log.read(30, 10**6, up_to_offset=100, min_one=True) == b"".join(batches[15:])


def test_damage_to_the_last_batch_below_the_recovery_point_frees_no_offset() -> None:
    files, batches = filled(50)
    files.flip(LOG, len(batches[0]) * 49 + 70, 1)
    log = open_log(files, clean=False, recovery_point=100)
    assert log.log_end_offset == 100
    batch = batch_of(b"new")
    assert append(log, batch).base_offset == 100
    assert log.read(100, 1000, up_to_offset=101, min_one=True) == stored(batch, 100)
    assert len(log.segments) == 2
    log.close()
    assert open_log(files).log_end_offset == 101


def test_only_what_lies_beyond_the_recovery_point_is_read() -> None:
    files, _ = filled(5000)
    size = len(read_file(files, LOG))
    read = ReadCounter(files)
    open_log(files, clean=False, recovery_point=9_990)
    assert 0 < read.bytes < size / 5
    open_log(files, clean=False, recovery_point=0)
    assert read.bytes > size


class ReadCounter:
    """Counts the bytes that are read of logs."""

    def __init__(self, files: SimulatedFileSystem) -> None:
        self.bytes = 0
        cached = files.cached

        def counting(path: str) -> bytearray:
            content = cached(path)
            return Counting(content, self) if path.endswith(".log") else content

        files.cached = counting  # type: ignore[method-assign]


class Counting(bytearray):
    """Content that tells how much of it is taken."""

    def __init__(self, content: bytearray, counter: ReadCounter) -> None:
        super().__init__(content)
        self.counter = counter

    def __getitem__(self, key: slice) -> bytearray:  # type: ignore[override]
        taken = super().__getitem__(key)
        self.counter.bytes += len(taken)
        return taken


@pytest.mark.parametrize("recovery_point", [0, 100, 300, 400])
def test_the_latest_timestamp_is_found_wherever_the_scan_starts(recovery_point: int) -> None:
    log, files = memory_log(segment_bytes=1_000_000)
    for number in range(200):
        later = 900 if number in {60, 80} else number
        append(log, batch_of(b"a" * 50, b"b", timestamp=WALL_MS + later))
    log.segments[0].save_indexes()
    (segment,) = open_log(files, clean=False, recovery_point=recovery_point).segments
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (WALL_MS + 901, 121)


def test_pages_that_a_failed_fsync_left_in_the_cache_are_not_taken_for_stored() -> None:
    files, _ = filled(10)
    log = open_log(files, clean=False)
    append(log, batch_of(b"never on the disk"))
    files.fail("sync", suffix=".log", number=errno.EIO)
    with pytest.raises(Exception, match="cannot be flushed"):
        log.flush()
    assert open_log(files, clean=False, recovery_point=20).log_end_offset == 20


@pytest.fixture
def closed() -> PartitionLog:
    files, _ = filled(50)
    log = open_log(files, clean=False)
    log.close()
    return open_log(files)


def test_the_end_is_found_from_the_last_index_entry_on(closed: PartitionLog) -> None:
    (segment,) = closed.segments
    assert find_end(segment) == 100


def test_a_damaged_end_is_no_end(closed: PartitionLog) -> None:
    (segment,) = closed.segments
    segment.log.truncate(segment.size_bytes - 1)
    assert find_end(segment) is None

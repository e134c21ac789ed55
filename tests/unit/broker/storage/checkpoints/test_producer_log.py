import errno

import pytest

from kohort.broker.core.partition.producers import ProducerState
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.log.log import PartitionLog
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import WALL_MS, append, batch_of, memory_log, open_log


def produce(log: PartitionLog, producer_id: int, first: int, count: int) -> None:
    for sequence in range(first, first + count):
        batch = batch_of(b"v" * 100, producer_id=producer_id, base_sequence=sequence)
        append(log, batch)


def sequences(state: ProducerState, producer_id: int) -> list[int]:
    entry = state.get(producer_id)
    return [] if entry is None else [batch.last_sequence for batch in entry.batches]


@pytest.fixture
def killed() -> SimulatedFileSystem:
    """Producer 1 wrote batches 0 to 49 over several segments, and 2 one batch in the first."""
    log, files = memory_log()
    produce(log, 2, 0, 1)
    produce(log, 1, 0, 50)
    log.flush()
    assert len(log.segments) > 2
    return files


def test_after_a_kill_the_last_five_batches_of_every_producer_are_known(
    killed: SimulatedFileSystem,
) -> None:
    log = open_log(killed, clean=False)
    assert sequences(log.producers, 1) == [45, 46, 47, 48, 49]
    assert sequences(log.producers, 2) == [0]
    entry = log.producers.get(1)
    assert entry is not None
    assert entry.batches[-1].base_offset == 50
    assert entry.batches[-1].timestamp == WALL_MS


def test_after_a_clean_stop_the_last_batch_is_known_without_reading_the_log(
    killed: SimulatedFileSystem,
) -> None:
    open_log(killed, clean=False).close()
    killed.fail("pread", suffix=".log", number=5, times=1000)
    log = open_log(killed)
    assert sequences(log.producers, 1) == [49]
    assert sequences(log.producers, 2) == [0]


def snapshots(files: SimulatedFileSystem) -> list[str]:
    names = [entry.name for entry in files.entries("/data/t-0")]
    return sorted(f"/data/t-0/{name}" for name in names if name.endswith(".snapshot"))


@pytest.mark.parametrize("damaged", [1, 2, 10])
def test_damaged_snapshots_are_replaced_by_older_ones_and_more_reading(
    killed: SimulatedFileSystem, damaged: int
) -> None:
    open_log(killed, clean=False).close()
    paths = snapshots(killed)[-damaged:]
    for path in paths:
        killed.flip(path, 20, 1)
    log = open_log(killed)
    assert sequences(log.producers, 1)[-1] == 49
    assert sequences(log.producers, 2) == [0]
    assert not any(killed.exists(path) for path in paths)


def test_a_producer_whose_batches_are_deleted_lives_on_in_the_snapshots() -> None:
    log, files = memory_log()
    produce(log, 2, 0, 1)
    produce(log, 1, 0, 50)
    log.delete_records_before(45, wall_ms=WALL_MS)
    again = open_log(files, clean=False)
    assert sequences(again.producers, 2) == [0]


def test_a_snapshot_left_unsynced_by_a_kill_is_durable_before_its_batches_are_deleted() -> None:
    log, files = memory_log()
    produce(log, 2, 0, 1)
    produce(log, 1, 0, 50)
    again = open_log(files, clean=False)
    again.delete_records_before(45, wall_ms=WALL_MS)
    again.flush()
    files.lose_power(lambda _count: 0)
    last = open_log(files, clean=False, recovery_point=51, log_start_offset=45)
    assert last.segments[0].base_offset > 1
    assert sequences(last.producers, 2) == [0]


def test_no_batch_is_deleted_if_its_snapshot_cannot_be_made_durable() -> None:
    log, files = memory_log()
    produce(log, 1, 0, 50)
    files.fail("sync", suffix=".snapshot", number=errno.EIO)
    count = len(log.segments)
    with pytest.raises(StorageError):
        log.delete_records_before(45, wall_ms=WALL_MS)
    assert log.failed
    assert len(log.segments) == count


@pytest.mark.parametrize("recovery_point", [0, 1])
def test_damaged_snapshots_are_replaced_before_their_batches_are_deleted(
    killed: SimulatedFileSystem, recovery_point: int
) -> None:
    for path in snapshots(killed):
        killed.flip(path, 20, 1)
    log = open_log(killed, clean=False, recovery_point=recovery_point)
    log.delete_records_before(45, wall_ms=WALL_MS)
    killed.sync_directory("/data/t-0")
    killed.lose_power(lambda _count: 0)
    again = open_log(killed, clean=False, recovery_point=51, log_start_offset=45)
    assert again.segments[0].base_offset > 1
    assert sequences(again.producers, 2) == [0]


def test_damage_in_the_log_hides_producers_only_in_its_segment(
    killed: SimulatedFileSystem,
) -> None:
    log = open_log(killed, clean=False)
    log.close()
    killed.flip(log.segments[1].path(".log"), 7, 1)
    for path in snapshots(killed):
        killed.flip(path, 20, 1)
    again = open_log(killed)
    assert sequences(again.producers, 1)[-1] == 49


def test_a_batch_before_a_roll_is_recognised_after_a_kill() -> None:
    """A snapshot has the last batch of each producer; several may be in flight."""
    log, files = memory_log()
    for sequence in range(7):
        append(log, batch_of(b"v", producer_id=1, base_sequence=sequence))
    append(log, batch_of(b"v", producer_id=2, base_sequence=0))
    log.roll(wall_ms=WALL_MS)
    append(log, batch_of(b"v", producer_id=2, base_sequence=1))
    log.flush()
    log = open_log(files, clean=False, recovery_point=log.log_end_offset)
    assert sequences(log.producers, 1) == [2, 3, 4, 5, 6]
    assert sequences(log.producers, 2) == [0, 1]

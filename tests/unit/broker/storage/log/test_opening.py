import errno
from pathlib import Path

import pytest

from kohort.broker.storage.checkpoints.leader_epochs import read_leader_epochs
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.filesystem import OsFileSystem
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.log.opening import OpeningTerms
from kohort.protocol.records.batch import read_header
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import (
    DIRECTORY,
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


def test_a_log_that_lost_its_segments_starts_where_it_was_noted_to_start() -> None:
    files = SimulatedFileSystem()
    files.make_directory(str(DIRECTORY))
    log = open_log(files, log_start_offset=500)
    assert append(log, batch_of(b"v")).base_offset == 500
    assert log.log_start_offset == 500


def test_after_a_clean_stop_no_log_and_no_index_is_opened(tmp_path: Path) -> None:
    log = open_log(OsFileSystem(), tmp_path / "t-0")
    batches = fill(log, 100)
    log.close()
    files = OsFileSystem()
    log = open_log(files, tmp_path / "t-0")
    assert files.open_count == 0
    assert log.log_end_offset == 200
    assert read_all(log) == batches


def test_without_its_last_snapshot_the_end_is_looked_for() -> None:
    log, files = memory_log()
    fill(log, 100)
    log.close()
    files.remove("/data/t-0/00000000000000000200.snapshot")
    assert open_log(files).log_end_offset == 200


def test_a_start_noted_below_the_log_is_brought_inside_and_one_behind_it_is_its_end() -> None:
    log, files = memory_log()
    fill(log, 100)
    log.delete_records_before(100, wall_ms=WALL_MS)
    first = log.segments[0].base_offset
    log.close()
    assert open_log(files, log_start_offset=0).log_start_offset == first > 0
    assert open_log(files, log_start_offset=150).log_start_offset == 150
    # DeleteRecords came to there, so records were there, though a power loss took them.
    log = open_log(files, log_start_offset=1000)
    assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)


def test_old_snapshots_are_kept_only_where_segments_begin() -> None:
    log, files = memory_log()
    for _ in range(3):
        fill(log, 30)
        log.close()
        log = open_log(files)
    bases = {segment.base_offset for segment in log.segments}
    names = [entry.name for entry in files.entries("/data/t-0")]
    snapshots = {int(name[:20]) for name in names if name.endswith(".snapshot")}
    assert snapshots == bases - {0} | {180}


@pytest.mark.parametrize("damage", ["missing", "flipped", "empty"])
def test_leader_epochs_that_are_not_readable_are_taken_from_the_batches(damage: str) -> None:
    log, files = memory_log()
    for epoch in (0, 0, 3, 3, 7):
        batch = batch_of(b"v" * 100)
        log.append(batch, read_header(batch), leader_epoch=epoch, wall_ms=WALL_MS)
    log.close()
    path = "/data/t-0/leader-epoch-checkpoint"
    if damage == "missing":
        files.remove(path)
    elif damage == "flipped":
        files.flip(path, 8, 1)
    else:
        files.file(path).truncate(0)
    log = PartitionLog.open(
        DIRECTORY, settings(), OpeningTerms(wall_ms=WALL_MS, clean_shutdown=True), files=files
    )
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert log.end_offset_for_epoch(5) == (3, 4)
    assert log.end_offset_for_epoch(7) == (7, 5)
    assert read_leader_epochs(files, str(DIRECTORY)) == [(0, 0), (3, 2), (7, 4)]


@pytest.mark.parametrize("clean", [True, False])
def test_batches_of_later_epochs_are_read_though_the_checksum_beside_the_file_is_stale(
    *, clean: bool
) -> None:
    """Kafka rewrites its checkpoints and does not know of our checksums."""
    log, files = memory_log()
    batches = []
    for epoch in (0, 0, 3, 3, 7):
        batch = batch_of(b"v" * 100)
        at = log.append(batch, read_header(batch), leader_epoch=epoch, wall_ms=WALL_MS)
        batches.append(stored(batch, at.base_offset, epoch))
    log.close()
    path = "/data/t-0/leader-epoch-checkpoint"
    files.create(path).pwritev([b"0\n3\n0 0\n3 2\n7 4\n\n"], 0)
    log = open_log(files, clean=clean)
    assert read_all(log) == batches
    assert log.end_offset_for_epoch(3) == (3, 4)


def test_a_leader_epoch_goes_with_the_batches_that_were_cut_off() -> None:
    log, files = memory_log(segment_bytes=1_000_000)
    batch = batch_of(b"v" * 100)
    for epoch in (0, 0, 3):
        log.append(batch, read_header(batch), leader_epoch=epoch, wall_ms=WALL_MS)
    files.file("/data/t-0/00000000000000000000.log").truncate(2 * len(batch) + 50)
    log = PartitionLog.open(
        DIRECTORY, settings(), OpeningTerms(wall_ms=WALL_MS, clean_shutdown=False), files=files
    )
    assert log.log_end_offset == 2
    assert log.end_offset_for_epoch(3) is None
    assert log.end_offset_for_epoch(0) == (0, 2)


def test_a_full_disk_does_not_keep_a_log_from_being_opened_and_read() -> None:
    log, files = memory_log()
    batches = fill(log, 100)
    log.close()
    files.remove("/data/t-0/leader-epoch-checkpoint")
    files.space_left = 0
    assert read_all(open_log(files)) == batches


def test_what_the_file_system_refuses_is_a_storage_error_that_names_the_directory() -> None:
    log, files = memory_log()
    fill(log, 10)
    files.fail("pread", suffix=".log", number=errno.EIO)
    with pytest.raises(StorageError, match="/data/t-0 cannot be opened"):
        open_log(files, clean=False)
    assert open_log(files, clean=False).log_end_offset == 20

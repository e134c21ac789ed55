import errno
from pathlib import Path

import pytest

from kohort.broker.storage.errors import CorruptBatchError, OffsetOutOfRangeError, StorageError
from kohort.broker.storage.filesystem import OsFileSystem
from kohort.broker.storage.layout import is_deleted_directory
from kohort.protocol.errors import ErrorCode
from tests.support.records.storage_tools import (
    WALL_MS,
    append,
    batch_of,
    fill,
    memory_log,
    open_log,
    read_all,
)


@pytest.mark.parametrize("offset", [-1, 10, 201])
def test_an_offset_outside_of_the_log_is_out_of_range(offset: int) -> None:
    log, _ = memory_log()
    fill(log, 100)
    log.delete_records_before(11, wall_ms=WALL_MS)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        log.read(offset, 100, up_to_offset=200, min_one=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_that_the_disk_refuses_is_a_storage_error_and_may_work_again() -> None:
    log, files = memory_log()
    batches = fill(log, 3)
    files.fail("pread", suffix=".log", number=errno.EIO)
    with pytest.raises(StorageError):
        log.read(0, 10**6, up_to_offset=6, min_one=True)
    assert read_all(log) == batches


def test_retention_deletes_what_is_expired_and_moves_the_start() -> None:
    log, files = memory_log(retention_ms=1000)
    batches = fill(log, 100)
    count = len(log.segments)
    assert log.enforce_retention(wall_ms=WALL_MS, up_to_offset=200) == 0
    deleted = log.enforce_retention(wall_ms=WALL_MS + 1500, up_to_offset=200)
    assert 0 < deleted < count
    assert log.log_start_offset == log.segments[0].base_offset > 0
    assert read_all(log) == batches[log.log_start_offset // 2 :]
    assert log.enforce_retention(wall_ms=WALL_MS + 10_000, up_to_offset=200) == count - deleted
    assert (log.log_start_offset, log.size_bytes) == (200, 0)
    deleted_files = [entry.name for entry in files.entries("/data/t-0") if "deleted" in entry.name]
    assert deleted_files
    assert log.remove_deleted_files(wall_ms=WALL_MS + 61_499) == 0
    log.remove_deleted_files(wall_ms=WALL_MS + 70_000)
    assert not [entry for entry in files.entries("/data/t-0") if "deleted" in entry.name]


def test_a_segment_that_cannot_be_deleted_stays_and_the_log_works_on() -> None:
    log, files = memory_log()
    batches = fill(log, 100)
    files.remove(log.segments[0].path(".log"))
    with pytest.raises(StorageError):
        log.delete_records_before(200, wall_ms=WALL_MS)
    assert not log.failed
    assert append(log, batch_of(b"v")).base_offset == len(batches) * 2


def test_a_timestamp_hidden_by_damage_is_refused() -> None:
    log, files = memory_log()
    fill(log, 100)
    log.close()
    log = open_log(files)
    files.flip(log.segments[0].path(".log"), 40, 1)
    with pytest.raises(CorruptBatchError):
        log.offset_for_timestamp(WALL_MS, up_to_offset=200)


def test_a_deleted_log_is_out_of_the_way_and_refuses_use(tmp_path: Path) -> None:
    files = OsFileSystem()
    log = open_log(files, tmp_path / "my-topic-0")
    fill(log, 100)
    target = log.delete("ab" * 16)
    assert target.parent == tmp_path
    assert is_deleted_directory(target.name)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    with pytest.raises(StorageError, match="deleted"):
        append(log, batch_of(b"v"))
    assert open_log(files, tmp_path / "my-topic-0").log_end_offset == 0
    files.remove_tree(str(target))
    assert not target.exists()

import errno
import threading
from pathlib import Path

import pytest

from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.filesystem import OsFileSystem
from kohort.broker.storage.log.log import PartitionLog
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


def test_a_failed_sync_of_the_directory_fails_the_log_as_well() -> None:
    log, files = memory_log()
    append(log, batch_of(b"v"))
    files.fail("sync_directory", suffix="t-0", number=errno.EIO)
    with pytest.raises(StorageError):
        log.flush()
    assert log.failed


def test_a_log_that_failed_does_not_look_closed_to_the_next_start() -> None:
    log, files = memory_log()
    append(log, batch_of(b"v"))
    files.fail("sync", suffix=".log", number=errno.EIO)
    with pytest.raises(StorageError):
        log.flush()
    log.close()
    assert not files.exists("/data/t-0/00000000000000000001.snapshot")


def test_segments_deleted_during_a_flush_do_not_fail_it() -> None:
    log, files = memory_log()
    fill(log, 100)
    sync_file = files.sync_file

    def delete_first(path: str) -> None:
        files.sync_file = sync_file  # type: ignore[method-assign]
        log.delete_records_before(150, wall_ms=WALL_MS)
        sync_file(path)

    files.sync_file = delete_first  # type: ignore[method-assign]
    log.flush()
    assert log.flushed_offset == 200
    assert log.log_start_offset == 150


def test_older_segments_are_on_the_disk_before_newer_ones() -> None:
    log, files = memory_log()
    fill(log, 100)
    sync_file, synced = files.sync_file, list[str]()

    def note(path: str) -> None:
        synced.append(path)
        sync_file(path)

    files.sync_file = note  # type: ignore[method-assign]
    log.flush()
    logs = [path for path in synced if path.endswith(".log")]
    assert len(logs) > 2
    assert logs == sorted(logs)


def test_batches_appended_during_a_flush_are_for_the_next_one() -> None:
    log, files = memory_log(segment_bytes=1_000_000)
    fill(log, 3)
    sync_file = files.sync_file

    def append_more(path: str) -> None:
        files.sync_file = sync_file  # type: ignore[method-assign]
        fill(log, 1)
        sync_file(path)

    files.sync_file = append_more  # type: ignore[method-assign]
    log.flush()
    assert (log.flushed_offset, log.log_end_offset) == (6, 8)
    log.flush()
    assert log.flushed_offset == 8


def test_appends_and_flushes_go_on_at_the_same_time_on_two_threads(tmp_path: Path) -> None:
    log = open_log(OsFileSystem(open_files_max=4), tmp_path / "t-0")
    stop = threading.Event()
    failures: list[BaseException] = []

    def keep_flushing(log: PartitionLog) -> None:
        try:
            while not stop.is_set():
                before = log.log_end_offset
                log.flush()
                assert log.flushed_offset >= before
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=keep_flushing, args=[log])
    thread.start()
    expected = []
    for number in range(800):
        batch = batch_of(b"%d" % number * 20)
        expected.append(stored(batch, append(log, batch).base_offset))
        if number % 300 == 299:
            log.delete_records_before(number - 200, wall_ms=WALL_MS)
    stop.set()
    thread.join()
    assert not failures
    log.flush()
    assert log.flushed_offset == 800
    assert read_all(log) == expected[log.log_start_offset :]
    log.close()


@pytest.mark.parametrize("path", ["00000000000000000000.log", "00000000000000000000.timeindex"])
def test_a_close_that_cannot_make_everything_durable_says_so(path: str) -> None:
    log, files = memory_log()
    append(log, batch_of(b"v"))
    files.fail("sync", suffix=path, number=errno.EIO)
    with pytest.raises(StorageError):
        log.close()
    assert log.failed

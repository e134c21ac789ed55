import pytest

from kohort.broker.storage.log.directory import DeletedFiles, scan_directory
from kohort.broker.storage.segment.segment import LogSegment
from kohort.testing.simulated_filesystem import SimulatedFileSystem


def directory_with(*names: str) -> SimulatedFileSystem:
    files = SimulatedFileSystem()
    files.make_directory("/t-0")
    for name in names:
        files.create(f"/t-0/{name}")
    return files


def names_in(files: SimulatedFileSystem) -> set[str]:
    return {entry.name for entry in files.entries("/t-0")}


def test_what_a_crash_left_is_tidied_up() -> None:
    files = directory_with(
        "00000000000000000345.log",
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.deleted",
        "00000000000000000000.index",
        "00000000000000000345.log.cleaned",
        "leader-epoch-checkpoint.tmp",
    )
    scan_directory(files, "/t-0")
    assert names_in(files) == {"00000000000000000345.log"}


def deletable() -> tuple[SimulatedFileSystem, LogSegment, DeletedFiles]:
    files = directory_with(
        "00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.snapshot"
    )
    return files, LogSegment(files, "/t-0", 0, {}), DeletedFiles(files)


def test_a_deleted_segment_is_renamed_at_once_and_removed_after_the_delay() -> None:
    files, segment, deleted = deletable()
    deleted.delete_segment(segment, 1000)
    assert segment.is_deleted
    assert all(name.endswith(".deleted") for name in names_in(files))
    assert deleted.remove_due(1099, 100) == 0
    assert deleted.remove_due(1100, 100) == 3
    assert names_in(files) == set()


def test_a_segment_deleted_twice_leaves_files_that_each_have_their_delay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """This happens when it is compacted twice within file.delete.delay.ms."""
    files, segment, deleted = deletable()
    deleted.delete_segment(segment, 1000)
    files.create("/t-0/00000000000000000000.log")
    again = LogSegment(files, "/t-0", 0, {})
    deleted.delete_segment(again, 1050)
    assert len(names_in(files)) == 4
    assert all(name.endswith(".deleted") for name in names_in(files))
    assert deleted.remove_due(1100, 100) == 3
    assert len(names_in(files)) == 1
    files.create("/t-0/00000000000000000000.log")
    deleted.delete_segment(LogSegment(files, "/t-0", 0, {}), 1120)
    assert len(names_in(files)) == 2
    assert deleted.remove_due(1220, 100) == 2
    assert names_in(files) == set()
    assert not caplog.records


def test_a_segment_whose_log_cannot_be_renamed_is_not_deleted() -> None:
    files, segment, deleted = deletable()
    files.remove("/t-0/00000000000000000000.log")
    with pytest.raises(OSError):
        deleted.delete_segment(segment, 1000)
    assert not segment.is_deleted
    assert files.exists("/t-0/00000000000000000000.index")


def test_a_file_that_cannot_be_removed_does_not_stop_the_others() -> None:
    files, segment, deleted = deletable()
    deleted.delete_segment(segment, 1000)
    files.remove("/t-0/00000000000000000000.log.deleted")
    assert deleted.remove_due(2000, 0) == 3
    assert names_in(files) == set()

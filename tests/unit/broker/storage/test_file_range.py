"""Ranges of files: sent or taken from the front, never more or other than was promised."""

import os
import socket
from pathlib import Path

import pytest

from kohort.broker.storage.file_range import FileRange, is_cached
from kohort.broker.storage.filesystem import OsFile, OsFileSystem

CONTENT = bytes(range(256)) * 1024


@pytest.fixture
def file(tmp_path: Path) -> OsFile:
    (tmp_path / "f").write_bytes(CONTENT)
    return OsFileSystem(open_files_max=8).file(str(tmp_path / "f"))


def given(file: OsFile, start: int, stop: int) -> FileRange:
    found = file.range(start, stop)
    if found is None:
        pytest.skip("this kernel does not say what is in memory")
    return found


def test_a_range_is_sent_and_taken_from_its_front(file: OsFile) -> None:
    found = given(file, 1_000, len(CONTENT))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        assert found.take(10) == CONTENT[1_000:1_010]
        sent = found.send_to(ours.fileno())
        assert theirs.recv(sent, socket.MSG_WAITALL) == CONTENT[1_010 : 1_010 + sent]
        assert len(found) == len(CONTENT) - 1_000 - 10 - sent


def test_a_range_is_of_the_file_that_was_open_whatever_has_its_name_now(
    file: OsFile, tmp_path: Path
) -> None:
    found = given(file, 0, len(CONTENT))
    (tmp_path / "other").write_bytes(bytes(len(CONTENT)))
    (tmp_path / "other").replace(file.path)
    file.close()
    assert found.take(len(CONTENT)) == CONTENT


def test_a_file_that_was_shortened_is_noticed_by_every_way_to_its_bytes(file: OsFile) -> None:
    ranges = [given(file, 0, len(CONTENT)) for _ in range(2)]
    os.truncate(file.path, 0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for use in (
            lambda: ranges[0].send_to(ours.fileno()),
            lambda: ranges[1].take(10),
        ):
            with pytest.raises(OSError, match="ends at or before 0 instead of at 262144"):
                use()


def test_no_more_ranges_are_given_than_their_part_of_the_open_files(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    files = OsFileSystem(open_files_max=8 * 20)
    file = files.file(str(tmp_path / "f"))
    ranges = [given(file, 0, 100) for _ in range(20)]
    assert file.range(0, 100) is None
    ranges.pop()
    assert files.range_count == 19
    assert file.range(0, 100) is not None


def test_what_left_the_memory_is_not_cached_and_not_given_as_a_range(file: OsFile) -> None:
    given(file, 0, len(CONTENT))
    file.sync()
    file.drop_cached()
    descriptor = os.open(file.path, os.O_RDONLY)
    try:
        if is_cached(descriptor, 0, len(CONTENT)):
            pytest.skip("this file system keeps everything in memory")
        assert not file.is_cached(5_000, 5_001)
        assert file.range(0, len(CONTENT)) is None
        assert file.pread(1, 5_000) == CONTENT[5_000:5_001]
        assert file.is_cached(5_000, 5_001)
    finally:
        os.close(descriptor)


def test_of_no_bytes_all_are_in_memory(file: OsFile) -> None:
    assert file.is_cached(10, 10)

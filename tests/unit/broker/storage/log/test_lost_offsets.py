"""Bytes of a log that are gone are told, and the offsets they had are never given out again."""

from copy import deepcopy
from dataclasses import dataclass

import pytest

from kohort.broker.storage.filesystem import read_file
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.simulated_filesystem import SimulatedFileSystem
from kohort.protocol.records.batch import split_batches
from tests.storage_tools import (
    DIRECTORY,
    WALL_MS,
    append,
    batch_of,
    fill,
    read_all,
    settings,
)


@dataclass
class Stopped:
    """A log as a stop left it, with what was noted of it."""

    files: SimulatedFileSystem
    bases: list[int]
    end: int
    size_bytes: int
    starts: list[int]
    """Base offsets of all batches."""

    def cut(self, number: int, batches: int) -> int:
        """Keep so many batches of a segment; the offset behind them."""
        path = f"{DIRECTORY}/{self.bases[number]:020}.log"
        stop, position = self.bases[number], 0
        for count, (header, batch) in enumerate(split_batches(read_file(self.files, path))):
            if count == batches:
                break
            stop, position = header.next_offset, position + len(batch)
        self.files.file(path).truncate(position)
        self.files.file(path).sync()
        return stop

    def remove(self, number: int) -> None:
        self.files.remove(f"{DIRECTORY}/{self.bases[number]:020}.log")

    def opened(self, *, clean: bool = True, is_size_noted: bool = True) -> PartitionLog:
        return PartitionLog.open(
            DIRECTORY,
            settings(),
            wall_ms=WALL_MS,
            clean_shutdown=clean,
            recovery_point=self.end,
            noted_bytes=self.size_bytes if is_size_noted else None,
            leader_epoch_max=0,
            files=self.files,
        )


@pytest.fixture(scope="module")
def original() -> Stopped:
    files = SimulatedFileSystem()
    files.make_directory("/data")
    log = PartitionLog.open(
        DIRECTORY, settings(), wall_ms=WALL_MS, clean_shutdown=True, files=files
    )
    fill(log, 70)
    bases, end = [one.base_offset for one in log.segments], log.log_end_offset
    starts = [header.base_offset for batch in read_all(log) for header, _ in split_batches(batch)]
    size_bytes = log.size_bytes
    log.close()
    assert len(bases) == 3
    return Stopped(files, bases, end, size_bytes, starts)


@pytest.fixture
def stopped(original: Stopped) -> Stopped:
    return deepcopy(original)


def test_a_log_that_has_everything_has_lost_nothing(
    stopped: Stopped, caplog: pytest.LogCaptureFixture
) -> None:
    for clean in (True, False):
        assert stopped.opened(clean=clean).lost_offsets == 0
    assert "lost" not in caplog.text


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kept", [0, 1, 5])
def test_an_end_that_is_cut_off_between_batches_is_told_and_not_given_out_again(
    stopped: Stopped, caplog: pytest.LogCaptureFixture, *, clean: bool, kept: int
) -> None:
    found = stopped.cut(2, kept)
    log = stopped.opened(clean=clean)
    assert f"offsets {found} to {stopped.end - 1} are lost" in caplog.text
    assert log.lost_offsets == stopped.end - found
    batch = batch_of(b"new")
    assert append(log, batch).base_offset == stopped.end
    starts = [header.base_offset for data in read_all(log) for header, _ in split_batches(data)]
    assert starts == [*(start for start in stopped.starts if start < found), stopped.end]
    log.close()
    # The next start finds nothing new.
    stopped.end, stopped.size_bytes = log.log_end_offset, log.size_bytes
    assert stopped.opened().lost_offsets == 0


@pytest.mark.parametrize("kept", [0, 1, 5])
def test_a_sealed_segment_that_is_cut_off_between_batches_is_told_after_a_clean_stop(
    stopped: Stopped, caplog: pytest.LogCaptureFixture, kept: int
) -> None:
    found = stopped.cut(1, kept)
    log = stopped.opened()
    assert f"offsets {found} to {stopped.bases[2] - 1} are lost" in caplog.text
    assert log.lost_offsets == stopped.bases[2] - found
    assert log.log_end_offset == stopped.end
    starts = [header.base_offset for data in read_all(log) for header, _ in split_batches(data)]
    assert starts == [
        start for start in stopped.starts if start < found or start >= stopped.bases[2]
    ]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_segment_whose_log_file_is_gone_is_told_after_a_clean_stop(
    stopped: Stopped, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    stopped.remove(number)
    log = stopped.opened()
    stop = [*stopped.bases[1:], stopped.end][number]
    assert f"offsets {stopped.bases[number]} to {stop - 1} are lost" in caplog.text
    assert log.lost_offsets == stop - stopped.bases[number]
    assert append(log, batch_of(b"new")).base_offset == stopped.end


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_whose_files_are_all_gone_goes_on_behind_what_it_had(
    stopped: Stopped, caplog: pytest.LogCaptureFixture, *, clean: bool
) -> None:
    for entry in stopped.files.entries(str(DIRECTORY)):
        stopped.files.remove(f"{DIRECTORY}/{entry.name}")
    log = stopped.opened(clean=clean)
    assert f"offsets 0 to {stopped.end - 1} are lost" in caplog.text
    assert append(log, batch_of(b"new")).base_offset == stopped.end


def test_without_a_noted_size_the_snapshot_proves_an_empty_end(stopped: Stopped) -> None:
    stopped.cut(2, 0)
    stopped.end, end = 0, stopped.end
    log = stopped.opened(is_size_noted=False)
    assert log.lost_offsets == end - stopped.bases[2]
    assert append(log, batch_of(b"new")).base_offset == end

"""Bytes of a log that are gone are told, and the offsets they had are never given out again."""

from copy import deepcopy
from dataclasses import dataclass

import pytest

from kohort.broker.storage.filesystem import read_file
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.log.opening import OpeningTerms
from kohort.protocol.records.batch import split_batches
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import (
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

    def remove(self, number: int, *suffixes: str) -> None:
        for suffix in suffixes or (".log",):
            self.files.remove(f"{DIRECTORY}/{self.bases[number]:020}{suffix}")

    def opened(
        self, *, clean: bool = True, is_size_noted: bool = True, policy: str = "delete"
    ) -> PartitionLog:
        return PartitionLog.open(
            DIRECTORY,
            settings(cleanup_policy=(policy,)),
            OpeningTerms(
                wall_ms=WALL_MS,
                clean_shutdown=clean,
                recovery_point=self.end,
                noted_bytes=self.size_bytes if is_size_noted else None,
                leader_epoch_max=0,
            ),
            files=self.files,
        )


@pytest.fixture(scope="module")
def original() -> Stopped:
    files = SimulatedFileSystem()
    files.make_directory("/data")
    log = PartitionLog.open(
        DIRECTORY, settings(), OpeningTerms(wall_ms=WALL_MS, clean_shutdown=True), files=files
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
@pytest.mark.parametrize("clean", [True, False])
def test_a_sealed_segment_that_is_cut_off_between_batches_is_told(
    stopped: Stopped, caplog: pytest.LogCaptureFixture, *, clean: bool, kept: int
) -> None:
    found = stopped.cut(1, kept)
    log = stopped.opened(clean=clean)
    assert f"offsets {found} to {stopped.bases[2] - 1} are lost" in caplog.text
    assert log.lost_offsets == stopped.bases[2] - found
    assert log.log_end_offset == stopped.end
    starts = [header.base_offset for data in read_all(log) for header, _ in split_batches(data)]
    assert starts == [
        start for start in stopped.starts if start < found or start >= stopped.bases[2]
    ]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("is_size_noted", [True, False])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_segment_whose_log_file_is_gone_is_told(
    stopped: Stopped,
    caplog: pytest.LogCaptureFixture,
    *,
    number: int,
    clean: bool,
    policy: str,
    is_size_noted: bool,
) -> None:
    stopped.remove(number)
    log = stopped.opened(clean=clean, policy=policy, is_size_noted=is_size_noted)
    start, stop = stopped.bases[number], [*stopped.bases[1:], stopped.end][number]
    assert f"offsets {start} to {stop - 1} are lost" in caplog.text
    assert log.lost_offsets == stop - start
    starts = [header.base_offset for data in read_all(log) for header, _ in split_batches(data)]
    assert starts == [one for one in stopped.starts if not start <= one < stop]
    assert append(log, batch_of(b"new")).base_offset == stopped.end


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_of_which_nothing_is_left_is_told_by_where_the_next_one_begins(
    stopped: Stopped, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    stopped.remove(number, ".log", ".index", ".timeindex")
    stop = [*stopped.bases[1:], stopped.end][number]
    log = stopped.opened(clean=False)
    assert f"offsets {stopped.bases[number]} to {stop - 1} are lost" in caplog.text
    assert log.log_end_offset == stopped.end


def test_a_gap_that_a_compaction_may_have_left_is_no_loss(
    stopped: Stopped, caplog: pytest.LogCaptureFixture
) -> None:
    stopped.remove(1, ".log", ".index", ".timeindex")
    stopped.end = stopped.bases[1] + 10  # Where Kafka's recovery point may be.
    log = stopped.opened(clean=False, policy="compact")
    assert log.lost_offsets == 0
    assert "lost" not in caplog.text
    assert [one.base_offset for one in log.segments] == [stopped.bases[0], stopped.bases[2]]


def test_what_lies_behind_a_gap_in_a_log_of_kafka_is_kept(
    stopped: Stopped, caplog: pytest.LogCaptureFixture
) -> None:
    stopped.remove(1, ".log", ".index", ".timeindex")
    log = PartitionLog.open(
        DIRECTORY,
        settings(cleanup_policy=("delete",)),  # Where its own could not be read.
        OpeningTerms(wall_ms=WALL_MS, clean_shutdown=False, is_known=False),
        files=stopped.files,
    )
    assert [one.base_offset for one in log.segments] == [stopped.bases[0], stopped.bases[2]]
    assert log.log_end_offset == stopped.end
    assert log.lost_offsets == 0
    assert "lost" not in caplog.text


def test_the_index_of_an_end_that_is_gone_proves_how_far_it_reached(
    stopped: Stopped, caplog: pytest.LogCaptureFixture
) -> None:
    stopped.remove(2)
    end, stopped.end = stopped.end, stopped.bases[2]
    log = stopped.opened(clean=False)
    assert "are lost" in caplog.text
    # What lies behind the last entry of the index is not known.
    assert stopped.bases[2] < log.log_end_offset <= end
    assert append(log, batch_of(b"new")).base_offset == log.log_end_offset - 1


def test_an_end_that_is_gone_is_told_though_nothing_tells_how_far_it_reached(
    stopped: Stopped, caplog: pytest.LogCaptureFixture
) -> None:
    stopped.remove(2)
    path = f"{DIRECTORY}/{stopped.bases[2]:020}.index"
    stopped.files.file(path).truncate(0)
    stopped.end = stopped.bases[2]
    assert stopped.opened(clean=False).log_end_offset == stopped.bases[2]
    assert f"the .log of the segment at {stopped.bases[2]} is missing" in caplog.text


@pytest.mark.parametrize(
    ("number", "policy", "name"), [(0, "delete", ".log.deleted"), (1, "compact", ".log.1.deleted")]
)
def test_a_deletion_that_was_cut_short_is_no_loss(
    stopped: Stopped, caplog: pytest.LogCaptureFixture, number: int, policy: str, name: str
) -> None:
    path = f"{DIRECTORY}/{stopped.bases[number]:020}"
    stopped.files.rename(f"{path}.log", f"{path}{name}")
    log = stopped.opened(clean=False, policy=policy)
    assert log.lost_offsets == 0
    assert "lost" not in caplog.text
    assert not stopped.files.exists(f"{path}.index")
    # A start that was cut short must not make it one either.
    assert stopped.opened(clean=False, policy=policy).lost_offsets == 0


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

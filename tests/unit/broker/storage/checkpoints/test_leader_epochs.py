import errno

import pytest

from kohort.broker.storage.checkpoints.leader_epochs import (
    EpochRun,
    EpochStart,
    LeaderEpochs,
    believable_epochs,
    parse_leader_epochs,
    read_leader_epochs,
)
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import read_file
from kohort.testing.simulated_filesystem import SimulatedFileSystem


def epochs_of(*starts: tuple[int, int]) -> tuple[LeaderEpochs, SimulatedFileSystem]:
    files = SimulatedFileSystem()
    files.make_directory("/t-0")
    epochs = LeaderEpochs(files, "/t-0")
    for epoch, start_offset in starts:
        epochs.assign(epoch, start_offset)
    return epochs, files


def test_the_file_is_what_kafka_writes() -> None:
    _, files = epochs_of((0, 0), (3, 120))
    assert read_file(files, "/t-0/leader-epoch-checkpoint") == b"0\n2\n0 0\n3 120\n"
    assert read_leader_epochs(files, "/t-0") == [(0, 0), (3, 120)]


def test_no_file_is_none() -> None:
    files = SimulatedFileSystem()
    files.make_directory("/t-0")
    assert read_leader_epochs(files, "/t-0") is None


def test_an_offset_belongs_to_the_epoch_that_started_last_before_it() -> None:
    epochs, _ = epochs_of((1, 10), (3, 120))
    assert [epochs.epoch_at(offset) for offset in (9, 10, 119, 120, 9999)] == [-1, 1, 1, 3, 3]


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, None),
        (0, (0, 10)),
        (1, (1, 120)),
        (2, (1, 120)),
        (3, (3, 500)),
        (4, None),
    ],
)
def test_an_epoch_ends_where_the_next_one_starts(
    epoch: int, answer: tuple[int, int] | None
) -> None:
    epochs, _ = epochs_of((1, 10), (3, 120))
    assert epochs.end_offset(epoch, 500) == answer


def test_an_empty_log_knows_no_epoch() -> None:
    epochs, _ = epochs_of()
    assert epochs.latest == -1
    assert epochs.end_offset(0, 0) is None


def test_only_a_higher_epoch_is_assigned_and_it_replaces_those_that_wrote_nothing() -> None:
    epochs, _ = epochs_of((1, 10), (3, 120), (2, 130), (3, 140), (5, 120))
    assert epochs.starts == (EpochStart(1, 10), EpochStart(5, 120))


def test_an_assignment_that_cannot_be_written_is_not_made() -> None:
    epochs, files = epochs_of((1, 10))
    files.fail("pwritev", suffix=".tmp", number=errno.ENOSPC)
    with pytest.raises(OSError):
        epochs.assign(2, 20)
    assert epochs.latest == 1


def test_epochs_are_forgotten_with_the_records_they_wrote() -> None:
    epochs, files = epochs_of((1, 10), (3, 120), (4, 300))
    epochs.truncate_from(300)
    assert list(epochs.starts) == [(1, 10), (3, 120)]
    epochs.truncate_before(120)
    assert list(epochs.starts) == [(3, 120)]
    assert read_leader_epochs(files, "/t-0") == [(3, 120)]
    epochs.truncate_before(400)
    assert epochs.latest == 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1\n0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0\n",
        b"0\n1\n0 0 0\n",
        b"0\n1\nx 0\n",
        b"0\n1\n-1 0\n",
        b"0\n2\n1 0\n1 5\n",
        b"0\n2\n1 5\n2 5\n",
        b"\xff",
    ],
)
def test_text_that_is_no_checkpoint_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptFileError):
        parse_leader_epochs(content, "leader-epoch-checkpoint")


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([(0, 0, 5), (2, 10, 3)], [(0, 0), (2, 10)]),
        # One damaged batch amid others, to either side, and at both ends.
        ([(0, 0, 5), (64, 10, 1), (0, 12, 3)], [(0, 0)]),
        ([(2, 0, 5), (0, 10, 1), (2, 12, 3)], [(2, 0)]),
        ([(64, 0, 1), (0, 2, 9)], [(0, 2)]),
        ([(0, 0, 9), (1 << 30, 20, 1)], [(0, 0)]),
        ([(0, 0, 9), (1, 20, 1)], [(0, 0), (1, 20)]),
        ([(-1, 0, 4), (0, 8, 1)], [(0, 8)]),
        ([], []),
    ],
)
def test_epochs_are_taken_from_the_batches_but_not_from_a_damaged_one(
    runs: list[tuple[int, int, int]], expected: list[tuple[int, int]]
) -> None:
    assert believable_epochs([EpochRun(*run) for run in runs], 0) == expected

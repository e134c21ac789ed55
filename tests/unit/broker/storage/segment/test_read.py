import pytest

from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.segment.read import read_batches
from kohort.broker.storage.segment.segment import LogSegment
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import fill, memory_log, open_log

COUNT = 40


@pytest.fixture(params=["just appended", "opened again"])
def segment(request: pytest.FixtureRequest) -> LogSegment:
    log, files = memory_log(segment_bytes=1_000_000)
    fill(log, COUNT)
    if request.param == "opened again":
        log.close()
        log = open_log(files)
    return log.segments[0]


def sample() -> list[bytes]:
    log, _ = memory_log(segment_bytes=1_000_000)
    return fill(log, COUNT)


def read(
    segment: LogSegment,
    offset: int,
    max_bytes: int,
    *,
    up_to: int | None = None,
    min_one: bool = True,
    epoch: int = 0,
) -> bytes | None:
    data = read_batches(
        segment,
        offset,
        max_bytes,
        up_to_offset=up_to,
        min_one=min_one,
        epoch_at=lambda _offset: epoch,
    )
    assert data is None or isinstance(data, bytes)
    return data


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_as_many_whole_batches_are_read_as_fit(segment: LogSegment, count: int) -> None:
    batches = sample()
    size = len(batches[0])
    for first in (0, 1, 5, 19):
        expected = b"".join(batches[first : first + count])
        for spare in (0, 1, size - 1):
            for offset in (2 * first, 2 * first + 1):
                assert read(segment, offset, count * size + spare) == expected


def test_a_first_batch_that_is_too_large_comes_whole_or_not_at_all(segment: LogSegment) -> None:
    batches = sample()
    for max_bytes in (0, 1, len(batches[0]) - 1):
        assert read(segment, 10, max_bytes, min_one=True) == batches[5]
        assert read(segment, 10, max_bytes, min_one=False) == b""


def test_nothing_at_or_above_the_limit_is_read(segment: LogSegment) -> None:
    batches = sample()
    assert read(segment, 4, 10**6, up_to=10) == b"".join(batches[2:5])
    assert read(segment, 4, 10**6, up_to=4) == b""
    assert read(segment, 4, 10**6, up_to=2) == b""
    assert read(segment, 4, 10**6, up_to=9) == b"".join(batches[2:4])
    assert read(segment, 4, 0, up_to=4, min_one=True) == b""


def test_behind_the_last_batch_there_is_nothing(segment: LogSegment) -> None:
    assert read(segment, 2 * COUNT, 1000) is None
    assert read(segment, 2 * COUNT - 1, 1000) == sample()[-1]


@pytest.fixture
def opened() -> tuple[LogSegment, SimulatedFileSystem]:
    log, files = memory_log(segment_bytes=1_000_000)
    fill(log, COUNT)
    log.close()
    return open_log(files).segments[0], files


def test_a_read_ends_before_a_damaged_batch_and_then_says_so(
    opened: tuple[LogSegment, SimulatedFileSystem],
) -> None:
    segment, files = opened
    batches = sample()
    size = len(batches[0])
    files.flip(segment.path(".log"), 7 * size + 80, 4)
    assert read(segment, 8, 10**6) == b"".join(batches[4:7])
    with pytest.raises(CorruptBatchError):
        read(segment, 14, 10**6)
    assert read(segment, 40, 10**6) == b"".join(batches[20:])


def test_a_batch_of_another_leader_epoch_is_not_served(
    opened: tuple[LogSegment, SimulatedFileSystem],
) -> None:
    segment, _ = opened
    with pytest.raises(CorruptBatchError):
        read(segment, 0, 1000, epoch=1)
    assert read(segment, 0, 1000, epoch=-1)


def test_bytes_are_checked_once_and_served_from_then_on(
    opened: tuple[LogSegment, SimulatedFileSystem],
) -> None:
    segment, _ = opened
    size = len(sample()[0])
    read(segment, 10, 3 * size)
    assert segment.is_verified(5 * size, 8 * size)
    assert not segment.is_verified(4 * size, 5 * size)
    read(segment, 16, 10**6)
    assert segment.is_verified(5 * size, COUNT * size)


def test_a_file_that_lost_its_end_is_damage(
    opened: tuple[LogSegment, SimulatedFileSystem],
) -> None:
    segment, files = opened
    read(segment, 0, 10**6)
    files.file(segment.path(".log")).truncate(segment.size_bytes - 1)
    with pytest.raises(CorruptBatchError):
        read(segment, 0, 10**6)

import pytest

from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.filesystem import write_fully
from kohort.broker.storage.segment.search import locate, next_indexed_batch, rebuild_index
from kohort.broker.storage.segment.segment import LogSegment
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import fill, memory_log, open_log

COUNT = 100


@pytest.fixture
def files() -> SimulatedFileSystem:
    """A log of one segment: a hundred batches of two records, an index entry for every other."""
    log, files = memory_log(segment_bytes=1_000_000)
    fill(log, COUNT)
    log.close()
    return files


def segment_of(files: SimulatedFileSystem) -> LogSegment:
    (segment,) = open_log(files).segments
    return segment


def index_path(files: SimulatedFileSystem) -> str:
    return segment_of(files).path(".index")


def check_all(segment: LogSegment) -> None:
    size = segment.size_bytes // COUNT
    for offset in range(2 * COUNT):
        assert locate(segment, offset) == (offset // 2 * size, offset // 2 * 2)
    assert locate(segment, 2 * COUNT) is None


def test_every_offset_is_found_and_what_lies_beyond_is_not(files: SimulatedFileSystem) -> None:
    segment = segment_of(files)
    assert len(segment.index) > 20
    check_all(segment)
    assert not segment.is_index_rebuilt


def test_hints_answer_without_looking(files: SimulatedFileSystem) -> None:
    segment = segment_of(files)
    segment.hint(50, 1234)
    assert locate(segment, 50) == (1234, 50)
    segment.hint(200, segment.size_bytes)
    assert locate(segment, 200) is None


def test_a_missing_index_is_made_again_once_a_walk_is_long(
    files: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.broker.storage.segment.search.UNINDEXED_BYTES_MAX", 5_000)
    monkeypatch.setattr("kohort.broker.storage.segment.search.REBUILD_INTERVAL_BYTES", 300)
    files.remove(index_path(files))
    segment = segment_of(files)
    assert locate(segment, 10) == (5 * segment.size_bytes // COUNT, 10)
    assert len(segment.index) == 0
    check_all(segment)
    assert len(segment.index) > 20


def test_an_index_that_cannot_be_written_is_done_without(files: SimulatedFileSystem) -> None:
    path = index_path(files)
    write_fully(files.file(path), [bytes(8 * 20)], 0)
    files.space_left = 0
    check_all(segment_of(files))


def test_damage_in_the_log_hides_only_what_lies_before_the_next_index_entry(
    files: SimulatedFileSystem,
) -> None:
    segment = segment_of(files)
    size = segment.size_bytes // COUNT
    damaged = 50
    files.flip(segment.path(".log"), damaged * size + 7, 1)
    hidden = []
    for number in range(COUNT):
        try:
            assert locate(segment, 2 * number) == (number * size, 2 * number)
        except CorruptBatchError:
            hidden.append(number)
    assert hidden
    assert hidden[0] == damaged
    assert hidden[-1] - damaged <= 300 // size + 2


def test_an_index_rebuilt_over_damage_still_leads_behind_it(files: SimulatedFileSystem) -> None:
    segment = segment_of(files)
    size = segment.size_bytes // COUNT
    files.flip(segment.path(".log"), 50 * size + 7, 1)
    rebuild_index(segment)
    assert locate(segment, 150) == (75 * size, 150)
    behind = next_indexed_batch(segment, 50 * size)
    assert behind is not None
    assert behind.header.base_offset == behind.position // size * 2 > 100
    assert next_indexed_batch(segment, segment.size_bytes) is None

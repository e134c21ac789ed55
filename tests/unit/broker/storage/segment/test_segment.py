import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.storage.filesystem import read_file
from kohort.broker.storage.segment.segment import (
    HINTS_MAX,
    RANGES_MAX,
    SAVE_ENTRIES,
    LogSegment,
    VerifiedRanges,
)
from kohort.protocol.records.batch import NO_TIMESTAMP, placement_prefix, read_header
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import WALL_MS, batch_of

SPANS = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda ends: (min(ends), max(ends)))


@settings(deadline=None)
@given(st.lists(SPANS, max_size=30), SPANS)
def test_a_range_is_covered_if_every_byte_of_it_was_added(
    added: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    ranges = VerifiedRanges()
    known: set[int] = set()
    for start, stop in added:
        ranges.add(start, stop)
        known |= set(range(start, stop))
    assert ranges.covers(*asked) == known.issuperset(range(*asked))


@settings(deadline=None)
@given(st.lists(SPANS, max_size=30), st.integers(0, 60))
def test_what_was_cut_off_is_not_covered(added: list[tuple[int, int]], size: int) -> None:
    ranges = VerifiedRanges()
    for start, stop in added:
        ranges.add(start, stop)
    ranges.cut(size)
    assert not ranges.covers(size, size + 1)
    assert all(ranges.covers(start, min(stop, size)) for start, stop in added if start < size)


def test_a_reader_that_goes_on_leaves_one_range() -> None:
    ranges = VerifiedRanges()
    for position in range(0, 1000, 10):
        ranges.add(position, position + 10)
    assert len(ranges) == 1


def test_scattered_ranges_are_bounded_and_the_longest_stay() -> None:
    ranges = VerifiedRanges()
    ranges.add(0, 100)
    for number in range(1, 200):
        ranges.add(number * 1000, number * 1000 + 10)
    assert len(ranges) == RANGES_MAX
    assert ranges.covers(0, 100)


def new_segment() -> tuple[LogSegment, SimulatedFileSystem]:
    files = SimulatedFileSystem()
    files.make_directory("/t-0")
    return LogSegment.create(files, "/t-0", 100, WALL_MS), files


def append(segment: LogSegment, base_offset: int, batch: bytes, *, interval: int = 200) -> None:
    header = read_header(batch)
    prefix = placement_prefix(base_offset, header.length, 0)
    segment.append((prefix, memoryview(batch)[16:]), header, base_offset, interval)


def test_a_failed_append_changes_nothing_once_it_is_undone() -> None:
    segment, files = new_segment()
    append(segment, 100, batch_of(b"one"))
    before = read_file(files, segment.path(".log"))
    files.space_left = 20
    with pytest.raises(OSError):
        append(segment, 101, batch_of(b"v" * 500))
    assert len(read_file(files, segment.path(".log"))) == len(before) + 20
    segment.undo_append()
    files.space_left = None
    assert read_file(files, segment.path(".log")) == before
    append(segment, 101, batch_of(b"two"))
    assert [header.base_offset for _, header in segment.walk(0, 100)] == [100, 101]


def test_an_index_entry_follows_every_interval_and_names_the_end_of_its_batch() -> None:
    segment, _ = new_segment()
    batch = batch_of(b"v" * 100, b"w")
    for number in range(6):
        append(segment, 100 + 2 * number, batch, interval=300)
    size = len(batch)
    assert 150 < size < 300
    entries = [segment.index[number] for number in range(len(segment.index))]
    assert entries == [(105, 2 * size), (109, 4 * size)]


def test_indexes_are_saved_from_time_to_time_and_a_full_disk_does_not_matter() -> None:
    segment, files = new_segment()
    files.fail("create", suffix="index", number=errno.ENOSPC)
    for number in range(SAVE_ENTRIES + 5):
        append(segment, 100 + number, batch_of(b"v", timestamp=number), interval=0)
    assert files.exists(segment.path(".index"))
    assert files.exists(segment.path(".timeindex"))
    assert segment.index.unsaved_count < SAVE_ENTRIES
    assert segment.index[len(segment.index) - 1].last_offset == 100 + SAVE_ENTRIES + 4


def test_what_was_appended_needs_no_check_when_it_is_read() -> None:
    segment, files = new_segment()
    append(segment, 100, batch_of(b"one"))
    append(segment, 101, batch_of(b"two"))
    assert segment.is_verified(0, segment.size_bytes)
    old_bytes = segment.size_bytes
    found = LogSegment(files, segment.directory, 100, {".log": old_bytes})
    found.max_timestamp = NO_TIMESTAMP
    append(found, 102, batch_of(b"three"))
    assert found.is_verified(old_bytes, found.size_bytes)
    assert not found.is_verified(old_bytes - 1, found.size_bytes)
    found.note_verified(0, old_bytes)
    assert found.is_verified(0, found.size_bytes)


def test_what_is_appended_in_place_of_what_was_cut_off_needs_no_check_either() -> None:
    segment, files = new_segment()
    for number in range(3):
        append(segment, 100 + number, batch_of(b"old"))
    one = segment.size_bytes // 3
    found = LogSegment(files, segment.directory, 100, {".log": 3 * one})
    found.max_timestamp = NO_TIMESTAMP
    found.note_verified(0, 3 * one)
    found.truncate(2 * one)
    append(found, 102, batch_of(b"new"))
    assert found.is_verified(0, found.size_bytes)
    other = LogSegment(files, segment.directory, 100, {".log": 3 * one})
    other.truncate(one)
    assert not other.is_verified(0, one)


def test_the_latest_positions_are_remembered_and_no_more() -> None:
    segment, _ = new_segment()
    for number in range(HINTS_MAX + 1):
        append(segment, 100 + number, batch_of(b"v"))
    assert segment.hinted(100) is None
    assert segment.hinted(101) == len(batch_of(b"v"))
    segment.truncate(0)
    assert segment.hinted(101) is None


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_sealed_segment_is_synced_with_its_indexes(suffix: str) -> None:
    segment, files = new_segment()
    for number in range(3):
        append(segment, 100 + number, batch_of(b"v", timestamp=number), interval=0)
    segment.complete_indexes()
    files.fail("sync", suffix=suffix, number=errno.EIO)
    if suffix != ".log":
        segment.sync()
    assert not segment.is_synced
    segment.is_sealed = True
    with pytest.raises(OSError):
        segment.sync()
    assert not segment.is_synced
    segment.sync()
    assert segment.is_synced

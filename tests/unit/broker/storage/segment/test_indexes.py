import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.storage.filesystem import read_file
from kohort.broker.storage.segment.indexes import IndexEntry, OffsetIndex
from kohort.testing.simulated_filesystem import SimulatedFileSystem

PAIR = OffsetIndex.entry


def new_file() -> tuple[OffsetIndex, SimulatedFileSystem]:
    files = SimulatedFileSystem()
    return OffsetIndex(files, "/e", 0, None), files


def reopened(files: SimulatedFileSystem) -> OffsetIndex:
    return OffsetIndex(files, "/e", 0, len(read_file(files, "/e")))


def test_the_file_is_made_when_it_is_saved_be_it_empty() -> None:
    entries, files = new_file()
    assert entries.find_last(0, 100) == -1
    assert not files.exists("/e")
    entries.save()
    assert read_file(files, "/e") == b""
    assert entries.find_last(0, 100) == -1


@settings(deadline=None)
@given(
    values=st.lists(st.integers(0, 5000), unique=True, max_size=400).map(sorted),
    saved=st.integers(0, 400),
    limit=st.integers(-1, 5001),
)
def test_a_search_finds_the_last_entry_up_to_a_limit_saved_or_not(
    values: list[int], saved: int, limit: int
) -> None:
    entries, files = new_file()
    for number, value in enumerate(values):
        entries.append(value, value * 2)
        if number + 1 == saved:
            entries.save()
    expected = sum(value <= limit for value in values) - 1
    assert entries.find_last(0, limit) == expected
    assert entries.find_last(1, limit * 2) == expected
    assert [entries[number] for number in range(len(entries))] == [(v, v * 2) for v in values]
    entries.save()
    if values:
        assert reopened(files).find_last(0, limit) == expected


@settings(deadline=None, max_examples=30)
@given(
    count=st.integers(1, 2_000),
    limits=st.lists(st.integers(-1, 6_001), min_size=1, max_size=20),
    cut_to=st.integers(0, 2_000),
)
def test_a_search_finds_the_same_wherever_the_one_before_it_ended(
    count: int, limits: list[int], cut_to: int
) -> None:
    entries, _ = new_file()
    for number in range(count):
        entries.append(number * 3, number)
    entries.save()
    for limit in limits:
        assert entries.find_last(0, limit) == min(limit // 3, count - 1)
    entries.keep_first(cut_to)
    for limit in limits:
        assert entries.find_last(0, limit) == min(limit // 3, min(cut_to, count) - 1)


@settings(deadline=None, max_examples=30)
@given(
    count=st.integers(0, 2_000),
    saved=st.integers(0, 2_000),
    limits=st.lists(st.integers(-1, 6_001), min_size=1, max_size=20),
)
def test_a_cached_entry_is_the_one_that_a_search_finds(
    count: int, saved: int, limits: list[int]
) -> None:
    entries, _ = new_file()
    for number in range(count):
        entries.append(number * 3, number)
        if number + 1 == saved:
            entries.save()
    for limit in limits:
        cached = entries.last_cached(0, limit)
        number = entries.find_last(0, limit)
        assert cached in {None, entries[number] if number >= 0 else None}
        if number >= 0:
            # The search has ended there, and the next one begins there.
            assert entries.last_cached(0, limit) == entries[number]
            assert number + 1 == count or entries.last_cached(0, limit + 3) == entries[number + 1]


def test_an_entry_that_is_not_whole_is_ignored() -> None:
    entries, files = new_file()
    entries.append(1, 10)
    entries.append(2, 20)
    entries.save()
    files.file("/e").truncate(12)
    again = reopened(files)
    assert len(again) == 1
    again.append(3, 30)
    again.save()
    assert read_file(files, "/e") == PAIR.pack(1, 10) + PAIR.pack(3, 30)


def test_a_file_that_becomes_shorter_raises_only_os_errors() -> None:
    entries, files = new_file()
    for number in range(200):
        entries.append(number, number)
    entries.save()
    files.file("/e").truncate(80)
    assert 0 <= entries.find_last(0, 5) < 10
    entries.find_last(0, 150)
    with pytest.raises(OSError):
        entries[150]


@pytest.mark.parametrize("kept", [0, 2, 5, 7, 9])
def test_dropping_entries_reaches_into_the_file_only_as_far_as_needed(kept: int) -> None:
    entries, files = new_file()
    for number in range(5):
        entries.append(number, number)
    entries.save()
    for number in range(5, 9):
        entries.append(number, number)
    entries.keep_first(kept)
    assert len(entries) == kept
    entries.append(100, 100)
    entries.save()
    assert [reopened(files)[number][0] for number in range(kept + 1)] == [*range(kept), 100]


def test_replacing_all_drops_what_waits_and_keeps_the_rest_of_the_old_file_from_showing() -> None:
    entries, files = new_file()
    for number in range(5):
        entries.append(number, number)
    entries.save()
    entries.append(5, 5)
    entries.replace_all([IndexEntry(7, 7)])
    assert len(entries) == 1
    assert read_file(files, "/e") == PAIR.pack(7, 7)


def test_a_failed_save_loses_nothing() -> None:
    entries, files = new_file()
    entries.append(1, 1)
    files.space_left = 3
    with pytest.raises(OSError):
        entries.save()
    files.space_left = None
    entries.append(2, 2)
    entries.save()
    assert read_file(files, "/e") == PAIR.pack(1, 1) + PAIR.pack(2, 2)

from kohort.broker.storage.segment.indexes import IndexEntry, OffsetIndex
from kohort.testing.simulated_filesystem import SimulatedFileSystem


def index_of(*entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex(SimulatedFileSystem(), "/i", 100, None)
    for last_offset, position in entries:
        index.append(last_offset, position)
    return index


def test_offsets_are_absolute_outside_and_relative_inside() -> None:
    index = index_of((105, 300), (120, 900))
    assert index[1] == IndexEntry(120, 900)
    assert index.find_offset(104) == -1
    assert index.find_offset(105) == 0
    assert index.find_offset(119) == 0
    assert index.find_offset(500) == 1


def test_a_position_finds_the_entry_at_or_before_it() -> None:
    index = index_of((105, 300), (120, 900))
    assert index.find_position(299) == -1
    assert index.find_position(300) == 0
    assert index.find_position(10_000) == 1


def test_replacing_all_takes_absolute_offsets() -> None:
    index = index_of((105, 300))
    index.replace_all([IndexEntry(110, 1), IndexEntry(111, 2)])
    assert [index[number] for number in range(len(index))] == [(110, 1), (111, 2)]
    assert index.unsaved_count == 0

from kohort.broker.storage.segment.indexes import TimeIndex, TimestampOffset
from kohort.testing.simulated_filesystem import SimulatedFileSystem


def new_index() -> TimeIndex:
    return TimeIndex(SimulatedFileSystem(), "/t", 100, None)


def test_only_a_later_maximum_makes_an_entry() -> None:
    index = new_index()
    index.append_if_later(-1, 101)
    index.append_if_later(50, 110)
    index.append_if_later(50, 120)
    index.append_if_later(40, 130)
    index.append_if_later(60, 110)
    index.append_if_later(60, 140)
    assert [index[number] for number in range(len(index))] == [(50, 110), (60, 140)]
    assert index.last() == TimestampOffset(60, 140)


def test_what_was_saved_is_compared_with_as_well() -> None:
    index = new_index()
    index.append_if_later(50, 110)
    index.save()
    index.append_if_later(50, 120)
    assert len(index) == 1


def test_a_timestamp_and_an_offset_find_the_entry_at_or_before_them() -> None:
    index = new_index()
    index.append_if_later(50, 110)
    index.append_if_later(60, 140)
    assert [index.find_timestamp(value) for value in (49, 50, 59, 60, 99)] == [-1, 0, 0, 1, 1]
    assert [index.find_offset(value) for value in (109, 110, 139, 140)] == [-1, 0, 0, 1]


def test_entries_of_later_offsets_can_be_dropped() -> None:
    index = new_index()
    index.append_if_later(50, 110)
    index.append_if_later(60, 140)
    index.keep_up_to(139)
    assert index.last() == TimestampOffset(50, 110)
    index.keep_up_to(99)
    assert index.last() is None

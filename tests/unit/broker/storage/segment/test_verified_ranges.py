from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.storage.segment.verified_ranges import RANGES_MAX, VerifiedRanges

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

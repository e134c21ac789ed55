from collections.abc import Hashable

import pytest

from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.work import Entry, Item, Work, WorkLimits

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LIMITS = WorkLimits(records=8, byte_count=8_000, uncommitted=6)


def entry(offset: int, lane: Hashable = None, byte_count: int = 10) -> Entry:
    return Entry(offset, 1, lane, byte_count, f"record {offset}")


@pytest.fixture
def work() -> Work:
    return Work(LIMITS)


def begin(work: Work, now_ms: int = 0) -> Item:
    item = work.next(now_ms)
    assert item is not None
    return item


def begin_all(work: Work, now_ms: int = 0) -> list[Item]:
    return list(iter(lambda: work.next(now_ms), None))


def position(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", 1)


def test_equal_keys_of_two_partitions_do_not_wait_for_each_other(work: Work) -> None:
    work.feed(A, [entry(0, "k")])
    work.feed(B, [entry(0, "k")])
    assert [item.partition for item in begin_all(work)] == [A, B]


def test_what_was_committed_is_not_committed_again(work: Work) -> None:
    work.committed({A: position(8)})
    assert work.uncommitted({A: position(8), B: position(3)}) == {B: position(3)}
    work.drop([A])
    work.take_over([A])
    assert A in work.uncommitted({A: position(8)})


def test_what_is_full_takes_no_records_before_a_quarter_is_free(work: Work) -> None:
    work.feed(A, [entry(offset, offset) for offset in range(8)])
    assert work.room() == 0
    items = begin_all(work)
    work.finish(items[0])
    assert work.room() == 0
    work.finish(items[1])
    assert work.room() == 2


def test_large_records_are_taken_a_few_at_a_time(work: Work) -> None:
    work.feed(A, [entry(0, byte_count=4_000)])
    assert work.room() <= 8
    work.feed(A, [entry(1, byte_count=4_000)])
    assert work.room() == 0


def test_a_partition_with_a_gap_takes_no_more_than_its_share(work: Work) -> None:
    work.feed(A, [entry(offset, offset) for offset in range(6)])
    first, *others = begin_all(work)
    for item in others:
        work.finish(item)
    assert not work.has_room(A)
    assert work.has_room(B)
    assert work.room()
    work.finish(first)
    assert work.has_room(A)


def test_a_record_that_was_cut_short_keeps_what_is_behind_it_from_being_committed(
    work: Work,
) -> None:
    work.feed(A, [entry(0, 0), entry(1, 1)])
    first, second = begin_all(work)
    work.hold([A])
    work.abandon(first)
    work.finish(second)
    assert work.committable({A: position(2)}) == {A: OffsetAndMetadata(0)}


def test_the_oldest_is_what_was_begun_first_and_is_not_done(work: Work) -> None:
    work.feed(A, [entry(0, 0), entry(1, 1)])
    first, second = begin(work, 10), begin(work, 20)
    assert work.oldest() is first
    work.rest(first, 500)
    assert work.oldest() is first
    work.finish(begin(work, 500))
    assert work.oldest() is second
    assert work.begun_count == 1

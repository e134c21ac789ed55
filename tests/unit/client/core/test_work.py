from collections.abc import Hashable

import pytest

from kohort.client.core.lanes import Item
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord, ConsumerRecord
from kohort.client.core.work import Work
from kohort.client.core.work_limits import RECORD_OVERHEAD_BYTES, BatchLimits, WorkLimits
from kohort.protocol.records.batch import TimestampType

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LIMITS = WorkLimits(records=8, byte_count=8_000, uncommitted=6)


def entry(offset: int, lane: Hashable = None, byte_count: int = 510) -> AnyRecord:
    kind, size = TimestampType.CREATE_TIME, byte_count - RECORD_OVERHEAD_BYTES
    return ConsumerRecord(*A, offset, 0, kind, lane, b"", 0, size, (), 1)


def feed(work: Work, partition: TopicPartition, records: list[AnyRecord], now_ms: int = 0) -> None:
    work.feed(partition, records, now_ms)


@pytest.fixture
def work() -> Work:
    return Work(LIMITS, by_key=True)


def begin(work: Work, now_ms: int = 0) -> Item:
    item = work.next(now_ms)
    assert item is not None
    return item


def begin_all(work: Work, now_ms: int = 0) -> list[Item]:
    return list(iter(lambda: work.next(now_ms), None))


def position(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", 1)


def test_equal_keys_of_two_partitions_do_not_wait_for_each_other(work: Work) -> None:
    feed(work, A, [entry(0, "k")])
    feed(work, B, [entry(0, "k")])
    assert [item.partition for item in begin_all(work)] == [A, B]


def test_what_was_committed_is_not_committed_again(work: Work) -> None:
    work.committed({A: position(8)})
    assert work.uncommitted({A: position(8), B: position(3)}) == {B: position(3)}
    work.drop([A])
    work.take_over([A])
    assert A in work.uncommitted({A: position(8)})


def test_what_is_full_takes_no_records_before_a_quarter_is_free(work: Work) -> None:
    feed(work, A, [entry(offset, offset) for offset in range(8)])
    assert work.room() == 0
    items = begin_all(work)
    work.finish(items[0])
    assert work.room() == 0
    work.finish(items[1])
    assert work.room() == 2


def test_large_records_are_taken_a_few_at_a_time(work: Work) -> None:
    feed(work, A, [entry(0, byte_count=4_000)])
    assert work.room() <= 8
    feed(work, A, [entry(1, byte_count=4_000)])
    assert work.room() == 0


def test_a_partition_with_a_gap_takes_no_more_than_its_share(work: Work) -> None:
    feed(work, A, [entry(offset, offset) for offset in range(6)])
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
    feed(work, A, [entry(0, 0), entry(1, 1)])
    first, second = begin_all(work)
    work.hold([A])
    work.abandon(first)
    work.finish(second)
    assert work.committable({A: position(2)}) == {A: OffsetAndMetadata(0)}


def test_what_is_done_before_a_seek_back_is_not_committed_after_it(work: Work) -> None:
    feed(work, A, [entry(0, 0), entry(1, 1)])
    first, _ = begin_all(work)
    work.finish(first)
    assert work.committable({A: position(2)}) == {A: position(1)}
    # The position also goes back if the topic was deleted and recreated.
    assert work.committable({A: position(0)}) == {A: position(0)}


def test_what_was_begun_is_in_flight_until_it_is_done(work: Work) -> None:
    feed(work, A, [entry(0, 0), entry(1, 1)])
    first, second = begin(work, 10), begin(work, 20)
    assert [item.began_ms for item in work.begun()] == [10, 20]
    work.rest(first, 500)
    assert list(work.begun()) == [first, second]
    work.finish(begin(work, 500))
    assert list(work.begun()) == [second]
    assert work.begun_count == 1


# Batches.


def batching() -> Work:
    return Work(LIMITS, batches=BatchLimits(records=3, wait_ms=100))


def offsets(item: Item) -> list[int]:
    assert item.members is not None
    return [member.offset for member in item.members]


def test_a_batch_waits_until_it_is_full_or_its_time_is_up() -> None:
    work = batching()
    feed(work, A, [entry(0), entry(1)], now_ms=0)
    assert work.next(99) is None
    assert work.due_ms() == 100
    feed(work, A, [entry(2), entry(3)], now_ms=50)
    batch = begin(work, 50)
    assert offsets(batch) == [0, 1, 2]
    assert work.next(1_000) is None, "one batch of a partition at a time"
    work.finish(batch, 1_000)
    assert work.committable({A: position(4)}) == {A: position(3)}
    assert work.next(1_099) is None
    assert offsets(begin(work, 1_100)) == [3]


def test_a_batch_does_not_wait_if_there_is_no_room_for_more() -> None:
    work = batching()
    feed(work, A, [entry(0), entry(1)])
    assert work.next(0) is None
    work.hurry()
    assert offsets(begin(work)) == [0, 1]


def test_a_batch_that_is_split_is_handled_record_by_record_in_order() -> None:
    work = batching()
    feed(work, A, [entry(offset) for offset in range(5)])
    work.split(begin(work), 0)
    for offset in range(3):
        item = begin(work)
        assert offsets(item) == [offset]
        work.finish(item)
    work.hurry()
    assert offsets(begin(work)) == [3, 4]


def test_a_batch_is_released_as_a_whole() -> None:
    work = batching()
    feed(work, A, [entry(0), entry(1), entry(2)])
    batch = begin(work)
    work.drop([A])
    work.finish(batch)
    assert (work.held_records, work.held_bytes) == (0, 0)


# Transactions.


def test_records_are_held_until_their_transaction_is_committed() -> None:
    work = Work(LIMITS, is_transactional=True)
    feed(work, A, [entry(0), entry(1)])
    work.finish(begin(work))
    assert work.held_records == 2
    work.settle()
    assert work.held_records == 1


def test_what_a_transaction_did_is_handled_again_when_it_is_aborted() -> None:
    work = Work(LIMITS, by_key=True, is_transactional=True)
    feed(work, A, [entry(0, "a"), entry(1, "b"), entry(2, "a"), entry(3, "b")])
    first, second = begin_all(work)
    work.finish(second)
    first.failing().attempts = 1
    work.abandon(first)
    work.close(0)
    assert not work.is_busy([A])
    work.undo()
    assert begin_all(work) == [], "before the next transaction"
    assert work.committable({A: position(4)}) == {A: OffsetAndMetadata(0)}
    work.resume(0)
    again = begin_all(work)
    assert again == [first, second]
    assert first.failing().attempts == 1


def test_no_more_records_are_started_than_a_transaction_may_have() -> None:
    work = Work(LIMITS, by_key=True, is_transactional=True)
    feed(work, A, [entry(0, "a"), entry(1, "b"), entry(2, "c")])
    work.start_limit = 2
    first, second = begin_all(work)
    assert work.finish(first, goes_on=True) is None
    work.finish(second)
    work.settle()
    assert [item.offset for item in begin_all(work)] == [2]


def test_a_transaction_that_is_closed_has_no_gaps() -> None:
    """Otherwise records after a gap would be handled again, although their output is committed."""
    work = Work(LIMITS, by_key=True, is_transactional=True)
    feed(work, A, [entry(0, "a"), entry(1, "a"), entry(2, "b"), entry(3, "a")])
    first, last = begin_all(work)
    work.finish(last)
    work.close(0)
    feed(work, B, [entry(0, "a")])
    work.finish(first)
    middle = begin(work)
    assert middle.offset == 1
    assert work.is_busy([A])
    work.finish(middle)
    assert begin_all(work) == []
    assert not work.is_busy([A, B])
    assert work.committable({A: position(4)}) == {A: position(3)}

"""Reads of committed records: up to the last stable offset, with the transactions aborted there."""

import asyncio
from pathlib import Path

from kohort.broker.runtime.deferred import Deferred
from kohort.broker.topics.fetch import DelayedFetch, FetchPass, PartitionRead
from kohort.broker.topics.manager import TopicManager
from kohort.protocol.errors import ErrorCode
from kohort.testing.inline_executor import InlineExecutor
from tests.support import messages as m
from tests.support.brokers.running_topics import (
    append,
    ask,
    running_topics,
)
from tests.unit.broker.topics.transactional_partition import (
    COMMITTED,
    MIB,
    TIME,
    aborted,
    fetched,
    mark,
    offsets,
    one_partition,
    partition_of,
    send,
)


async def listed(
    topics: TopicManager, timestamp: int, *, isolation: int = COMMITTED
) -> m.ListOffsetsPartitionResponse:
    partition = m.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = m.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[m.ListOffsetsTopic(name="t", partitions=[partition])],
    )
    response = await ask(topics, request)
    (found,) = response.topics[0].partitions
    assert isinstance(found, m.ListOffsetsPartitionResponse)
    return found


async def test_a_fetch_tells_both_ends_and_reads_committed_ones_up_to_the_stable_one(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        append(partition)
        send(partition, 1)
        append(partition)
        for isolation, expected in ((0, [0, 1, 2]), (COMMITTED, [0])):
            data = await fetched(topics, 0, isolation=isolation)
            assert (data.high_watermark, data.last_stable_offset) == (3, 1)
            assert offsets(data) == expected
        between = await fetched(topics, 2)
        assert (between.error_code, offsets(between), aborted(between)) == (0, [], [])
        beyond = await fetched(topics, 4)
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert aborted(beyond) is None


async def test_a_fetch_lists_exactly_the_aborted_transactions_that_it_has_records_of(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        send(partition, 1, size=1000)
        mark(partition, 1, 0, commit=True)
        send(partition, 2, size=1000)
        send(partition, 3, size=1000)
        mark(partition, 3, 0, commit=False)
        mark(partition, 2, 0, commit=False)
        send(partition, 3, 1, size=1000)
        mark(partition, 3, 0, commit=False)
        assert aborted(await fetched(topics, 0, isolation=0)) is None
        everything = await fetched(topics, 0)
        assert offsets(everything) == list(range(8))
        assert aborted(everything) == [(3, 3), (2, 2), (3, 6)]
        for offset, limit, expected_offsets, expected in (
            (0, 1200, [0, 1], []),
            (0, 2400, [0, 1, 2], [(2, 2)]),
            (0, 3600, [0, 1, 2, 3, 4, 5], [(3, 3), (2, 2)]),
            (4, 1000, [4, 5], [(3, 3), (2, 2)]),
            (5, 1000, [5], [(2, 2)]),
            (6, 1000, [6], [(3, 6)]),
            (7, 1000, [7], [(3, 6)]),
            (8, 1000, [], []),
        ):
            data = await fetched(topics, offset, max_bytes=limit)
            assert (offsets(data), aborted(data)) == (expected_offsets, expected), (offset, limit)


async def test_an_unknown_isolation_level_is_an_invalid_request(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await one_partition(topics)
        for isolation in (-1, 2):
            data = await fetched(topics, 0, isolation=isolation)
            assert data.error_code == ErrorCode.INVALID_REQUEST
            found = await listed(topics, -1, isolation=isolation)
            assert found.error_code == ErrorCode.INVALID_REQUEST


async def test_offsets_of_committed_records_end_at_the_stable_one(tmp_path: Path) -> None:
    async with running_topics(tmp_path, executor=InlineExecutor()) as topics:
        partition = await one_partition(topics)
        send(partition, 1, timestamp=TIME, transactional=False)
        send(partition, 2, timestamp=TIME + 10)
        send(partition, 1, 1, timestamp=TIME + 20, transactional=False)
        for timestamp, all_records, committed in (
            (-1, 3, 1),
            (-2, 0, 0),
            (-3, 2, -1),
            (-4, 0, 0),
            (TIME, 0, 0),
            (TIME + 5, 1, -1),
            (TIME + 20, 2, -1),
            (TIME + 30, -1, -1),
        ):
            found = await listed(topics, timestamp, isolation=0)
            assert (found.offset, found.error_code) == (all_records, 0), timestamp
            found = await listed(topics, timestamp)
            assert (found.offset, found.error_code) == (committed, 0), timestamp
            assert found.timestamp == -1 or committed >= 0
        mark(partition, 2, 0, commit=False)
        assert (await listed(topics, -1)).offset == 4
        assert (await listed(topics, -3)).offset == 2
        assert (await listed(topics, TIME + 5)).offset == 1


class Parked:
    """A fetch of one partition that waits for more bytes than there are."""

    def __init__(self, topics: TopicManager, offset: int, *, committed: bool, more: int) -> None:
        partition = partition_of(topics)
        self.is_answered = False
        self.read = PartitionRead(0, partition, offset, MIB, committed_only=committed)
        reading = FetchPass([self.read], MIB)
        assert reading.read_cached()
        self.operation = DelayedFetch(
            [self.read], bytes_missing=more, read_again=self.take, answer=Deferred(), owner="me"
        )
        topics._purgatory.try_complete_else_watch(self.operation, self.operation.keys, 1_000)

    def take(self, answer: Deferred[None]) -> None:
        del answer
        self.is_answered = True


async def test_a_parked_fetch_of_committed_records_is_woken_by_the_marker(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        committed = Parked(topics, 0, committed=True, more=1)
        uncommitted = Parked(topics, 0, committed=False, more=1)
        send(partition, 1, size=500)
        topics._purgatory.drain()
        assert (committed.is_answered, uncommitted.is_answered) == (False, True)
        append(partition)
        topics._purgatory.drain()
        assert not committed.is_answered
        mark(partition, 1, 0, commit=True)
        topics._purgatory.drain()
        assert committed.is_answered


async def test_a_parked_fetch_counts_what_became_stable(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        size = 78 + 73 + 500
        enough = Parked(topics, 0, committed=True, more=size - 20)
        too_little = Parked(topics, 0, committed=True, more=size + 20)
        send(partition, 1, size=500)
        mark(partition, 1, 0, commit=True)
        topics._purgatory.drain()
        assert (enough.is_answered, too_little.is_answered) == (True, False)
        append(partition)
        topics._purgatory.drain()
        assert too_little.is_answered


async def test_a_parked_fetch_is_woken_by_the_end_of_an_earlier_run_s_transaction(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        send(await one_partition(topics), 1, size=500)
    async with running_topics(tmp_path) as topics:
        parked = Parked(topics, 0, committed=True, more=400)
        mark(partition_of(topics), 1, 0, commit=True)
        topics._purgatory.drain()
        assert parked.is_answered


async def test_what_another_thread_reads_ends_at_the_stable_offset_as_well(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        partition = await one_partition(topics)
        for number in range(10):
            send(partition, 7, number, size=1000)
            mark(partition, 7, 0, commit=number % 2 == 0)
        send(partition, 8)
    async with running_topics(tmp_path) as topics:
        data = await asyncio.wait_for(fetched(topics, 0), 30)
        assert offsets(data) == list(range(20))
        assert aborted(data) == [(7, first) for first in range(2, 20, 4)]
        some = await fetched(topics, 0, max_bytes=4700)
        assert offsets(some) == list(range(8))
        assert aborted(some) == [(7, 2), (7, 6)]

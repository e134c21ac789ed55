"""Reads of committed records: up to the last stable offset, with the transactions aborted there."""

import asyncio
from pathlib import Path

from kohort.broker.runtime.deferred import Deferred
from kohort.broker.topics.fetch import DelayedFetch, FetchPass, PartitionRead
from kohort.broker.topics.manager import TopicManager
from tests.support.brokers.running_topics import append, running_topics
from tests.unit.broker.topics.transactional_partition import (
    MIB,
    aborted,
    fetched,
    mark,
    offsets,
    one_partition,
    partition_of,
    send,
)


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

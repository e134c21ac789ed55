"""Reads that come across very many aborted transactions: bounded, and in slices."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.broker.storage.log import transactions
from kohort.broker.storage.segment import transaction_index
from kohort.broker.topics import fetch
from kohort.broker.topics.fetch import FetchPass, PartitionRead
from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import iter_headers
from kohort.testing.inline_executor import InlineExecutor
from tests.support.brokers.running_topics import running_topics
from tests.support.measures.busy_clock import BusyClock
from tests.unit.broker.topics.transactional_partition import (
    MIB,
    TIME,
    aborted,
    fetched,
    mark,
    offsets,
    one_partition,
    send,
)


async def test_a_read_tells_of_no_more_aborted_transactions_than_are_quickly_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "READ_MAX", 3)
    async with running_topics(tmp_path, executor=InlineExecutor()) as topics:
        partition = await one_partition(topics)
        send(partition, 8)
        for number in range(10):
            send(partition, 7, number)
            mark(partition, 7, 0, commit=False)
        mark(partition, 8, 0, commit=False)
        told, seen, offset = [], [], 0
        while offset < partition.log.log_end_offset:
            data = await fetched(topics, offset)
            found = aborted(data)
            assert found is not None
            # The long one, and the one that the read ends within, are told of as well.
            assert len(found) <= 3 + 2
            told += [one for one in found if one not in told]
            seen += offsets(data)
            offset = seen[-1] + 1
        assert sorted(told) == [*((7, first) for first in range(1, 20, 2)), (8, 0)]
        assert seen == list(range(22))


async def open_at_once(partition: Partition, count: int) -> None:
    """So many transactions that are aborted when all of them have begun."""
    for producer_id in range(count):
        send(partition, producer_id)
    for producer_id in range(count):
        mark(partition, producer_id, 0, commit=False)


def committed_read(partition: Partition, offset: int, max_bytes: int) -> PartitionRead:
    return PartitionRead(0, partition, offset, max_bytes, committed_only=True)


async def others_turns(reading: FetchPass, disturb: Callable[[], None] | None = None) -> int:
    """Finish it on a clock that its own looks move; how often others had their turn meanwhile.

    `disturb` is called in the third of these.
    """
    done = asyncio.ensure_future(reading.finish(asyncio.Semaphore(1), BusyClock(look_ms=2)))
    turns = 0
    while not done.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 3 and disturb is not None:
            disturb()
    await done
    return turns


async def test_very_many_that_are_open_where_a_read_ends_are_found_and_told_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_index, "STEP_ENTRIES", 50)
    monkeypatch.setattr(fetch, "FEW", 50)
    count = 600
    async with running_topics(tmp_path, executor=InlineExecutor()) as topics:
        partition = await one_partition(topics)
        await open_at_once(partition, count)
        size = len(partition.reads.read(0, 0, min_one=True))
        for begin, some in ((0, 100), (0, 199), (0, 500), (100, count - 100)):
            read = committed_read(partition, begin, some * size)
            assert FetchPass([read], MIB).read_cached() == (some + begin <= 200)
            turns = await others_turns(FetchPass([read], MIB))
            first = begin + len(read.data) // size
            assert read.aborted is not None
            assert [one.first_offset for one in read.aborted] == list(range(first))
            if begin + some > 200:
                # One after each step, of which the first is longer, and after each part of what is
                # told.
                assert turns >= 2 * (first - 128) // 50
        # What nothing is held up by is told at once.
        reading = FetchPass([committed_read(partition, 2 * count - 100, MIB)], MIB)
        assert reading.read_cached()


async def test_what_one_long_transaction_keeps_from_being_decided_is_looked_at_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_index, "STEP_ENTRIES", 50)
    count = 600
    async with running_topics(tmp_path, executor=InlineExecutor()) as topics:
        partition = await one_partition(topics)
        send(partition, 8)
        for number in range(count):
            send(partition, 7, number)
            mark(partition, 7, 0, commit=False)
        mark(partition, 8, 0, commit=False)
        read = committed_read(partition, 0, 1000)
        reading = FetchPass([read], MIB)
        assert not reading.read_cached()
        assert await others_turns(reading) > (count - 200) // 50
        told = [(one.producer_id, one.first_offset) for one in read.aborted or ()]
        assert isinstance(read.data, bytes)
        *_, (_, header) = iter_headers(read.data)
        last = header.base_offset
        assert told == [*((7, first) for first in range(1, last + 1, 2)), (8, 0)]


async def test_a_segment_that_goes_away_while_aborted_ones_are_looked_for_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_index, "STEP_ENTRIES", 50)
    async with running_topics(tmp_path, executor=InlineExecutor()) as topics:
        partition = await one_partition(topics)
        await open_at_once(partition, 500)
        read = committed_read(partition, 0, 30_000)

        def disturb() -> None:
            partition.log.roll(wall_ms=TIME)
            partition.log.delete_records_before(partition.log.log_end_offset, wall_ms=TIME)

        await others_turns(FetchPass([read], MIB), disturb)
        assert read.error == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (read.data, read.aborted) == (b"", None)

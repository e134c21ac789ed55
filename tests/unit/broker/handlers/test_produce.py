"""The response to a Produce with acks=all, partition by partition; and its turns of the loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil
from pathlib import Path
from typing import Final

import pytest

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.handlers.produce import ACKS_ALL, APPENDS_MS, produce
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import ITERATIONS_BETWEEN
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing.virtual_clock import VirtualClock
from tests.support import messages as m
from tests.support.brokers.running_topics import context, running_topics
from tests.support.measures.busy_clock import BusyClock
from tests.support.waiting import turns

TIMEOUT_MS = 1_000


def request_for(**partitions: int) -> m.ProduceRequest:
    """One record for each partition of these topics."""
    batch = encode_batch([Record(b"value", timestamp=1_700_000_000_000)])
    topics = [
        m.TopicProduceData(
            name=name,
            partition_data=[
                m.PartitionProduceData(index=index, records=memoryview(batch))
                for index in range(count)
            ],
        )
        for name, count in partitions.items()
    ]
    return m.ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=topics)


async def test_what_is_not_forced_to_disk_in_time_or_at_all_is_answered_for_itself(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        configs = {"flush.messages": "1"}
        slow = await topics.changes.create_topic("slow", partition_count=2, configs=configs)
        await topics.changes.create_topic("fast", partition_count=1)
        request = request_for(slow=2, fast=1)
        ctx = context(topics, request, 12)
        purgatory = ctx.broker.purgatory = topics._purgatory

        # The loop gets no turn meanwhile, so that no flush ends.
        answer = produce(ctx, request)
        assert isinstance(answer, Deferred)
        slow.partitions[1].take_offline("the disk failed")
        purgatory.drain()
        assert not answer.is_done
        purgatory.expire(ctx.broker.clock.monotonic_ms() + TIMEOUT_MS)

        response = answer.result()
        assert response is not None
        told = {
            (topic.name, one.index): (one.error_code, one.base_offset, one.log_start_offset)
            for topic in response.responses
            for one in topic.partition_responses
        }
        assert told == {
            ("slow", 0): (ErrorCode.REQUEST_TIMED_OUT, -1, -1),
            ("slow", 1): (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1),
            ("fast", 0): (ErrorCode.NONE, 0, 0),
        }


async def test_what_is_forced_to_disk_in_time_has_no_error(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        configs = {"flush.messages": "1"}
        slow = await topics.changes.create_topic("slow", partition_count=2, configs=configs)
        request = request_for(slow=2)
        ctx = context(topics, request, 12)
        purgatory = ctx.broker.purgatory = topics._purgatory
        answer = produce(ctx, request)
        assert isinstance(answer, Deferred)
        for partition in slow.partitions:
            await partition.wait_flushed()
        purgatory.drain()

        response = await answer
        assert response is not None
        (topic,) = response.responses
        found = [(one.error_code, one.base_offset) for one in topic.partition_responses]
        assert found == [(ErrorCode.NONE, 0)] * 2


LARGE_STEPS: Final = 20
"""Steps of the checks of `LARGE`, of 2,048 records each."""

LARGE: Final = memoryview(
    encode_batch(
        [
            Record(b"v", key=b"k", timestamp=1_700_000_000_000)
            for _ in range(LARGE_STEPS * 2_048 + 1)
        ]
    )
)


def request_for_large(name: str, partitions: int = 1) -> m.ProduceRequest:
    data = [m.PartitionProduceData(index=index, records=LARGE) for index in range(partitions)]
    topic = m.TopicProduceData(name=name, partition_data=data)
    return m.ProduceRequest(acks=1, timeout_ms=TIMEOUT_MS, topic_data=[topic])


@asynccontextmanager
async def compacted(tmp_path: Path, clock: Clock) -> AsyncIterator[RequestContext]:
    """The context of requests to a topic whose records are all looked at."""
    async with running_topics(tmp_path) as topics:
        configs = {"cleanup.policy": "compact"}
        await topics.changes.create_topic("t", partition_count=2, configs=configs)
        ctx = context(topics, request_for_large("t"), 12)
        ctx.broker.clock = clock
        yield ctx


def base_offsets(response: m.ProduceResponse | None) -> list[int]:
    assert response is not None
    return [one.base_offset for topic in response.responses for one in topic.partition_responses]


async def test_a_large_batch_that_is_checked_within_a_slice_gives_no_turn_away(
    tmp_path: Path,
) -> None:
    async with compacted(tmp_path, VirtualClock()) as ctx:
        response = produce(ctx, request_for_large("t", partitions=2))
        assert not isinstance(response, Deferred)
        assert base_offsets(response) == [0, 0]


@pytest.mark.parametrize("step_ms", [1, 2, APPENDS_MS])
async def test_long_checks_give_the_loop_away_once_in_a_slice(tmp_path: Path, step_ms: int) -> None:
    clock = BusyClock(step_ms)
    async with compacted(tmp_path, clock) as ctx:
        begun_ms, held_ms = clock._monotonic_ms, list[int]()
        response = produce(ctx, request_for_large("t"))
        assert isinstance(response, Deferred)
        held_ms.append(clock._monotonic_ms - begun_ms)
        while not response.is_done:
            before_ms = clock._monotonic_ms
            await asyncio.sleep(0)
            held_ms.append(clock._monotonic_ms - before_ms)
        assert base_offsets(response.result()) == [0]
    # A look begins a slice, which ends with the step that exceeds it.
    assert max(held_ms) <= APPENDS_MS + 2 * step_ms
    slices = sum(map(bool, held_ms))
    steps = LARGE_STEPS + ceil(APPENDS_MS / step_ms)
    # The first look, before the batch, and the end of a slice that is not used up.
    assert slices <= ceil(steps / ceil(APPENDS_MS / step_ms)) + 2
    # One for the task to begin.
    assert len(held_ms) - 1 <= ITERATIONS_BETWEEN * slices + 1


async def test_one_large_batch_at_a_time_is_checked_beyond_its_first_step(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with compacted(tmp_path, clock) as ctx:
        lock = ctx.broker.large_batch
        await lock.acquire()
        response = produce(ctx, request_for_large("t"))
        assert isinstance(response, Deferred)
        await turns(20)
        assert not response.is_done
        lock.release()
        assert base_offsets(await response) == [0]
        assert not lock.locked()


async def test_the_lock_is_released_after_each_large_batch(tmp_path: Path) -> None:
    async with compacted(tmp_path, BusyClock()) as ctx:
        lock = ctx.broker.large_batch
        first = produce(ctx, request_for_large("t", partitions=2))
        second = produce(ctx, request_for_large("t"))
        assert isinstance(first, Deferred)
        assert isinstance(second, Deferred)
        # The second request gets the lock between the batches of the first.
        assert base_offsets(await second) == [LARGE_STEPS * 2_048 + 1]
        assert not first.is_done
        assert base_offsets(await first) == [0, 0]
        assert not lock.locked()

"""How a consumer ends: what is committed, what is cut and what is not, and how long it may take."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kohort import Consumer, RebalanceListener, TopicPartition, errors
from kohort.client.group.listener import Partitions
from tests.interop.consumer.members import TIMEOUT_S, Members, Topics


class HandlerError(Exception):
    """What an application raises."""


async def committed(members: Members, topic: str) -> int | None:
    consumer = await members.start(enable_auto_commit=False)
    found = await consumer.committed(TopicPartition(topic, 0))
    await consumer.stop()
    return found


async def one_by_one(consumer: Consumer) -> AsyncIterator[int]:
    async for record in consumer:
        yield record.offset


async def in_batches(consumer: Consumer) -> AsyncIterator[int]:
    while True:
        for records in (await consumer.getmany(timeout_ms=1_000, max_records=4)).values():
            for record in records:
                yield record.offset


async def with_getone(consumer: Consumer) -> AsyncIterator[int]:
    while True:
        yield (await consumer.getone(*consumer.assignment())).offset


@pytest.mark.parametrize(("reading", "done"), [(one_by_one, 6), (in_batches, 4), (with_getone, 6)])
@pytest.mark.parametrize("is_cancelled", [False, True], ids=["error", "cancelled"])
async def test_what_was_not_processed_is_not_committed_when_a_handler_fails(
    reading: Any,  # noqa: ANN401
    done: int,
    is_cancelled: bool,
    topics: Topics,
    members: Members,
) -> None:
    topic = topics.create()
    topics.fill(topic, range(10))
    at_six = asyncio.Event()

    async def application() -> None:
        async with members.make(topic) as consumer:
            async for offset in reading(consumer):
                if offset == 6:
                    at_six.set()
                    if is_cancelled:
                        await asyncio.Event().wait()
                    raise HandlerError

    task = asyncio.create_task(application())
    async with asyncio.timeout(TIMEOUT_S):
        await at_six.wait()
        if is_cancelled:
            task.cancel()
        with pytest.raises(asyncio.CancelledError if is_cancelled else HandlerError):
            await task
    assert await committed(members, topic) == done


async def test_what_was_returned_counts_as_processed_when_a_consumer_is_left_without_an_error(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    topics.fill(topic, range(10))
    async with members.make(topic) as consumer:
        async for record in consumer:
            if record.offset == 6:
                break
    assert await committed(members, topic) == 7


class Slow(RebalanceListener):
    """Callbacks of a second."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []

    async def on_assigned(self, partitions: Partitions) -> None:
        await self._work("assigned", partitions)

    async def on_revoked(self, partitions: Partitions) -> None:
        await self._work("revoked", partitions)

    async def _work(self, name: str, partitions: Partitions) -> None:
        if partitions:
            self.begun.append(name)
            await asyncio.sleep(1)
            self.ended.append(name)


async def test_polls_that_are_cancelled_cut_no_callback_and_hand_out_nothing_before_its_end(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    topics.fill(topic, range(5))
    slow = Slow()
    settings: dict[str, Any] = {"partition_assignment_strategy": "range"}
    consumer = await members.start(topic, listener=slow, **settings)

    async def next_offset() -> int:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    return (await asyncio.wait_for(consumer.getone(), 0.2)).offset
                except TimeoutError:
                    continue

    assert await next_offset() == 0
    assert slow.ended == ["assigned"]
    consumer.enforce_rebalance("test")
    while len(slow.ended) < 3:
        await next_offset()
    assert slow.begun == slow.ended == ["assigned", "revoked", "assigned"]
    await consumer.stop()
    assert slow.ended == ["assigned", "revoked", "assigned", "revoked"]


async def test_a_stop_in_the_middle_of_a_callback_waits_for_it_and_tells_once(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    slow = Slow()
    settings: dict[str, Any] = {"partition_assignment_strategy": "range"}
    consumer = await members.start(topic, listener=slow, **settings)
    await members.settle(consumer, partitions=1)
    consumer.enforce_rebalance("test")
    async with asyncio.timeout(TIMEOUT_S):
        while slow.begun[-1] != "revoked":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.getone(), 0.1)
    await consumer.stop()
    assert slow.begun == slow.ended == ["assigned", "revoked"]


class Stuck(RebalanceListener):
    async def on_revoked(self, partitions: Partitions) -> None:
        await asyncio.Event().wait()


async def test_a_callback_that_hangs_is_named_and_does_not_keep_the_group_from_being_told(
    topics: Topics, members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    topic = topics.create()
    consumer = await members.start(topic, listener=Stuck())
    await members.settle(consumer, partitions=1)
    began_s = time.monotonic()
    await consumer.stop(1)
    assert time.monotonic() - began_s < 20
    assert consumer.health().is_closed
    assert any("on_revoked did not return" in one.getMessage() for one in caplog.records)
    # The next one does not have to wait for the session of the first.
    async with asyncio.timeout(40):
        await members.settle(await members.start(topic), partitions=1)


@asynccontextmanager
async def full_executor() -> AsyncIterator[None]:
    """The loop's own, with work of the application that does not end before the test does."""
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()

    jobs = [asyncio.create_task(asyncio.to_thread(work)) for _ in range(64)]
    try:
        yield
    finally:
        release.set()
        await asyncio.gather(*jobs)


async def test_the_end_needs_none_of_the_application_s_threads(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    consumer = await members.start(topic)
    await members.settle(consumer, partitions=1)
    async with full_executor():
        began_s = time.monotonic()
        await consumer.stop(120)
        assert time.monotonic() - began_s < 60


@pytest.mark.parametrize("call", ["poll", "getone", "position", "end_offsets"])
async def test_calls_that_wait_end_when_the_consumer_is_stopped(
    call: str, topics: Topics, members: Members
) -> None:
    topic = topics.create()
    missing = TopicPartition(f"{topic}-missing", 0)
    consumer = await members.start(group_id=None, default_api_timeout_ms=600_000)
    consumer.assign([missing])
    calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "poll": lambda: consumer.poll(600),
        "getone": consumer.getone,
        "position": lambda: consumer.position(missing),
        "end_offsets": lambda: consumer.end_offsets([missing]),
    }
    waiting = asyncio.create_task(calls[call]())
    await asyncio.sleep(0.3)
    await consumer.stop()
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(errors.ConsumerClosedError):
            await waiting


async def test_nothing_is_returned_once_stop_was_called(topics: Topics, members: Members) -> None:
    """It would be committed as processed, while the caller that has it has just begun."""
    topic = topics.create()
    topics.fill(topic, range(10))
    consumer = await members.start(topic)
    assert (await consumer.getone()).offset == 0
    # As for who asks again within a millisecond, and does not wait for anything.
    assert consumer._lifecycle.engine is not None
    consumer._lifecycle.engine._next_yield_s = time.monotonic() + 1_000
    ending = asyncio.create_task(consumer.stop())
    late = asyncio.create_task(consumer.getone())
    await ending
    with pytest.raises(errors.ConsumerClosedError):
        await late
    assert await committed(members, topic) == 1


async def test_iteration_ends_quietly_when_another_task_stops_the_consumer(
    topics: Topics, members: Members
) -> None:
    topic = topics.create()
    topics.fill(topic, range(3))
    consumer = await members.start(topic)

    async def iterate() -> int:
        count = 0
        async for _ in consumer:
            count += 1
        return count

    iterating = asyncio.create_task(iterate())
    await asyncio.sleep(0.5)
    await consumer.stop()
    async with asyncio.timeout(TIMEOUT_S):
        assert 0 <= await iterating <= 3
    with pytest.raises(errors.ConsumerClosedError):
        async for _ in consumer:
            pass


async def test_starting_twice_at_once_makes_one_consumer(topics: Topics, members: Members) -> None:
    before = asyncio.all_tasks()
    consumer = members.make(topics.create())
    await asyncio.gather(consumer.start(), consumer.start())
    await consumer.stop()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_stop_during_the_start_ends_it(topics: Topics, members: Members) -> None:
    before = asyncio.all_tasks()
    consumer = members.make(topics.create())
    starting = asyncio.create_task(consumer.start())
    await asyncio.sleep(0)
    await consumer.stop()
    with pytest.raises(errors.ConsumerClosedError):
        await starting
    assert consumer.health().is_closed
    assert asyncio.all_tasks() == before
    with pytest.raises(errors.ConsumerClosedError):
        consumer.subscribe(["t"])
    with pytest.raises(errors.ConsumerClosedError):
        consumer.assign([])

"""A cancelled handler's record is delivered again, however the handler reacts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest

from kohort import Consumer, ConsumerRecord, TopicPartition
from kohort.client.core.errors import HandlerError
from kohort.client.processing.dead_letters import DeadLetter
from kohort.testing import VirtualKafka
from tests.unit.client.processing.members import figures, fill, member, until

Record = ConsumerRecord[Any, Any]
PLACE = TopicPartition("t", 0)
HOUR_S = 3_600
RECORDS = [b"0", b"1", b"2"]


def returns() -> None:
    """Suppress the cancellation."""


def raises() -> None:
    """Replace it with another exception."""
    raise OSError("the clean-up failed")


def cancels() -> None:
    """Do as a handler should."""
    raise asyncio.CancelledError


def uncancels() -> None:
    """Suppress it as asyncio's own documentation says."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


TIMED = pytest.mark.parametrize("timeout_ms", [None, HOUR_S * 2_000])
"""Whether the handlers have a time limit, which none of them exceeds."""
REACTIONS = pytest.mark.parametrize("react", [returns, raises, cancels, uncancels])


class Slow:
    """A handler that takes an hour for the first record, and reacts when it is cancelled."""

    def __init__(self, react: Callable[[], None]) -> None:
        self.react = react
        self.begun: list[int] = []
        self.cancelled: list[int] = []

    async def __call__(self, record: Record) -> None:
        self.begun.append(record.offset)
        if record.offset:
            return
        try:
            await asyncio.sleep(HOUR_S)
        except asyncio.CancelledError:
            self.cancelled.append(record.offset)
            self.react()


async def handle_all(consumer: Consumer) -> list[int]:
    """Run until the last record is handled; return the offsets that were handled."""
    handled: list[int] = []

    def handle(record: Record) -> None:
        handled.append(record.offset)
        if record.offset == 2:
            consumer.end_run()

    async with asyncio.timeout(60):
        await consumer.run(handle)
    return handled


@TIMED
@REACTIONS
@pytest.mark.parametrize("on_failure", ["stop", "skip"])
async def test_a_record_cut_off_by_the_end_of_a_run_is_delivered_again(
    virtual_kafka: VirtualKafka,
    react: Callable[[], None],
    on_failure: Literal["stop", "skip"],
    timeout_ms: int | None,
) -> None:
    await fill(virtual_kafka, RECORDS)
    async with member(virtual_kafka) as consumer:
        slow = Slow(react)
        run = asyncio.create_task(
            consumer.run(
                slow,
                drain_timeout_ms=500,
                retries=0,
                on_failure=on_failure,
                handler_timeout_ms=timeout_ms,
            )
        )
        await until(lambda: slow.begun)
        consumer.end_run()
        await run
        assert slow.cancelled == [0]
        assert await consumer.committed(PLACE) in {None, 0}
        assert (figures(consumer).handled, figures(consumer).dropped) == (0, 1)
        assert await handle_all(consumer) == [0, 1, 2]
        assert await consumer.committed(PLACE) == 3


async def test_a_record_cut_off_when_all_tasks_are_cancelled_is_delivered_again(
    virtual_kafka: VirtualKafka,
) -> None:
    await fill(virtual_kafka, RECORDS)
    async with member(virtual_kafka) as consumer:
        slow = Slow(returns)
        before = asyncio.all_tasks()
        run = asyncio.create_task(consumer.run(slow))
        await until(lambda: slow.begun)
        # As at the end of `asyncio.run`, the handlers' tasks are cancelled along with the run's.
        names = {"handle records", run.get_name()}
        for task in asyncio.all_tasks() - before:
            if task.get_name() in names:
                task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert slow.cancelled == [0]
        assert await handle_all(consumer) == [0, 1, 2]


@REACTIONS
async def test_a_cancelled_attempt_has_failed_and_is_repeated(
    virtual_kafka: VirtualKafka, react: Callable[[], None]
) -> None:
    await fill(virtual_kafka, RECORDS)
    letters: list[DeadLetter] = []

    async def store(letter: DeadLetter) -> None:
        letters.append(letter)

    async with member(virtual_kafka) as consumer:
        slow = Slow(react)
        run = asyncio.create_task(
            consumer.run(
                slow, handler_timeout_ms=200, retries=2, retry_on=TimeoutError, dead_letter=store
            )
        )
        await until(lambda: len(letters) == 1 and len(slow.begun) == 5)
        consumer.end_run()
        await run
        assert slow.begun == [0, 0, 0, 1, 2]
        assert [(one.record.offset, type(one.error)) for one in letters] == [(0, TimeoutError)]
        assert figures(consumer).failed == 3
        assert await consumer.committed(PLACE) == 3


async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        raise TimeoutError from None


async def give_up_waiting() -> None:
    """Use a timeout that cancels the task and does not call `uncancel`."""
    try:
        await cancel_itself()
    except TimeoutError:
        await asyncio.sleep(0.01)


async def end_as_cancelled() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


@TIMED
async def test_a_handler_whose_own_code_cancels_its_task_may_continue(
    virtual_kafka: VirtualKafka, timeout_ms: int | None
) -> None:
    await fill(virtual_kafka, RECORDS)
    async with member(virtual_kafka) as consumer:

        async def handle(record: Record) -> None:
            await give_up_waiting()
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0.01))
            if record.offset == 2:
                consumer.end_run()

        async with asyncio.timeout(60):
            await consumer.run(handle, retries=0, handler_timeout_ms=timeout_ms)
        assert await consumer.committed(PLACE) == 3


@TIMED
@pytest.mark.parametrize("fail", [cancel_itself, end_as_cancelled])
async def test_a_handler_that_ends_because_its_own_code_cancels_it_has_failed(
    virtual_kafka: VirtualKafka, fail: Callable[[], Awaitable[None]], timeout_ms: int | None
) -> None:
    await fill(virtual_kafka, RECORDS)
    async with member(virtual_kafka) as consumer:
        with pytest.raises(HandlerError):
            async with asyncio.timeout(60):
                await consumer.run(lambda _: fail(), retries=1, handler_timeout_ms=timeout_ms)
        assert figures(consumer).failed == 2
        assert await consumer.committed(PLACE) in {None, 0}

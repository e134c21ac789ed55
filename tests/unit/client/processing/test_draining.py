"""The end of a run, and a revocation, finish the records before those that are done already."""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from kohort import Consumer, ConsumerRecord, TopicPartition
from kohort.client.core.errors import HandlerError
from kohort.client.processing.dead_letters import DeadLetter
from kohort.client.processing.options import RunSettings
from kohort.testing import VirtualKafka
from tests.unit.client.processing.members import figures, member, until

Record = ConsumerRecord[Any, Any]
PLACE = TopicPartition("t", 0)
COUNT = 100
FAILING = 10


class Failing:
    """A handler that fails for one record until others are handled, and then a few times."""

    def __init__(self, consumer: Consumer, *, left: int = 0) -> None:
        self.consumer = consumer
        self.left = left
        self.handled: Counter[int] = Counter()
        self.attempts = 0

    async def __call__(self, record: Record) -> None:
        if record.offset == FAILING:
            self.attempts += 1
            if self.handled.total() < COUNT - 1:
                raise OSError("not yet")
            if self.left:
                self.left -= 1
                raise OSError("not now")
        self.handled[record.offset] += 1
        if self.handled.total() == COUNT - 1:
            self.consumer.end_run()


async def fill(kafka: VirtualKafka) -> None:
    await kafka.create_topic("t", partitions=1)
    for number in range(COUNT):
        await kafka.produce("t", b'{"amount": 1}', key=b"k%d" % number)


OPTIONS: RunSettings = {
    "ordering": "key",
    "retry_jitter": 0.0,
    "retries": None,
    "drain_timeout_ms": 20_000,
}


@pytest.mark.parametrize(
    ("options", "left", "attempts", "within_s"),
    [
        pytest.param({"retry_backoff_ms": 2_000}, 0, 2, 3, id="due in time"),
        pytest.param({"retry_backoff_ms": 2_000}, 2, 4, 15, id="due in time, three times"),
        pytest.param({"retry_backoff_ms": 30_000}, 0, 2, 1, id="a last attempt at once"),
    ],
)
async def test_a_record_that_waits_for_a_retry_is_tried_before_the_end(
    virtual_kafka: VirtualKafka, options: RunSettings, left: int, attempts: int, within_s: int
) -> None:
    await fill(virtual_kafka)
    async with member(virtual_kafka) as consumer:
        handler = Failing(consumer, left=left)
        run = asyncio.create_task(consumer.run(handler, **OPTIONS | options))
        await until(lambda: handler.handled.total() >= COUNT - 1)
        async with asyncio.timeout(within_s):
            await run
        assert handler.attempts == attempts
        assert await consumer.committed(PLACE) == COUNT
        assert handler.handled == Counter(range(COUNT))


async def test_a_last_attempt_that_fails_ends_the_run_without_waiting(
    virtual_kafka: VirtualKafka,
) -> None:
    await fill(virtual_kafka)
    async with member(virtual_kafka) as consumer:
        handler = Failing(consumer, left=1)
        async with asyncio.timeout(5):
            await consumer.run(handler, **OPTIONS | {"retry_backoff_ms": 30_000})
        assert await consumer.committed(PLACE) == FAILING


async def test_records_between_handled_ones_are_handled_before_the_end(
    virtual_kafka: VirtualKafka,
) -> None:
    """Every fourth record has the same key, so they wait for each other while the rest is done."""
    kafka = virtual_kafka
    await kafka.create_topic("t", partitions=1)
    for number in range(40):
        await kafka.produce("t", b"", key=b"slow" if number % 4 == 0 else b"k%d" % number)
    async with member(kafka) as consumer:
        handled: Counter[int] = Counter()

        async def handle(record: Record) -> None:
            if record.key == b"slow":
                await asyncio.sleep(1)
            handled[record.offset] += 1
            if record.offset == 23:
                consumer.end_run()

        await consumer.run(handle, ordering="key", concurrency=4)
        committed = await consumer.committed(PLACE)
        assert committed is not None
        assert handled == Counter(range(committed))
        assert 24 <= committed < 40


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_revocation_waits_for_a_retry(virtual_kafka: VirtualKafka, strategy: str) -> None:
    kafka = virtual_kafka
    await kafka.create_topic("t", partitions=2)
    for number in range(40):
        await kafka.produce("t", b"", key=b"k%d" % number, partition=number % 2)
    settings: dict[str, Any] = {
        "partition_assignment_strategy": strategy,
        "heartbeat_interval_ms": 100,
        "auto_commit_interval_ms": 100,
    }
    handled: Counter[tuple[int, int]] = Counter()
    failed: set[int] = set()

    async def handle(record: Record) -> None:
        if record.offset == 3 and record.partition not in failed:
            failed.add(record.partition)
            raise OSError("not yet")
        handled[record.partition, record.offset] += 1

    async with member(kafka, **settings) as first, member(kafka, **settings) as second:
        options = OPTIONS | {"retry_backoff_ms": 5_000}
        runs = [asyncio.create_task(first.run(handle, **options))]
        await until(lambda: handled.total() >= 38)
        runs.append(asyncio.create_task(second.run(handle, **options)))
        await until(second.assignment)
        assert len(second.assignment()) == 1
        first.end_run()
        second.end_run()
        await asyncio.gather(*runs)
    assert handled == Counter((one, at) for one in range(2) for at in range(20))


async def test_each_attempt_gets_a_new_value(virtual_kafka: VirtualKafka) -> None:
    await fill(virtual_kafka)
    seen: list[int] = []
    async with member(virtual_kafka, value_deserializer=json.loads) as consumer:

        def handle(record: Record) -> None:
            seen.append(record.value["amount"])
            record.value["amount"] *= 100
            if len(seen) < 3:
                raise OSError("the database is away")
            consumer.end_run()

        await consumer.run(handle, retry_backoff_ms=10)
    assert seen[:3] == [1, 1, 1]


async def lose(letter: DeadLetter) -> None:
    raise ConnectionError(letter)


@pytest.mark.parametrize(
    "options",
    [{"drain_timeout_ms": 0}, {"retries": 0}, {"retries": 0, "dead_letter": lose}],
    ids=["retried", "failed", "dead-letter"],
)
async def test_a_run_that_has_ended_has_nothing_in_hand(
    virtual_kafka: VirtualKafka, options: RunSettings
) -> None:
    await fill(virtual_kafka)
    async with member(virtual_kafka) as consumer:

        async def fail(_record: Record) -> None:
            raise OSError

        async def end() -> None:
            await until(lambda: figures(consumer).failed)
            consumer.end_run()

        ending = asyncio.create_task(end())
        with suppress(HandlerError):
            await consumer.run(fail, **options)
        await ending
        await asyncio.sleep(60)
        run = figures(consumer)
        assert run.failed
        assert (run.in_flight, run.waiting, run.held_bytes) == (0, 0, 0)
        assert run.oldest_in_flight is None
        assert run.oldest_in_flight_seconds is None
        assert run.handler_seconds is None
        assert run.dead_letters_failing_seconds is None

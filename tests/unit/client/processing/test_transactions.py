"""`run` with a transactional producer: output, dead letters and offsets take effect together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from aiokafka import AIOKafkaProducer

from kohort import Consumer, ConsumerRecord, TopicPartition
from kohort.client.core.errors import ConfigError, HandlerError
from kohort.testing import VirtualKafka
from tests.unit.client.processing.members import member

Record = ConsumerRecord[Any, Any]
PLACE = TopicPartition("t", 0)
COUNT = 40
SETTINGS: dict[str, Any] = {"isolation_level": "read_committed"}


@asynccontextmanager
async def producer_of(kafka: VirtualKafka, name: str = "p") -> AsyncIterator[Any]:
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=name, retry_backoff_ms=5
    )
    async with producer:
        yield producer


async def fill(kafka: VirtualKafka, partitions: int = 1) -> None:
    for topic in ("t", "out", "dead"):
        await kafka.create_topic(topic, partitions=partitions)
    for number in range(COUNT):
        await kafka.produce(
            "t", b"%d" % number, key=b"k%d" % (number % 7), partition=number % partitions
        )


async def output(kafka: VirtualKafka, topic: str = "out") -> list[int]:
    records = await kafka.records(topic, committed=True)
    return [int(record.value or b"") for record in records]


@pytest.mark.parametrize("ordering", ["key", "partition"])
async def test_what_was_sent_by_attempts_that_failed_is_aborted(
    virtual_kafka: VirtualKafka, ordering: Literal["key", "partition"]
) -> None:
    kafka = virtual_kafka
    await fill(kafka)
    failed: set[int] = set()
    async with member(kafka, **SETTINGS) as consumer, producer_of(kafka) as producer:

        async def handle(record: Record) -> None:
            number = int(record.value)
            await producer.send("out", record.value)
            if number % 10 == 3:
                raise LookupError("never")
            if number % 10 == 5 and number not in failed:
                failed.add(number)
                raise OSError("once")
            if number == COUNT - 1:
                consumer.end_run()

        await consumer.run(
            handle,
            ordering=ordering,
            retries=1,
            retry_backoff_ms=5,
            dead_letter="dead",
            producer=producer,
        )
        assert await consumer.committed(PLACE) == COUNT
    poison = list(range(3, COUNT, 10))
    assert sorted(await output(kafka)) == [one for one in range(COUNT) if one not in poison]
    assert await output(kafka, "dead") == poison


async def test_a_record_that_may_not_be_skipped_aborts_its_transaction(
    virtual_kafka: VirtualKafka,
) -> None:
    kafka = virtual_kafka
    await fill(kafka)
    async with member(kafka, **SETTINGS) as consumer, producer_of(kafka) as producer:

        async def handle(record: Record) -> None:
            await producer.send("out", record.value)
            if int(record.value) == 20:
                raise LookupError("never")

        with pytest.raises(HandlerError):
            await consumer.run(handle, retries=0, producer=producer)
        committed = await consumer.committed(PLACE) or 0
        assert committed <= 20
        assert await output(kafka) == list(range(committed))

        async def copy(record: Record) -> None:
            await producer.send("out", record.value)
            if int(record.value) == COUNT - 1:
                consumer.end_run()

        await consumer.run(copy, producer=producer)
        assert await output(kafka) == list(range(COUNT))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_members_that_come_and_go_repeat_nothing(
    virtual_kafka: VirtualKafka, strategy: str
) -> None:
    kafka = virtual_kafka
    await fill(kafka, 4)
    settings = SETTINGS | {"partition_assignment_strategy": strategy, "heartbeat_interval_ms": 200}

    async def serve(name: str, consumer: Consumer) -> None:
        async with producer_of(kafka, name) as producer:

            async def handle(record: Record) -> None:
                await asyncio.sleep(0.05)
                await producer.send("out", record.value)

            await consumer.run(handle, producer=producer)

    async with (
        member(kafka, **settings) as first,
        member(kafka, **settings) as second,
    ):
        runs = [asyncio.create_task(serve("a", first))]
        await asyncio.sleep(0.3)
        runs.append(asyncio.create_task(serve("b", second)))
        await kafka.group("g").wait(members=2, lag=0, timeout=120)
        await asyncio.sleep(1)
        first.end_run()
        second.end_run()
        await asyncio.gather(*runs)
    assert sorted(await output(kafka)) == list(range(COUNT))


async def test_a_member_that_was_removed_commits_nothing(virtual_kafka: VirtualKafka) -> None:
    """Its heartbeats do not arrive, while its producer's requests do."""
    kafka = virtual_kafka
    await fill(kafka)
    settings = SETTINGS | {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
    is_late, may_go_on = asyncio.Event(), asyncio.Event()
    async with (
        member(kafka, client_id="first", **settings) as first,
        member(kafka, client_id="second", **settings) as second,
        producer_of(kafka, "a") as stale,
        producer_of(kafka, "b") as fresh,
    ):

        async def be_late(record: Record) -> None:
            is_late.set()
            await stale.send("out", record.value)
            await may_go_on.wait()

        async def copy(record: Record) -> None:
            await fresh.send("out", record.value)
            if int(record.value) == COUNT - 1:
                second.end_run()

        late = asyncio.create_task(first.run(be_late, producer=stale))
        await is_late.wait()
        with kafka.fault("*", client_id="first", drop=True):
            await asyncio.sleep(7)
            taking_over = asyncio.create_task(second.run(copy, producer=fresh))
            await asyncio.sleep(1)
            may_go_on.set()
            async with asyncio.timeout(120):
                await taking_over
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
    assert sorted(await output(kafka)) == list(range(COUNT))


async def test_batches_are_transactions_too(virtual_kafka: VirtualKafka) -> None:
    kafka = virtual_kafka
    await fill(kafka, 2)
    failures = iter(range(2))
    async with member(kafka, **SETTINGS) as consumer, producer_of(kafka) as producer:
        handled = 0

        async def handle(records: list[Record]) -> None:
            nonlocal handled
            for record in records:
                await producer.send("out", record.value)
            if next(failures, None) is not None:
                raise OSError("not yet")
            handled += len(records)

        async def end() -> None:
            await kafka.group("g").wait(lag=0, timeout=120)
            consumer.end_run()

        ending = asyncio.create_task(end())
        await consumer.run_batches(
            handle, max_records=8, max_wait_ms=50, retry_backoff_ms=5, producer=producer
        )
        await ending
    assert sorted(await output(kafka)) == list(range(COUNT))


async def test_another_object_or_no_group_is_rejected(virtual_kafka: VirtualKafka) -> None:
    kafka = virtual_kafka
    async with member(kafka, **SETTINGS) as consumer:
        with pytest.raises(ConfigError, match="producer"):
            await consumer.run(lambda _: None, producer=object())
    async with (
        Consumer("t", bootstrap_servers=kafka.bootstrap_servers) as alone,
        producer_of(kafka) as producer,
    ):
        with pytest.raises(ConfigError, match="group_id"):
            await alone.run(lambda _: None, producer=producer)


@pytest.mark.parametrize(
    ("settings", "steps", "message"),
    [
        ({}, ["start"], "no transactional_id"),
        ({"enable_idempotence": True}, ["start"], "no transactional_id"),
        ({"transactional_id": "p"}, [], "not running"),
        ({"transactional_id": "p"}, ["start", "stop"], "not running"),
    ],
    ids=["plain", "idempotent", "not-started", "stopped"],
)
async def test_a_producer_that_cannot_begin_transactions_is_rejected(
    virtual_kafka: VirtualKafka, settings: dict[str, Any], steps: list[str], message: str
) -> None:
    kafka = virtual_kafka
    await fill(kafka)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, **settings)
    try:
        for step in steps:
            await getattr(producer, step)()
        async with member(kafka, **SETTINGS) as consumer, asyncio.timeout(60):
            with pytest.raises(ConfigError, match=message):
                await consumer.run(lambda _: None, producer=producer)
    finally:
        await producer.stop()

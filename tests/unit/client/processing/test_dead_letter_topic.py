"""The topic of dead letters: topics that are rejected, and a producer that has failed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kohort import Consumer, ConsumerRecord, TopicPartition
from kohort.client.core.errors import ConfigError, UnknownTopicError
from kohort.testing import VirtualKafka, kafka_settings
from tests.unit.client.processing.members import member, until

Subscribe = Callable[[Consumer], None]


def refuse(record: ConsumerRecord[Any, Any]) -> None:
    raise LookupError(str(record.offset))


async def wait_for_dead_letters(consumer: Consumer, count: int) -> None:
    await until(lambda: (run := consumer.health().run) and run.dead_lettered == count)


@pytest.mark.parametrize(
    "subscribe",
    [
        pytest.param(lambda one: one.subscribe(["orders", "orders.dead"]), id="names"),
        pytest.param(lambda one: one.subscribe(pattern=r"orders.*"), id="pattern"),
        pytest.param(lambda one: one.assign([TopicPartition("orders.dead", 0)]), id="assigned"),
    ],
)
async def test_a_topic_that_the_consumer_reads_is_rejected(
    virtual_kafka: VirtualKafka, subscribe: Subscribe
) -> None:
    async with member(virtual_kafka, []) as consumer:
        subscribe(consumer)
        with pytest.raises(ConfigError, match=r"dead_letter 'orders\.dead'"):
            await consumer.run(refuse, dead_letter="orders.dead")


@kafka_settings({"auto.create.topics.enable": False})
async def test_a_topic_that_does_not_exist_is_reported_when_the_run_begins(
    virtual_kafka: VirtualKafka,
) -> None:
    await virtual_kafka.create_topic("orders")
    async with member(virtual_kafka, ["orders"]) as consumer:
        began_ms = virtual_kafka.now_ms
        with pytest.raises(UnknownTopicError, match=r"orders\.dead"):
            await consumer.run(refuse, dead_letter="orders.dead")
        assert virtual_kafka.now_ms - began_ms < 10_000
        await virtual_kafka.create_topic("orders.dead")
        run = asyncio.create_task(consumer.run(refuse, retries=0, dead_letter="orders.dead"))
        await virtual_kafka.produce("orders", b"1")
        await wait_for_dead_letters(consumer, 1)
        consumer.end_run()
        await run


async def test_a_topic_that_the_broker_creates_is_created(virtual_kafka: VirtualKafka) -> None:
    await virtual_kafka.create_topic("orders")
    async with member(virtual_kafka, ["orders"]) as consumer:
        run = asyncio.create_task(consumer.run(refuse, retries=0, dead_letter="orders.dead"))
        await virtual_kafka.produce("orders", b"1")
        await wait_for_dead_letters(consumer, 1)
        consumer.end_run()
        await run


async def test_a_producer_that_has_failed_is_replaced(virtual_kafka: VirtualKafka) -> None:
    """An idempotent producer whose batch was rejected can write nothing any more: the sequence
    numbers after it do not follow those that the broker has.
    """
    kafka = virtual_kafka
    await kafka.create_topic("orders", partitions=1)
    await kafka.create_topic("orders.dead", partitions=1)
    async with member(kafka, ["orders"]) as consumer:
        run = asyncio.create_task(
            consumer.run(refuse, retries=0, retry_backoff_ms=10, dead_letter="orders.dead")
        )
        await kafka.produce("orders", b"1")
        await wait_for_dead_letters(consumer, 1)
        with kafka.fault(
            "Produce", topic="orders.dead", error="OUT_OF_ORDER_SEQUENCE_NUMBER", times=1
        ):
            await kafka.produce("orders", b"2")
            await wait_for_dead_letters(consumer, 2)
        consumer.end_run()
        await run
    letters = await kafka.records("orders.dead", partition=0)
    assert [letter.value for letter in letters] == [b"1", b"2"]


async def test_a_topic_that_the_consumer_begins_to_read_ends_the_run(
    virtual_kafka: VirtualKafka,
) -> None:
    kafka = virtual_kafka
    await kafka.create_topic("orders", partitions=1)
    await kafka.create_topic("orders.dead", partitions=1)
    async with member(kafka, ["orders"]) as consumer:
        run = asyncio.create_task(consumer.run(refuse, retries=0, dead_letter="orders.dead"))
        await kafka.produce("orders", b"1")
        await wait_for_dead_letters(consumer, 1)
        consumer.subscribe(["orders", "orders.dead"])
        with pytest.raises(ConfigError, match=r"dead_letter 'orders\.dead'"):
            await run
        assert consumer.health().run is not None
    assert len(await kafka.records("orders.dead", partition=0)) == 1


async def test_a_topic_that_the_broker_matches_ends_the_run(virtual_kafka: VirtualKafka) -> None:
    kafka = virtual_kafka
    await kafka.create_topic("orders", partitions=1)
    await kafka.create_topic("orders.dead", partitions=1)
    await kafka.produce("orders.dead", b"1")
    async with member(kafka, [], group_protocol="consumer") as consumer:
        consumer.subscribe(broker_pattern="orders.*")
        with pytest.raises(ConfigError, match=r"dead_letter 'orders\.dead'"):
            async with asyncio.timeout(60):
                await consumer.run(refuse, retries=0, dead_letter="orders.dead")


async def test_a_write_that_is_not_answered_has_failed_after_a_while(
    virtual_kafka: VirtualKafka,
) -> None:
    kafka = virtual_kafka
    await kafka.create_topic("orders", partitions=1)
    await kafka.create_topic("orders.dead", partitions=1)
    async with member(kafka, ["orders"], session_timeout_ms=6_000) as consumer:
        run = asyncio.create_task(consumer.run(refuse, retries=0, dead_letter="orders.dead"))
        with kafka.fault("Produce", topic="orders.dead", drop=True):
            await kafka.produce("orders", b"1")
            await asyncio.sleep(30)
            health = consumer.health()
            assert health.problem is not None
            assert "TimeoutError" in health.problem
        await wait_for_dead_letters(consumer, 1)
        consumer.end_run()
        await run

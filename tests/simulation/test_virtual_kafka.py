"""A test, its clients and a broker on virtual time: hours in moments, and the same each time."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from kohort import Consumer, TopicPartition, errors
from kohort.groups.events import TriggerKind
from kohort.testing import VirtualKafka, kafka_settings
from kohort.testing.kit.polling import wait_until
from kohort.testing.virtual_time import VirtualTimeError


@asynccontextmanager
async def worker(kafka: VirtualKafka, name: str) -> AsyncIterator[AIOKafkaConsumer]:
    """A member of the group "billing", as it comes out of the box."""
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="billing",
        client_id=name,
        session_timeout_ms=45_000,
        auto_offset_reset="earliest",
    )
    async with consumer:
        yield consumer


async def takeover(kafka: VirtualKafka) -> int:
    """One of two workers falls silent; returns how long the other waits for its partitions."""
    await kafka.create_topic("orders", partitions=4)
    group = kafka.group("billing")
    async with worker(kafka, "w1"), worker(kafka, "w2") as left:
        await group.wait(state="Stable", members=2)
        began_ms = kafka.now_ms
        with kafka.fault("*", client_id="w1", drop=True):
            await group.wait(state="Stable", members=1)
        lasted_ms = kafka.now_ms - began_ms
        assert len(left.assignment()) == 4
        # A client that is closed while it looks for its coordinator may never come to an end.
        await group.wait(state="Stable", members=2)
        kinds = [one.trigger.kind for one in await group.rebalances()]
        assert TriggerKind.SESSION_EXPIRED in kinds
    return lasted_ms


async def test_a_session_of_45_seconds_ends_in_a_moment(virtual_kafka: VirtualKafka) -> None:
    assert 45_000 <= await takeover(virtual_kafka) < 60_000


def test_the_same_seed_does_the_same_and_another_one_does_not() -> None:
    def trace(seed: int) -> list[str]:
        kafka = VirtualKafka(seed=seed)
        kafka.run(takeover(kafka))
        kafka.close()
        return kafka.trace

    first = trace(1)
    assert len(first) > 50
    assert first == trace(1)
    assert first != trace(2)


async def test_what_is_produced_is_consumed(virtual_kafka: VirtualKafka) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=virtual_kafka.bootstrap_servers)
    await virtual_kafka.create_topic("orders", partitions=1)
    async with producer, worker(virtual_kafka, "w1") as consumer:
        for size in (1, 100_000, 900_000):
            await producer.send_and_wait("orders", bytes(size))
            assert len((await consumer.getone()).value) == size
        await virtual_kafka.group("billing").wait(lag=0)


async def test_our_consumer_keeps_its_membership(virtual_kafka: VirtualKafka) -> None:
    await virtual_kafka.create_topic("orders", partitions=2)
    group = virtual_kafka.group("billing")
    async with Consumer(
        "orders", bootstrap_servers=virtual_kafka.bootstrap_servers, group_id="billing"
    ) as consumer:

        async def poll() -> None:
            while True:
                await consumer.getmany(timeout_ms=60_000)

        polling = asyncio.create_task(poll())
        await group.wait(state="Stable", members=1)
        with virtual_kafka.fault("Heartbeat", observe=True) as beats:
            await asyncio.sleep(300)
        assert beats.hits > 60
        assert len(await group.rebalances()) == 1
        with virtual_kafka.fault("*", drop=True):
            await group.wait(members=0)
        await group.wait(state="Stable", members=1)
        polling.cancel()
        with suppress(asyncio.CancelledError):
            await polling


@pytest.mark.parametrize("instance", [None, "one"])
async def test_a_silent_poll_loop_is_told_to_leave(
    virtual_kafka: VirtualKafka, instance: str | None
) -> None:
    """A static member stays until its session ends."""
    await virtual_kafka.create_topic("orders")
    async with Consumer(
        "orders",
        bootstrap_servers=virtual_kafka.bootstrap_servers,
        group_id="billing",
        group_instance_id=instance,
        max_poll_interval_ms=300_000,
    ) as consumer:
        await consumer.getmany(timeout_ms=5_000)
        await virtual_kafka.group("billing").wait(state="Stable", members=1)
        await asyncio.sleep(301)
        silent_ms = virtual_kafka.now_ms
        await virtual_kafka.group("billing").wait(members=0)
        assert (virtual_kafka.now_ms - silent_ms > 30_000) is (instance is not None)


async def test_a_record_says_how_long_a_member_that_left_had_not_fetched(
    virtual_kafka: VirtualKafka,
) -> None:
    await virtual_kafka.create_topic("orders")
    async with Consumer(
        "orders", bootstrap_servers=virtual_kafka.bootstrap_servers, group_id="billing"
    ) as consumer:
        await consumer.getmany(timeout_ms=5_000)
        consumer.pause(*consumer.assignment())
        for _ in range(30):
            await consumer.getmany(timeout_ms=1_000)
    *_, left = await virtual_kafka.group("billing").rebalances()
    assert 20_000 < (left.trigger.unfetched_ms or 0) < 40_000


async def test_offsets_that_are_not_found_in_time_are_an_error(virtual_kafka: VirtualKafka) -> None:
    await virtual_kafka.create_topic("orders")
    async with Consumer(
        bootstrap_servers=virtual_kafka.bootstrap_servers, default_api_timeout_ms=5_000
    ) as consumer:
        with pytest.raises(errors.UnknownTopicError):
            await consumer.end_offsets([TopicPartition("absent", 0)])
        with (
            virtual_kafka.fault("ListOffsets", drop=True),
            pytest.raises(errors.OperationTimedOutError),
        ):
            await consumer.end_offsets([TopicPartition("orders", 0)])


async def test_clients_outlive_restarts_and_crashes(virtual_kafka: VirtualKafka) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=virtual_kafka.bootstrap_servers, enable_idempotence=True
    )
    await virtual_kafka.create_topic("orders")
    async with producer:
        for value in (b"a", b"b", b"c"):
            await producer.send_and_wait("orders", value)
            await (virtual_kafka.crash() if value == b"a" else virtual_kafka.restart())
    assert [one.value for one in await virtual_kafka.records("orders")] == [b"a", b"b", b"c"]


@asynccontextmanager
async def consuming(kafka: VirtualKafka, name: str) -> AsyncIterator[Consumer]:
    """A member of the group "billing" in the consumer group protocol, which is polled."""
    async with Consumer(
        "orders",
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="billing",
        client_id=name,
        group_protocol="consumer",
    ) as consumer:

        async def poll() -> None:
            while True:
                await consumer.poll(1)

        task = asyncio.create_task(poll())
        try:
            yield consumer
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_members_of_the_consumer_group_protocol(virtual_kafka: VirtualKafka) -> None:
    await virtual_kafka.create_topic("orders", partitions=4)
    group = virtual_kafka.group("billing")
    async with consuming(virtual_kafka, "w1") as one, consuming(virtual_kafka, "w2") as two:

        async def share() -> None:
            await group.wait(state="Stable", members=2)
            assert await wait_until(
                lambda: len(one.assignment()) == len(two.assignment()) == 2, 120
            )

        await share()
        began_ms = virtual_kafka.now_ms
        with virtual_kafka.fault("*", client_id="w1", drop=True):
            await group.wait(state="Stable", members=1)
        assert 40_000 <= virtual_kafka.now_ms - began_ms < 60_000
        await share()
        assert len(await group.expire(client_id="w2")) == 1
        await share()
        await group.enforce()
        await share()
        assert len(await group.remove(client_id="w1")) == 1
        await share()
    kinds = [record.trigger.kind for record in await group.rebalances()]
    assert kinds.count(TriggerKind.SESSION_EXPIRED) == 2
    assert {TriggerKind.FORCED_BY_REASON, TriggerKind.REMOVED_BY_ADMIN} <= {*kinds}


@kafka_settings({"log.retention.ms": 3_600_000, "log.retention.check.interval.ms": 60_000})
async def test_records_grow_old(virtual_kafka: VirtualKafka) -> None:
    await virtual_kafka.produce("orders", b"x")
    await asyncio.sleep(2 * 3_600)
    assert not await virtual_kafka.records("orders")


async def test_the_clocks_of_the_process_move_along(virtual_kafka: VirtualKafka) -> None:
    before = time.time(), time.monotonic(), virtual_kafka.now_ms
    await asyncio.sleep(45 * 60)
    time.sleep(60)  # noqa: ASYNC251 - it is virtual, too.
    after = time.time(), time.monotonic(), virtual_kafka.now_ms
    assert after[0] - before[0] == pytest.approx(46 * 60)
    assert after[1] - before[1] == pytest.approx(46 * 60)
    assert after[2] - before[2] == 46 * 60_000


def test_what_was_stored_is_there_in_the_next_run(virtual_kafka: VirtualKafka) -> None:
    virtual_kafka.run(virtual_kafka.produce("orders", b"x"))
    (record,) = virtual_kafka.run(virtual_kafka.records("orders"))
    assert record.value == b"x"


def test_waiting_for_what_never_comes_has_an_end(virtual_kafka: VirtualKafka) -> None:
    virtual_kafka.limit_s = 600
    with pytest.raises(VirtualTimeError, match="600 s of virtual time have passed"):
        virtual_kafka.run(asyncio.Event().wait())

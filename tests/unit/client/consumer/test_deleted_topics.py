"""Topics that are deleted while a consumer reads them."""

import asyncio

import pytest

from kohort import Consumer, ConsumerRecord
from kohort.client.core.errors import UnknownTopicError
from kohort.testing import VirtualKafka

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def reader(kafka: VirtualKafka, protocol: str) -> Consumer:
    return Consumer(
        "t",
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="g",
        group_protocol=protocol,
        auto_offset_reset="earliest",
    )


async def delete(kafka: VirtualKafka) -> None:
    topics = kafka._kit.broker.services.topics
    topic = topics.get("t")
    assert topic is not None
    assert await topics.changes.delete_topics([topic]) == [None]


@PROTOCOLS
async def test_a_deleted_topic_is_reported_at_once_and_raised_when_it_stays_away(
    virtual_kafka: VirtualKafka, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    await virtual_kafka.create_topic("t")
    async with reader(virtual_kafka, protocol) as consumer:
        await consumer.getmany(timeout_ms=60_000)
        assert consumer.health().is_ready
        await delete(virtual_kafka)
        await consumer.getmany(timeout_ms=3_000)
        assert list(consumer.health().missing) == ["t"]
        assert not consumer.health().is_ready
        assert "kohort.client.net.metadata" in {record.name for record in caplog.records}
        with pytest.raises(UnknownTopicError):
            await consumer.getmany(timeout_ms=30_000)


@PROTOCOLS
async def test_a_run_reads_a_topic_that_is_created_again(
    virtual_kafka: VirtualKafka, protocol: str
) -> None:
    await virtual_kafka.create_topic("t")
    await virtual_kafka.produce("t", b"before")
    read: asyncio.Queue[bytes] = asyncio.Queue()

    def handle(record: ConsumerRecord[bytes, bytes]) -> None:
        read.put_nowait(record.value)

    async with reader(virtual_kafka, protocol) as consumer, asyncio.timeout(60):
        run = asyncio.create_task(consumer.run(handle))
        assert await read.get() == b"before"
        await asyncio.sleep(6)  # Until it is committed.
        await delete(virtual_kafka)
        await asyncio.sleep(10)
        await virtual_kafka.create_topic("t")
        await virtual_kafka.produce("t", b"after")
        assert await read.get() == b"after"
        consumer.end_run()
        await run
        assert consumer.health().missing == {}

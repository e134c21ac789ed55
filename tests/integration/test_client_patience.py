"""What the consumer waits for, and what it does not."""

import asyncio
import select
import time
import uuid
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from kohort import Consumer, OffsetAndMetadata, TopicPartition
from kohort.client.core.errors import ConsumerClosedError, IllegalStateError
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.opening import open_connection
from kohort.protocol.messages.fetch import FetchRequest
from kohort.testing import Kafka
from kohort.testing.virtual_kafka import VirtualKafka
from tests.support import messages as m

CONFIG = ConnectionConfig(client_id="tests")
TIMEOUT_S = 30
LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
NewLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture
def broker(kafka_module: Kafka) -> Kafka:
    return kafka_module


def create(broker: Kafka, partitions: int) -> list[TopicPartition]:
    name = f"patience-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, partitions=partitions)
    return [TopicPartition(name, index) for index in range(partitions)]


def keep_busy(connection: BrokerConnection, timeout_s: float) -> None:
    """Block the loop until an answer is in the socket, and the timeout is over."""
    transport = connection._transport
    assert transport is not None
    socket = transport.get_extra_info("socket")
    if connection.in_flight_count:  # Else the loop has received it already, and this shows less.
        select.select([socket.fileno()], [], [], 60)
    time.sleep(1.5 * timeout_s)


@LOOPS
def test_an_answer_that_came_while_the_loop_was_busy_is_one(
    broker: Kafka, new_loop: NewLoop
) -> None:
    async def test() -> None:
        connection = await open_connection("127.0.0.1", broker.port, CONFIG)
        calling = asyncio.create_task(
            connection.call(m.MetadataRequest(topics=None), timeout_ms=200)
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        keep_busy(connection, 0.2)
        assert (await calling).brokers
        assert not connection.is_closed
        connection.close()
        await connection.wait_closed()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(test())


@LOOPS
def test_an_answer_that_does_not_come_is_not_waited_for(broker: Kafka, new_loop: NewLoop) -> None:
    async def test() -> None:
        [partition] = create(broker, 1)
        parked = FetchRequest(
            max_wait_ms=600_000,
            min_bytes=1,
            topics=[
                m.FetchTopic(
                    topic=partition.topic,
                    partitions=[
                        m.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
                    ],
                )
            ],
        )
        connection = await open_connection("127.0.0.1", broker.port, CONFIG)
        try:
            with pytest.raises(DisconnectedError, match="no answer to FetchRequest within 200 ms"):
                await connection.call(parked, version=12, timeout_ms=200)
            assert connection.is_closed
        finally:
            connection.close()
            await connection.wait_closed()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(test())


async def test_what_is_looked_up_does_not_wait_behind_a_fetch_that_is_parked(
    broker: Kafka,
) -> None:
    partition, _ = create(broker, 2)
    async with Consumer(
        bootstrap_servers=f"127.0.0.1:{broker.port}",
        fetch_max_wait_ms=600_000,
        request_timeout_ms=TIMEOUT_S * 1_000,
        default_api_timeout_ms=TIMEOUT_S * 1_000,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign([partition])
        polling = asyncio.create_task(consumer.poll(600))
        assert await consumer.position(partition) == 0
        await asyncio.sleep(0.1)  # So that it is parked; if it is not, this shows less.
        assert await consumer.end_offsets([partition]) == {partition: 0}
        assert partition.topic in await consumer.topics()
        assert not polling.done()
        # Stopped before it is looked at.
        stopping = asyncio.create_task(consumer.stop())
        with pytest.raises(ConsumerClosedError):
            await polling
        await stopping


async def test_a_partition_that_went_and_came_back_is_not_set_to_what_was_committed_before(
    broker: Kafka,
) -> None:
    moved, kept = create(broker, 2)
    async with Consumer(
        bootstrap_servers=f"127.0.0.1:{broker.port}",
        group_id=f"patience-{uuid.uuid4().hex[:12]}",
        enable_auto_commit=False,
    ) as consumer:
        consumer.assign([moved, kept])
        committed = {moved: OffsetAndMetadata(3), kept: OffsetAndMetadata(4)}
        await consumer.commit(committed)
        seeking = asyncio.create_task(consumer.seek_to_committed())
        await asyncio.sleep(0)
        consumer.assign([kept])
        consumer.assign([moved, kept])
        consumer.seek(moved, 7)
        consumer.seek(kept, 8)
        assert await seeking == committed
        assert await consumer.position(moved) == 7, "it is another assignment's"
        assert await consumer.position(kept) == 4


async def test_a_sync_that_is_not_answered_ends_after_the_request_timeout(
    virtual_kafka: VirtualKafka,
) -> None:
    """Not after the rebalance timeout of five minutes, as a join does."""
    await virtual_kafka.create_topic("t", partitions=1)
    await virtual_kafka.produce("t", b"x")
    with virtual_kafka.fault("SyncGroup", drop=True, times=1) as fault:
        async with Consumer(
            "t",
            bootstrap_servers=virtual_kafka.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            request_timeout_ms=20_000,
        ) as consumer:
            assert await consumer.poll(timeout=60)
    assert fault.hits == 1
    assert 20_000 <= virtual_kafka.now_ms < 40_000


@pytest.mark.parametrize(
    "use",
    [
        lambda consumer: consumer.run(print),
        lambda consumer: consumer.poll(),
        lambda consumer: consumer.getone(),
        lambda consumer: anext(aiter(consumer)),
        lambda consumer: consumer.commit(),
    ],
    ids=["run", "poll", "getone", "async-for", "commit"],
)
def test_a_consumer_of_another_event_loop_is_not_waited_for(
    broker: Kafka, use: Callable[[Consumer], Awaitable[object]]
) -> None:
    [partition] = create(broker, 1)

    async def within(waited: Awaitable[object]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await waited

    with asyncio.Runner() as first, asyncio.Runner() as second:
        consumer = Consumer(
            partition.topic, bootstrap_servers=broker.bootstrap_servers, group_id=partition.topic
        )
        first.run(consumer.start())
        with pytest.raises(IllegalStateError, match="another event loop"):
            second.run(within(use(consumer)))
        assert not consumer.paused()  # Outside of any loop.
        first.run(consumer.stop())

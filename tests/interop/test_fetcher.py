"""What a fetcher makes of a Kohort and of a real Kafka; the same on both."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import uvloop
from aiokafka import AIOKafkaProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kohort.client.config import ConsumerConfig
from kohort.client.core.errors import (
    UnknownTopicError,
)
from kohort.client.core.fetch.config import IsolationLevel
from kohort.client.core.offsets import (
    EARLIEST as FROM_THE_START,
)
from kohort.client.core.offsets import (
    LATEST as FROM_THE_END,
)
from kohort.client.core.offsets import (
    OffsetAndTimestamp,
)
from kohort.client.core.partitions import TopicPartition
from kohort.client.fetch.offset_lookup import list_offsets
from kohort.protocol.types import ZERO_UUID
from tests.interop.fetching import EARLIEST, produce, reading
from tests.interop.same_answers.pair import Twins
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import admin_client, create_topics
from tests.support.waiting import wait_until

CreateTopic = Callable[..., str]


@pytest.fixture(params=["kohort", "kafka"])
def kind(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


@pytest.fixture
def address(twins: Twins, kind: str) -> str:
    """Bootstrap address of each broker in turn."""
    return (twins.kohort if kind == "kohort" else twins.kafka).bootstrap


@pytest.fixture
def its_admin(address: str) -> AdminClient:
    return admin_client(address)


def create(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
    create_topics(admin, topic)


@pytest.fixture
def new_topic(its_admin: AdminClient) -> CreateTopic:
    def make(partitions: int = 1, **config: str) -> str:
        name = f"fetch-{uuid.uuid4().hex[:12]}"
        create(its_admin, name, partitions, **config)
        return name

    return make


@pytest.fixture
def one(new_topic: CreateTopic) -> TopicPartition:
    """The partition of a topic with no other."""
    return TopicPartition(new_topic(), 0)


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [b"%d" % number + bytes(size) for number in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_records_of_all_partitions_come_in_their_order(
    address: str, new_topic: CreateTopic, codec: str | None
) -> None:
    topic = new_topic(3)
    values = {TopicPartition(topic, index): numbered(200 + index, 20) for index in range(3)}
    await produce(address, values, compression_type=codec)
    async with reading(address, *values) as reader:
        records = await reader.read(603, at_most=100)
        for partition, expected in values.items():
            mine = [record for record in records if record.partition == partition.partition]
            assert [record.value for record in mine] == expected
            assert [record.offset for record in mine] == list(range(len(expected)))
            assert reader.positions.consumed()[partition].offset == len(expected)
            assert reader.positions.lag(partition) == 0
        assert not reader.fetcher.take(1)


async def test_topics_are_asked_for_by_name_where_no_id_is_known(
    address: str, one: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    await produce(address, {one: numbered(3)})
    async with reading(address) as reader:
        await reader.cluster.refresh([one.topic])
        info = reader.cluster.topics[one.topic]
        assert info.topic_id != ZERO_UUID
        reader.cluster.learn([info._replace(topic_id=ZERO_UUID)])
        await reader.assign(one)
        assert [record.value for record in await reader.read(3)] == numbered(3)


async def test_what_waits_to_be_taken_is_bounded_over_all_partitions(
    address: str, new_topic: CreateTopic
) -> None:
    topic = new_topic(4)
    values = {TopicPartition(topic, index): numbered(200, 1_000) for index in range(4)}
    await produce(address, values, max_batch_size=20_000)
    config = replace(EARLIEST, max_partition_fetch_bytes=50_000, prefetch_bytes_limit=150_000)
    async with reading(address, *values, config=config) as reader:
        await reader.until(lambda: reader.fetcher.state.waiting_bytes > 50_000)
        most = 0
        seen = 0
        while seen < 800:
            # Time for whatever is going to be fetched, without a poll.
            await asyncio.sleep(0.02)
            most = max(most, reader.fetcher.state.waiting_bytes)
            seen += len(await reader.read(40))
        # One batch may come on top of the limit.
        assert 50_000 < most <= 175_000


async def test_a_batch_that_is_larger_than_all_limits_is_returned(
    address: str, one: TopicPartition
) -> None:
    values = [b"small", bytes(200_000), b"small again", bytes(300_000)]
    for value in values:
        await produce(address, {one: [value]})
    config = replace(
        EARLIEST, fetch_max_bytes=1_000, max_partition_fetch_bytes=1_000, prefetch_bytes_limit=1_000
    )
    async with reading(address, one, config=config) as reader:
        assert [record.value for record in await reader.read(4)] == values


async def test_every_partition_has_its_turn_when_only_one_fits_in_an_answer(
    address: str, new_topic: CreateTopic
) -> None:
    topic = new_topic(5)
    values = {TopicPartition(topic, index): numbered(20, 500) for index in range(5)}
    await produce(address, values, max_batch_size=1_200)
    config = replace(EARLIEST, fetch_max_bytes=1_500, max_partition_fetch_bytes=1_500)
    async with reading(address, *values, config=config) as reader:
        records = await reader.read(50)
        assert {record.partition for record in records} == set(range(5))
        assert len(await reader.read(50)) == 50


async def test_only_committed_transactions_are_read_if_that_is_wanted(
    address: str, one: TopicPartition
) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": address, "transactional_id": one.topic}
    async with AIOKafkaProducer(**settings) as producer:
        for number in range(6):
            await producer.begin_transaction()
            for part in range(3):
                await producer.send_and_wait(one.topic, b"%d.%d" % (number, part), partition=0)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        committed = [b"%d.%d" % (number, part) for number in (0, 2, 4) for part in range(3)]
        config = replace(EARLIEST, isolation_level="read_committed")
        async with reading(address, one, config=config) as reader:
            assert [record.value for record in await reader.read(9)] == committed
            # The markers and the last, aborted transaction are passed over as well, once a Kafka
            # has written the last marker.
            await reader.until(
                lambda: not reader.fetcher.take(1) and reader.positions.position(one) == 24
            )
            assert reader.positions.lag(one) == 0
            await producer.begin_transaction()
            await producer.send_and_wait(one.topic, b"open", partition=0)
            await reader.until(lambda: reader.positions.high_watermark(one) == 25)
            assert not reader.fetcher.take(1)
            assert reader.positions.last_stable(one) == 24
            ends = await list_offsets(
                reader.cluster, {one: FROM_THE_END}, IsolationLevel.READ_COMMITTED
            )
            assert ends == {one: OffsetAndTimestamp(24, -1, 0)}
            await producer.commit_transaction()
            assert [record.value for record in await reader.read(1)] == [b"open"]
        async with reading(address, one) as reader:
            assert len(await reader.read(19)) == 19


def expire(admin: AdminClient, partition: TopicPartition, offset: int) -> None:
    """Delete the records before an offset, as retention would."""
    where = ConfluentPartition(*partition, offset)
    for future in admin.delete_records([where]).values():
        future.result(30)


async def test_a_topic_that_was_created_again_is_read_from_its_own_beginning(
    address: str, its_admin: AdminClient, one: TopicPartition
) -> None:
    await produce(address, {one: numbered(5)})
    async with reading(address, one) as reader:
        assert len(await reader.read(5)) == 5
        its_admin.delete_topics([one.topic])[one.topic].result(30)
        wait_until(
            lambda: one.topic not in its_admin.list_topics(timeout=10).topics, "it to be gone"
        )
        create(its_admin, one.topic)
        # More than there were before, so that the old position exists in the new topic too.
        await produce(address, {one: [b"new %d" % number for number in range(8)]})
        records = await reader.read(8)
        assert [record.value for record in records] == [b"new %d" % number for number in range(8)]


async def test_a_topic_that_does_not_exist_yet_is_read_once_it_does(
    address: str, its_admin: AdminClient
) -> None:
    one = TopicPartition(f"fetch-{uuid.uuid4().hex[:12]}", 0)
    async with reading(address, one) as reader:
        await reader.until(lambda: reader.refreshes >= 3)
        await asyncio.to_thread(create, its_admin, one.topic)
        await produce(address, {one: [b"first"]})
        assert [record.value for record in await reader.read(1)] == [b"first"]
        # With a backoff in between, not as fast as the broker answers.
        assert reader.refreshes < 100


async def test_offsets_are_found_by_time_and_at_both_ends(
    address: str, its_admin: AdminClient, new_topic: CreateTopic
) -> None:
    topic = new_topic(2)
    first, second = (TopicPartition(topic, index) for index in range(2))
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for number in range(10):
            await producer.send_and_wait(topic, b"x", partition=0, timestamp_ms=1_000 + number)
    expire(its_admin, first, 2)
    async with reading(address) as reader:
        for spec, expected in {
            FROM_THE_START: {first: 2, second: 0},
            FROM_THE_END: {first: 10, second: 0},
            1_005: {first: 5, second: None},
            5_000: {first: None, second: None},
        }.items():
            found = await list_offsets(reader.cluster, {first: spec, second: spec})
            offsets = {name: at if at is None else at.offset for name, at in found.items()}
            assert offsets == expected
        by_time = await list_offsets(reader.cluster, {first: 1_005})
        assert by_time == {first: OffsetAndTimestamp(5, 1_005, 0)}
        missing = TopicPartition(topic, 7)
        with pytest.raises(UnknownTopicError, match=f"no such partitions: {topic}-7"):
            await list_offsets(reader.cluster, {first: FROM_THE_END, missing: 0}, timeout_ms=700)


async def test_a_duration_without_records_leads_to_the_end(
    address: str, one: TopicPartition
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        await producer.send_and_wait(one.topic, b"old", timestamp_ms=1_000)
    config = ConsumerConfig(auto_offset_reset="by_duration:PT1H")
    async with reading(address, one, config=config) as reader:
        await reader.wait_positions()
        assert reader.positions.position(one) == 1


@pytest.mark.parametrize("ending", ["stop", "kill"])
async def test_reading_goes_on_when_the_broker_comes_back(
    own_broker: ServerProcess, ending: str
) -> None:
    one = TopicPartition("survivor", 0)
    await asyncio.to_thread(create, admin_client(own_broker.bootstrap), one.topic)
    await produce(own_broker.bootstrap, {one: numbered(20)})
    async with reading(own_broker.bootstrap, one) as reader:
        assert len(await reader.read(5)) == 5
        if ending == "stop":
            await asyncio.to_thread(own_broker.stop)
        else:
            own_broker.kill()
        # What was fetched before is there all the same.
        assert [record.value for record in await reader.read(15)] == numbered(20)[5:]
        await reader.until(lambda: reader.refreshes >= 2)
        await asyncio.to_thread(own_broker.start)
        await produce(own_broker.bootstrap, {one: [b"after"]})
        assert [record.value for record in await reader.read(1)] == [b"after"]


def test_a_loop_of_uvloop_will_do(bootstrap: str, create_topic: CreateTopic) -> None:
    one = TopicPartition(create_topic(), 0)

    async def read() -> list[bytes]:
        await produce(bootstrap, {one: numbered(2_000, 100)})
        async with reading(bootstrap, one) as reader:
            return [record.value for record in await reader.read(2_000)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(read()) == numbered(2_000, 100)

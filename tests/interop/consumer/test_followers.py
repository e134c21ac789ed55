"""A consumer reads from the follower in its rack (KIP-392): two real Kafkas in one cluster."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kohort import Consumer, TopicPartition
from kohort.client.core.fetch.sources import LEADER_ALONE_MS
from kohort.client.net.address import Address
from kohort.client.net.cluster import FETCHING
from tests.interop.consumer.members import Topics, read
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.clients.confluent_client import admin_client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

NODES = 2
COUNT, SIZE = 200, 1_000
RECORDS = [b"x" * SIZE] * COUNT


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[KafkaServer]]:
    """Node 1 in rack a is the controller too, node 2 in rack b a broker alone."""
    first = KafkaServer(tmp_path_factory.mktemp("one"), overrides=_settings("a"))
    quorum = {
        name: first.properties[name]
        for name in ("controller.quorum.voters", "controller.listener.names")
    }
    second = KafkaServer(tmp_path_factory.mktemp("two"), overrides=_settings("b"))
    second.properties |= quorum | {
        "node.id": "2",
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://{second.bootstrap}",
    }
    with first, second:
        yield [first, second]


def _settings(rack: str) -> dict[str, str]:
    return {
        "broker.rack": rack,
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "broker.session.timeout.ms": "3000",
        "replica.lag.time.max.ms": "3000",
    }


@pytest.fixture
def admin(cluster: list[KafkaServer]) -> AdminClient:
    return admin_client(cluster[0].bootstrap)


@pytest.fixture
def topic(admin: AdminClient) -> str:
    """Led by node 1, with a follower on node 2."""
    name = f"followed-{uuid.uuid4().hex[:12]}"
    wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == NODES, "both brokers")
    admin.create_topics([NewTopic(name, 1, replica_assignment=[[1, 2]])])[name].result(30)
    wait_for_isr(admin, name)
    return name


def wait_for_isr(admin: AdminClient, topic: str) -> None:
    def is_whole() -> bool:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return bool(found) and set(found[0].isrs) == {1, 2} and found[0].leader == 1

    wait_until(is_whole, f"both replicas of {topic} in sync", timeout_s=60)


def received(consumer: Consumer, server: KafkaServer) -> int:
    """How many bytes its broker has sent; -1: there is no connection."""
    assert consumer._lifecycle.engine is not None
    cluster = consumer._lifecycle.engine.cluster
    connection = cluster.connected(Address("127.0.0.1", server.port), FETCHING)
    return -1 if connection is None else connection.received_bytes


@asynccontextmanager
async def reading(leader: KafkaServer, topic: str, rack: str | None) -> AsyncIterator[Consumer]:
    consumer = Consumer(
        bootstrap_servers=leader.bootstrap, auto_offset_reset="earliest", client_rack=rack
    )
    consumer.assign([TopicPartition(topic, 0)])
    async with consumer:
        yield consumer


async def test_a_follower_in_the_rack_is_read_from_as_long_as_it_is_there(
    cluster: list[KafkaServer], admin: AdminClient, topic: str
) -> None:
    leader, follower = cluster
    topics = Topics(leader.bootstrap)
    async with reading(leader, topic, "b") as consumer:
        topics.fill(topic, RECORDS)
        assert len(await read(consumer, COUNT)) == COUNT
        assert received(consumer, follower) > COUNT * SIZE
        assert received(consumer, leader) < COUNT * SIZE // 10

        follower.kill()
        before = received(consumer, leader)
        topics.fill(topic, RECORDS)
        records = await read(consumer, COUNT)
        assert [record.offset for record in records] == list(range(COUNT, 2 * COUNT))
        assert received(consumer, leader) > before + COUNT * SIZE

        await asyncio.to_thread(follower.start)
        await asyncio.to_thread(wait_for_isr, admin, topic)
        await asyncio.sleep(LEADER_ALONE_MS / 1000)
        before = max(0, received(consumer, follower))
        async with asyncio.timeout(60):
            count = 2 * COUNT
            while max(0, received(consumer, follower)) < before + COUNT * SIZE:
                topics.fill(topic, RECORDS)
                count += COUNT
                assert (await read(consumer, COUNT))[-1].offset == count - 1
    topics.delete_all()


async def test_without_a_rack_of_its_own_it_is_the_leader_that_is_read_from(
    cluster: list[KafkaServer], topic: str
) -> None:
    leader, follower = cluster
    topics = Topics(leader.bootstrap)
    for rack in (None, "a", "c"):
        async with reading(leader, topic, rack) as consumer:
            topics.fill(topic, RECORDS)
            await read(consumer, COUNT)
            assert received(consumer, leader) > COUNT * SIZE
            assert received(consumer, follower) <= COUNT * SIZE // 10
    topics.delete_all()

"""Clients see the same internal topics as on Kafka."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer

from kohort.broker.topics.names import CONSUMER_OFFSETS, REBALANCE_HISTORY, TRANSACTION_STATE
from kohort.cli import main
from kohort.protocol.messages.describe_topic_partitions import TopicRequest
from kohort.testing import Kafka
from tests.support import messages as m
from tests.support.clients.confluent_client import QUIET
from tests.support.network.wire import RawClient


@pytest.fixture
def client(kafka: Kafka) -> Iterator[RawClient]:
    with RawClient(kafka.port) as client:
        yield client


def listed(client: RawClient) -> dict[str, bool]:
    """Return the names of all topics, and whether they are internal, by every request that lists
    topics.
    """
    metadata = client.call(m.MetadataRequest(topics=None), 12, m.MetadataResponse)
    found = {topic.name or "": topic.is_internal for topic in metadata.topics}
    described = client.call(
        m.DescribeTopicPartitionsRequest(topics=[]), 0, m.DescribeTopicPartitionsResponse
    )
    assert {topic.name: topic.is_internal for topic in described.topics} == found
    configs = client.call(
        m.ListConfigResourcesRequest(resource_types=[2]), 1, m.ListConfigResourcesResponse
    )
    assert {one.resource_name for one in configs.config_resources} == set(found)
    elected = client.call(
        m.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1_000),
        2,
        m.ElectLeadersResponse,
    )
    assert {one.topic for one in elected.replica_election_results} == set(found)
    return found


def find(client: RawClient, key_type: int) -> int:
    request = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["one", "two"])
    answer = client.call(request, 6, m.FindCoordinatorResponse)
    return max(one.error_code for one in answer.coordinators)


@pytest.mark.parametrize(
    ("key_type", "created"), [(0, [CONSUMER_OFFSETS]), (1, [TRANSACTION_STATE]), (2, [])]
)
def test_finding_a_coordinator_creates_its_topic(
    client: RawClient, key_type: int, created: list[str]
) -> None:
    assert listed(client) == {}
    for _ in range(2):
        assert bool(find(client, key_type)) is not bool(created)
        assert listed(client) == dict.fromkeys(created, True)


def test_the_first_commit_may_be_for_the_offsets_topic_itself(client: RawClient) -> None:
    assert find(client, 0) == 0
    partition = m.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    topic = m.OffsetCommitRequestTopic(name=CONSUMER_OFFSETS, partitions=[partition])
    request = m.OffsetCommitRequest(group_id="one", member_id="", topics=[topic])
    answer = client.call(request, 9, m.OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == 0


async def rebalanced(kafka: Kafka, group: str) -> None:
    """A member has joined the group, and has left."""
    consumer = AIOKafkaConsumer("t", group_id=group, bootstrap_servers=kafka.bootstrap_servers)
    async with consumer:
        await kafka.group(group).wait_async(state="Stable", members=1)


async def test_the_rebalance_history_is_described_only_if_it_is_named(
    kafka: Kafka, client: RawClient
) -> None:
    kafka.create_topic("t", partitions=1)
    await rebalanced(kafka, "billing")
    await kafka.records_async(REBALANCE_HISTORY, count=1)
    by_name = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=REBALANCE_HISTORY)])
    (topic,) = client.call(by_name, 12, m.MetadataResponse).topics
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 1)
    assert listed(client) == {CONSUMER_OFFSETS: True, "t": False}
    answer = client.call(
        m.DescribeTopicPartitionsRequest(topics=[TopicRequest(name=REBALANCE_HISTORY)]),
        0,
        m.DescribeTopicPartitionsResponse,
    )
    assert [(one.error_code, one.is_internal) for one in answer.topics] == [(0, True)]


async def test_librdkafka_reads_the_history_by_name_and_lists_the_other_topics(
    kafka: Kafka,
) -> None:
    kafka.create_topic("t", partitions=1)
    await rebalanced(kafka, "billing")

    def read() -> set[str]:
        settings = {**QUIET, "bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader"}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([REBALANCE_HISTORY])
            groups = set[str]()
            while len(groups) < 2:
                # A response with all topics lacks the one that is read.
                assert set(consumer.list_topics(timeout=30).topics) == {"t", CONSUMER_OFFSETS}
                message = consumer.poll(0.1)
                if message is not None and not message.error():
                    groups.add(json.loads(message.value() or b"")["group"])
            return groups
        finally:
            consumer.close()

    assert await asyncio.to_thread(read) == {"billing", "reader"}


async def test_the_command_lists_internal_topics_and_the_history(
    kafka: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka.create_topic("t", partitions=1)
    await rebalanced(kafka, "billing")
    await kafka.records_async(REBALANCE_HISTORY, count=1)
    shown = {}
    for option in ([], ["--internal"]):
        command = ["topics", "list", "--bootstrap-server", kafka.bootstrap_servers, *option]
        assert await asyncio.to_thread(main, command) == 0
        lines = capsys.readouterr().out.splitlines()[1:]
        shown[len(option)] = [line.split()[0] for line in lines]
    assert shown == {0: ["t"], 1: [CONSUMER_OFFSETS, REBALANCE_HISTORY, "t"]}

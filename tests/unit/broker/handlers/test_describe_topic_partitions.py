"""DescribeTopicPartitions pages through topics as a running Kafka 4.4.0 does."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kohort.broker.topics.manager import TopicManager
from kohort.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.support.brokers.running_topics import ask, running_topics

Page = tuple[list[tuple[str, list[int]]], tuple[str, int] | None]


@pytest.fixture
async def topics(tmp_path: Path) -> AsyncIterator[TopicManager]:
    async with running_topics(tmp_path) as topics:
        for name, count in (("a", 3), ("b", 2), ("c", 2)):
            await topics.changes.create_topic(name, partition_count=count)
        yield topics


def request(
    *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
    )


async def page(
    topics: TopicManager, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Page:
    response = await ask(topics, request(*names, limit=limit, cursor=cursor))
    found = [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in response.topics
    ]
    after = response.next_cursor
    return found, (after.topic_name, after.partition_index) if after else None


async def test_the_brokers_own_limit_applies_as_well(tmp_path: Path) -> None:
    async with running_topics(tmp_path, "max.request.partition.size.limit=2") as topics:
        await topics.changes.create_topic("a", partition_count=3)
        assert await page(topics, "a") == ([("a", [0, 1])], ("a", 2))

"""DescribeTopicPartitions pages through topics as a running Kafka 4.4.0 does."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.support.brokers.running_topics import ask, running_topics

ALL = ("c", "a", "b")
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


async def test_a_topic_is_described_with_its_partitions(topics: TopicManager) -> None:
    response = await ask(topics, request("b"))
    (topic,) = response.topics
    known = topics.get("b")
    assert known is not None
    assert (topic.error_code, topic.topic_id, topic.is_internal) == (0, known.topic_id, False)
    assert topic.topic_authorized_operations == 3576
    partition = topic.partitions[1]
    assert (partition.leader_id, partition.leader_epoch) == (1, 0)
    assert partition.replica_nodes == partition.isr_nodes == [1]
    assert partition.eligible_leader_replicas == partition.last_known_elr == []
    assert partition.offline_replicas == []


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, ([("a", [0])], ("a", 1))),
        (2, ([("a", [0, 1])], ("a", 2))),
        (3, ([("a", [0, 1, 2])], ("b", 0))),
        (4, ([("a", [0, 1, 2]), ("b", [0])], ("b", 1))),
        (5, ([("a", [0, 1, 2]), ("b", [0, 1])], ("c", 0))),
        (7, ([("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0, 1])], None)),
        (0, ([("a", [0])], ("a", 1))),
        (-1, ([("a", [0])], ("a", 1))),
    ],
)
async def test_a_page_ends_at_the_limit_and_says_where_the_next_begins(
    topics: TopicManager, limit: int, expected: Page
) -> None:
    assert await page(topics, *ALL, limit=limit) == expected
    assert await page(topics, limit=limit) == expected


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        (("a", 1), ([("a", [1, 2]), ("b", [0])], ("b", 1))),
        (("b", 0), ([("b", [0, 1]), ("c", [0])], ("c", 1))),
        (("a", 7), ([("a", []), ("b", [0, 1]), ("c", [0])], ("c", 1))),
    ],
)
async def test_a_cursor_continues_where_the_last_page_ended(
    topics: TopicManager, cursor: tuple[str, int], expected: Page
) -> None:
    assert await page(topics, *ALL, limit=3, cursor=cursor) == expected


async def test_the_cursor_of_a_topic_that_is_gone_continues_behind_it(topics: TopicManager) -> None:
    assert await page(topics, limit=3, cursor=("aa", 5)) == ([("b", [0, 1]), ("c", [0])], ("c", 1))


async def test_pages_put_together_are_everything(topics: TopicManager) -> None:
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        found, cursor = await page(topics, limit=2, cursor=cursor)
        seen += [(name, index) for name, indexes in found for index in indexes]
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0), ("c", 1)]


async def test_the_brokers_own_limit_applies_as_well(tmp_path: Path) -> None:
    async with running_topics(tmp_path, "max.request.partition.size.limit=2") as topics:
        await topics.changes.create_topic("a", partition_count=3)
        assert await page(topics, "a") == ([("a", [0, 1])], ("a", 2))


async def test_a_cursor_that_cannot_be_refuses_the_request(topics: TopicManager) -> None:
    for cursor in (("a", -1), ("z", 0)):
        response = await ask(topics, request(*ALL, cursor=cursor))
        assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST] * 3


async def test_topics_that_are_not_there_take_no_room(topics: TopicManager) -> None:
    response = await ask(topics, request("none", "no way", "a", limit=1))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", ErrorCode.NONE)]
    response = await ask(topics, request("0", "no way", "a"))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("0", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", ErrorCode.NONE),
        ("no way", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


async def test_looking_at_an_internal_topic_makes_no_directories(topics: TopicManager) -> None:
    offsets = await topics.changes.create_topic(CONSUMER_OFFSETS, partition_count=50)
    found, _ = await page(topics, CONSUMER_OFFSETS)
    assert len(found[0][1]) == 50
    assert list(offsets.partitions.opened()) == []

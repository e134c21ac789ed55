"""DescribeLogDirs tells where partitions are and how large."""

from pathlib import Path

import pytest

from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import CONSUMER_OFFSETS
from tests.support import messages as m
from tests.support.brokers.running_topics import append, ask, running_topics


async def sizes(topics: TopicManager, *asked: tuple[str, list[int]]) -> dict[tuple[str, int], int]:
    request = m.DescribeLogDirsRequest(
        topics=[
            m.DescribableLogDirTopic(topic=name, partitions=partitions)
            for name, partitions in asked
        ]
    )
    (result,) = (await ask(topics, request)).results
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
async def test_everything_is_described_in_every_version(tmp_path: Path, version: int) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=2)
        append(topic.partitions[1])
        await topics.changes.create_topic(CONSUMER_OFFSETS, partition_count=50)
        response = await ask(topics, m.DescribeLogDirsRequest(topics=None), version)
        assert response.error_code == 0
        (result,) = response.results
        assert (result.error_code, result.log_dir) == (0, str(tmp_path))
        (described,) = result.topics
        size = topic.partitions[1].log.size_bytes
        assert size > 0
        assert [
            (one.partition_index, one.partition_size, one.offset_lag, one.is_future_key)
            for one in described.partitions
        ] == [(0, 0, 0, False), (1, size, 0, False)]
        if version >= 4:
            assert result.total_bytes >= result.usable_bytes > 0


async def test_only_what_exists_of_what_is_asked_for_is_described(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic("orders", partition_count=2)
        assert await sizes(topics, ("orders", [0, 7, -1]), ("none", [0])) == {("orders", 0): 0}
        assert await sizes(topics, ("orders", [0]), ("orders", [1, 0])) == {
            ("orders", 0): 0,
            ("orders", 1): 0,
        }
        assert await sizes(topics, ("orders", [])) == {}
        assert await sizes(topics) == {}

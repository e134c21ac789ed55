"""DescribeLogDirs tells where partitions are and how large."""

from pathlib import Path

import pytest

from kohort.broker.topics.names import CONSUMER_OFFSETS
from tests.support import messages as m
from tests.support.brokers.running_topics import append, ask, running_topics


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

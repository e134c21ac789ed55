"""DescribeCluster describes one broker."""

from pathlib import Path

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.describe_cluster import DescribeClusterRequest
from tests.support.brokers.running_topics import ask, running_topics


@pytest.mark.parametrize("version", range(3))
async def test_the_broker_is_described_in_every_version(tmp_path: Path, version: int) -> None:
    async with running_topics(tmp_path, "broker.rack=shelf") as topics:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await ask(topics, request, version)
        assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
        assert (response.cluster_id, response.controller_id) == (topics.cluster_id, 1)
        (broker,) = response.brokers
        assert (broker.broker_id, broker.host, broker.port, broker.rack) == (
            1,
            "broker.example",
            9092,
            "shelf",
        )
        assert not broker.is_fenced
        assert response.cluster_authorized_operations == 8096
        request.include_cluster_authorized_operations = False
        response = await ask(topics, request, version)
        assert response.cluster_authorized_operations == -(2**31)

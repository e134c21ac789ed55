"""Requests whose handlers look into files first, or create something, are answered later."""

from pathlib import Path

import pytest

from kohort.client.core.partitions import TopicPartition
from kohort.client.fetch.offset_lookup import list_offsets
from kohort.client.net.address import Address
from kohort.client.net.cluster import Cluster, ClusterConfig
from kohort.client.net.config import ConnectionConfig
from tests.support.brokers.broker_thread import BrokerThread

LATEST_RECORD = -3


@pytest.mark.parametrize("spec", [500, LATEST_RECORD])
async def test_a_new_topic_has_no_record_that_late(tmp_path: Path, spec: int) -> None:
    one = TopicPartition("t", 0)
    with BrokerThread(tmp_path) as broker:
        address = Address("127.0.0.1", broker.port)
        cluster = Cluster(ClusterConfig([address], ConnectionConfig(), creates_topics=True))
        await cluster.refresh({"t"})
        assert await list_offsets(cluster, {one: spec}, timeout_ms=60_000) == {one: None}
        await cluster.close()

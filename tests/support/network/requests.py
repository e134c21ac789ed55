"""Requests that several suites send as they are."""

from collections.abc import Mapping
from typing import Final

from kohort.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support import messages as m
from tests.support.network.wire import RawClient

NO_CONFIGS: Final[Mapping[str, str]] = {}


def creation(
    *names: str, partitions: int = 1, configs: Mapping[str, str] = NO_CONFIGS
) -> m.CreateTopicsRequest:
    """A CreateTopics of topics of that many partitions each."""
    topics = [
        m.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[m.CreatableTopicConfig(name=key, value=configs[key]) for key in configs],
        )
        for name in names
    ]
    return m.CreateTopicsRequest(topics=topics, timeout_ms=60_000)


def create_topics(
    client: RawClient, *names: str, partitions: int = 1, configs: Mapping[str, str] = NO_CONFIGS
) -> list[bytes]:
    """Create topics; return their ids."""
    request = creation(*names, partitions=partitions, configs=configs)
    created = client.call(request, 7, m.CreateTopicsResponse).topics
    assert not any(result.error_code for result in created), created
    return [result.topic_id for result in created]


def produce_request(
    topic: str, *batches: bytes, partition: int = 0, acks: int = -1
) -> m.ProduceRequest:
    """A Produce of these batches to one partition, which is named once for each."""
    data = [m.PartitionProduceData(index=partition, records=batch) for batch in batches]
    return m.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=60_000,
        topic_data=[m.TopicProduceData(name=topic, partition_data=data)],
    )


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 20,
    is_committed: bool = False,
) -> FetchRequest:
    """A Fetch of one partition without a session. The answer waits for any byte, and at most
    `max_wait_ms`; it has up to `max_bytes`, but at least one batch. With `is_committed` the
    isolation level is read_committed.
    """
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=int(is_committed),
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )

"""Metadata answers as a Kafka of one broker, in every version."""

import errno
from pathlib import Path

from kohort.broker.storage.metadata.store import TopicRecord
from kohort.protocol.errors import ErrorCode
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support import messages as m
from tests.support.brokers.running_topics import ask, running_topics
from tests.support.records.storage_tools import memory_store


def asking(*names: str | None, create: bool = False, **more: bool) -> m.MetadataRequest:
    topics = [m.MetadataRequestTopic(name=name) for name in names]
    return m.MetadataRequest(topics=topics, allow_auto_topic_creation=create, **more)


def found(response: m.MetadataResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


async def test_a_broker_that_creates_no_topics_creates_none(tmp_path: Path) -> None:
    async with running_topics(tmp_path, "auto.create.topics.enable=false") as topics:
        response = await ask(topics, asking("orders", create=True))
        assert found(response) == [("orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        assert topics.all() == []


async def test_a_partition_that_is_offline_has_no_leader() -> None:
    files, store = SimulatedFileSystem(), memory_store()
    store.create_topics(
        [TopicRecord(topic_id=b"i" * 16, name="t", partition_count=2, created_ms=0)]
    )
    files.fail("create", suffix="t-1/00000000000000000000.log", number=errno.EIO, times=9)
    async with running_topics(Path("/data"), files=files, store=store) as topics:
        topic = topics.get("t")
        assert topic is not None
        assert [partition.failure is None for partition in topic.partitions] == [True, False]
        good, bad = (await ask(topics, asking("t"))).topics[0].partitions
        assert (good.error_code, good.leader_id, good.offline_replicas) == (0, 1, [])
        assert (bad.error_code, bad.leader_id, bad.offline_replicas) == (
            ErrorCode.LEADER_NOT_AVAILABLE,
            -1,
            [1],
        )

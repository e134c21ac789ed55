"""Metadata answers as a Kafka of one broker, in every version."""

import errno
from pathlib import Path

from kohort.broker.storage.metadata.store import TopicRecord
from kohort.broker.topics.names import CLUSTER_METADATA, CONSUMER_OFFSETS
from kohort.protocol.errors import ErrorCode
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support import messages as m
from tests.support.brokers.running_topics import ask, running_topics
from tests.support.records.storage_tools import memory_store


def asking(*names: str | None, create: bool = False, **more: bool) -> m.MetadataRequest:
    topics = [m.MetadataRequestTopic(name=name) for name in names]
    return m.MetadataRequest(topics=topics, allow_auto_topic_creation=create, **more)


def by_id(topic_id: bytes, name: str | None = None) -> m.MetadataRequest:
    topics = [m.MetadataRequestTopic(name=name, topic_id=topic_id)]
    return m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def found(response: m.MetadataResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


async def test_all_topics_are_a_null_list_or_in_v0_an_empty_one(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic("orders", partition_count=1)
        await topics.changes.create_topic(CONSUMER_OFFSETS, partition_count=50)
        everything = await ask(topics, m.MetadataRequest(topics=None))
        assert {topic.name: topic.is_internal for topic in everything.topics} == {
            "orders": False,
            CONSUMER_OFFSETS: True,
        }
        assert [len(topic.partitions) for topic in everything.topics] == [1, 50]
        assert len((await ask(topics, asking(), 0)).topics) == 2
        assert (await ask(topics, asking(), 1)).topics == []
        offsets = topics.get(CONSUMER_OFFSETS)
        assert offsets is not None
        assert list(offsets.partitions.opened()) == []


async def test_a_missing_topic_is_created_where_client_and_broker_allow_it(tmp_path: Path) -> None:
    async with running_topics(tmp_path, "num.partitions=3") as topics:
        assert found(await ask(topics, asking("orders"))) == [
            ("orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        ]
        response = await ask(topics, asking("orders", create=True))
        assert found(response) == [("orders", ErrorCode.NONE)]
        assert len(response.topics[0].partitions) == 3
        # Before v4 there is nothing to say about it, and the answer is yes.
        assert found(
            await ask(topics, m.MetadataRequest(topics=[m.MetadataRequestTopic(name="b")]), 1)
        )
        assert topics.get("b") is not None


async def test_a_broker_that_creates_no_topics_creates_none(tmp_path: Path) -> None:
    async with running_topics(tmp_path, "auto.create.topics.enable=false") as topics:
        response = await ask(topics, asking("orders", create=True))
        assert found(response) == [("orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        assert topics.all() == []


async def test_what_cannot_be_created_is_answered_like_what_is_not_there(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic("a.b", partition_count=1)
        names = ("a_b", "no way", "", "x" * 250, CONSUMER_OFFSETS, CLUSTER_METADATA)
        response = await ask(topics, asking(*names, create=True))
        assert [code for _, code in found(response)] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert response.topics[4].is_internal
        assert len(topics.all()) == 1


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

"""DeleteRecords moves the start of partitions as Kafka does."""

import errno
from pathlib import Path

import pytest

from kohort.broker.storage.errors import StorageError
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.protocol.errors import ErrorCode
from kohort.testing.lasting_metadata import LastingMetadata
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support import messages as m
from tests.support.brokers.running_topics import append, ask, running_topics


async def answer(
    topics: TopicManager, name: str, index: int, offset: int, version: int | None = None
) -> tuple[int, int]:
    partition = m.DeleteRecordsPartition(partition_index=index, offset=offset)
    request = m.DeleteRecordsRequest(
        topics=[m.DeleteRecordsTopic(name=name, partitions=[partition])], timeout_ms=1000
    )
    (result,) = (await ask(topics, request, version)).topics[0].partitions
    assert result.partition_index == index
    return result.low_watermark, result.error_code


@pytest.mark.parametrize("version", range(3))
async def test_the_start_moves_forward_and_never_back(tmp_path: Path, version: int) -> None:
    async with running_topics(tmp_path, stop_cleanly=False) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=2)
        for _ in range(10):
            append(topic.partitions[0])
        assert await answer(topics, "orders", 0, 5, version) == (5, ErrorCode.NONE)
        assert await answer(topics, "orders", 0, 3, version) == (5, ErrorCode.NONE)
        assert await answer(topics, "orders", 0, -1, version) == (10, ErrorCode.NONE)
        assert await answer(topics, "orders", 1, -1, version) == (0, ErrorCode.NONE)
    async with running_topics(tmp_path) as topics:
        partition = topics.partition("orders", 0)
        assert partition is not None
        assert partition.log.log_start_offset == 10


async def test_records_are_not_deleted_if_the_new_start_cannot_be_stored() -> None:
    """A successful response promises that the records do not come back."""
    files = SimulatedFileSystem()
    files.make_directory("/data")
    async with running_topics(
        Path("/data"), files=files, store=LastingMetadata(), stop_cleanly=False
    ) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=1)
        append(topic.partitions[0])
        files.fail("rename", suffix="log-start-offset-checkpoint.tmp", number=errno.EIO)
        with pytest.raises(StorageError):
            await answer(topics, "orders", 0, 1)


async def test_what_cannot_be_deleted_is_refused(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=1)
        append(topic.partitions[0])
        for name, policy in (("compacted", "compact"), ("both", "compact,delete")):
            other = await topics.changes.create_topic(
                name, partition_count=1, configs={"cleanup.policy": policy}
            )
            append(other.partitions[0], key=b"k")
        await topics.changes.create_topic(CONSUMER_OFFSETS, partition_count=1)
        for name, index, offset, code in [
            ("orders", 0, 2, ErrorCode.OFFSET_OUT_OF_RANGE),
            ("orders", 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
            ("orders", 9, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("orders", -1, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("none", 0, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("compacted", 0, 1, ErrorCode.POLICY_VIOLATION),
            (CONSUMER_OFFSETS, 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]:
            assert await answer(topics, name, index, offset) == (-1, code)
        assert await answer(topics, "both", 0, 1) == (1, ErrorCode.NONE)

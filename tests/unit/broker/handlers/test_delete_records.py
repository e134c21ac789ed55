"""DeleteRecords moves the start of partitions as Kafka does."""

import errno
from pathlib import Path

import pytest

from kohort.broker.storage.errors import StorageError
from kohort.broker.topics.manager import TopicManager
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

"""Both metadata databases are lost: a broker starts with what its partition directories prove."""

from pathlib import Path

import pytest

from kohort.broker.config import ConfigError
from kohort.broker.storage.checkpoints.partition_metadata import FILE_NAME as ID_FILE_NAME
from kohort.broker.storage.metadata.store import FILE_NAME, MIRROR_FILE_NAME
from kohort.broker.topics.creation import NewTopic
from kohort.testing.virtual_clock import VirtualClock
from tests.support.brokers.running_topics import append, running_topics


async def leave_topics(directory: Path, *values: bytes) -> bytes:
    """A data directory with records in the last partition of "orders", and that topic's id."""
    async with running_topics(directory) as topics:
        await topics.changes.create_topics(
            [
                NewTopic(name="orders", partition_count=3, configs={"retention.ms": "1000"}),
                NewTopic(name="sales", partition_count=1),
                NewTopic(
                    name="__consumer_offsets",
                    partition_count=50,
                    configs={"segment.bytes": "99999999"},
                ),
            ]
        )
        topic, offsets = topics.get("orders"), topics.get("__consumer_offsets")
        assert topic is not None
        assert offsets is not None
        assert offsets.partitions[7].failure is None
        for value in values:
            append(topic.partitions[2], value)
        return topic.topic_id


def ruin(directory: Path) -> None:
    for name in (FILE_NAME, MIRROR_FILE_NAME):
        (directory / name).write_bytes(b"not a database" * 1000)


async def test_topics_come_back_with_their_ids_partitions_and_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = await leave_topics(tmp_path, b"one", b"two")
    ruin(tmp_path)
    async with running_topics(tmp_path) as topics:
        topic = topics.get("orders")
        assert topic is not None
        assert topic.topic_id == topic_id
        assert len(topic.partitions) == 3
        assert topic.partitions[2].log.log_end_offset == 2
        offsets = topics.get("__consumer_offsets")
        assert offsets is not None
        # As many as it would be made with: a group's place follows from the number.
        assert len(offsets.partitions) == 50
        assert offsets.config.cleanup_policy == ("compact",)
    assert "lost: the configs of topic orders" in caplog.text
    assert "lost: the id of the cluster" in caplog.text
    assert "set aside" not in caplog.text


async def test_nothing_of_a_topic_is_deleted_whose_configs_are_lost(tmp_path: Path) -> None:
    await leave_topics(tmp_path, b"one")
    ruin(tmp_path)
    async with running_topics(
        tmp_path, "log.retention.ms=1", "log.cleanup.policy=compact"
    ) as topics:
        topic = topics.get("orders")
        assert topic is not None
        assert (topic.config.retention_ms, topic.config.retention_bytes) == (-1, -1)
        assert topic.config.cleanup_policy == ("delete",)


async def test_databases_that_are_gone_are_rebuilt_as_well(tmp_path: Path) -> None:
    topic_id = await leave_topics(tmp_path)
    for name in (FILE_NAME, MIRROR_FILE_NAME):
        (tmp_path / name).unlink()
    async with running_topics(tmp_path) as topics:
        assert topics.get_by_id(topic_id) is not None


async def test_a_directory_that_kafka_made_is_not_taken_over(tmp_path: Path) -> None:
    await leave_topics(tmp_path)
    for name in (FILE_NAME, MIRROR_FILE_NAME):
        (tmp_path / name).unlink()
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(ConfigError, match="kohort import-kafka"):
        async with running_topics(tmp_path):
            pass
    assert not (tmp_path / FILE_NAME).exists()


async def test_one_partition_tells_the_id_for_those_that_cannot(tmp_path: Path) -> None:
    topic_id = await leave_topics(tmp_path, b"one")
    ruin(tmp_path)
    (tmp_path / "orders-2" / ID_FILE_NAME).write_bytes(b"")
    (tmp_path / "orders-0" / ID_FILE_NAME).unlink()
    async with running_topics(tmp_path) as topics:
        topic = topics.get("orders")
        assert topic is not None
        assert topic.topic_id == topic_id
        assert topic.partitions[2].log.log_end_offset == 1


async def test_other_directories_are_no_topics(tmp_path: Path) -> None:
    await leave_topics(tmp_path)
    ruin(tmp_path)
    (tmp_path / "backup-20260101").mkdir()
    (tmp_path / "orders-3.0123-delete").mkdir()
    async with running_topics(tmp_path) as topics:
        assert {topic.name for topic in topics.all()} == {"orders", "sales", "__consumer_offsets"}


async def test_producer_ids_are_not_given_again(tmp_path: Path) -> None:
    await leave_topics(tmp_path)
    given = set()
    for second in range(3):
        clock = VirtualClock(wall_ms=1_700_000_000_000 + 1000 * second)
        async with running_topics(tmp_path, clock=clock) as topics:
            given.add(topics.next_producer_id())
        ruin(tmp_path)
    assert len(given) == 3

"""The topics start from whatever the last run left, and stop so that the next start is quick."""

import asyncio
import errno
from pathlib import Path

import pytest

from kohort.broker.config import ConfigError
from kohort.broker.storage.checkpoints.clean_shutdown import FILE_NAME as CLEAN_MARK
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.metadata.store import TopicRecord
from kohort.broker.topics.directories import PartitionDirectories
from kohort.broker.topics.manager import BLOCK_SIZE, ProducerIds
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.inline_executor import InlineExecutor
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from kohort.testing.virtual_clock import VirtualClock
from tests.support.brokers.running_topics import append, directories, running_topics
from tests.support.records.storage_tools import memory_store


def test_only_one_id_in_a_block_costs_a_write() -> None:
    blocks: list[int] = []

    def allocate(count: int) -> range:
        blocks.append(count)
        return range(count * (len(blocks) - 1), count * len(blocks))

    ids = ProducerIds(allocate)
    for _ in range(BLOCK_SIZE):
        ids.next()
    assert blocks == [BLOCK_SIZE]
    assert ids.next() == BLOCK_SIZE


async def test_a_clean_stop_leaves_its_mark_and_the_next_start_takes_it(tmp_path: Path) -> None:
    async with running_topics(tmp_path):
        assert not (tmp_path / CLEAN_MARK).exists()
    assert (tmp_path / CLEAN_MARK).exists()
    async with running_topics(tmp_path, stop_cleanly=False):
        pass
    assert not (tmp_path / CLEAN_MARK).exists()


async def test_partitions_of_internal_topics_get_a_directory_on_first_use(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic(CONSUMER_OFFSETS, partition_count=50)
        assert topic.is_internal
        assert directories(tmp_path) == []
        append(topic.partitions[7], key=b"k")
        assert directories(tmp_path) == ["__consumer_offsets-7"]


async def test_a_deletion_that_a_crash_cut_short_is_finished_at_the_next_start(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path, stop_cleanly=False) as topics:
        old = await topics.changes.create_topic("orders", partition_count=2)
        append(old.partitions[0])
        # As far as the crash let it come: marked, and nothing else.
        topics.disk.data.store.mark_topics_deleted([old.topic_id])
    (tmp_path / "sales-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    async with running_topics(tmp_path) as topics:
        assert topics.all() == []
        assert topics.disk.data.store.deleted_topics() == []
        new = await topics.changes.create_topic("orders", partition_count=1)
        assert new.partitions[0].log.log_end_offset == 0
    assert directories(tmp_path) == ["orders-0"]


async def test_notes_of_a_deleted_topic_do_not_reach_the_next_of_its_name(tmp_path: Path) -> None:
    async with running_topics(tmp_path, stop_cleanly=False) as topics:
        old = await topics.changes.create_topic("orders", partition_count=1)
        for _ in range(9):
            append(old.partitions[0])
        topics.changes.delete_records_before(old.partitions[0], 7)
        await topics.disk.write_checkpoints()
        assert await topics.changes.delete_topics([old]) == [None]
        new = await topics.changes.create_topic("orders", partition_count=1)
        append(new.partitions[0])
    async with running_topics(tmp_path) as topics:
        partition = topics.partition("orders", 0)
        assert partition is not None
        assert (partition.log.log_start_offset, partition.log.log_end_offset) == (0, 1)


async def test_a_directory_of_another_topic_is_set_aside_and_not_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_topics(tmp_path) as topics:
        old = await topics.changes.create_topic("orders", partition_count=1)
        append(old.partitions[0])
        # Metadata that was lost, as with a database restored from an old backup.
        topics.disk.data.store.mark_topics_deleted([old.topic_id])
        topics.disk.data.store.forget_topics([old.topic_id])
    async with running_topics(tmp_path) as topics:
        assert "belong" in caplog.text or "they belong to no topic" in caplog.text
        new = await topics.changes.create_topic("orders", partition_count=1)
        assert new.partitions[0].log.log_end_offset == 0
    assert len(directories(tmp_path, "orders-0.*-stray")) == 1


async def test_a_partition_that_cannot_be_opened_is_offline_and_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = SimulatedFileSystem()
    store = memory_store()
    for index, name in enumerate(("bad", "good")):
        store.create_topics(
            [TopicRecord(topic_id=bytes([index]) * 16, name=name, partition_count=1, created_ms=0)]
        )
    files.fail("create", suffix="bad-0/00000000000000000000.log", number=errno.EIO, times=9)
    async with running_topics(Path("/data"), files=files, store=store) as topics:
        good, bad = topics.partition("good", 0), topics.partition("bad", 0)
        assert good is not None
        assert bad is not None
        append(good)
        with pytest.raises(KafkaError) as answer:
            append(bad)
        assert answer.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert bad.log.size_bytes == 0
    assert not files.exists(f"/data/{CLEAN_MARK}")
    assert "bad-0" in caplog.text


async def test_a_partition_that_could_not_be_opened_is_tried_again_when_it_is_asked_for() -> None:
    """A process that had no descriptor left has some a second later."""
    files = SimulatedFileSystem()
    store = memory_store()
    store.create_topics(
        [TopicRecord(topic_id=b"t" * 16, name="t", partition_count=1, created_ms=0)]
    )
    clock = VirtualClock()
    files.fail("create", suffix=".log", number=errno.EMFILE, times=2)
    async with running_topics(
        Path("/data"), files=files, store=store, clock=clock, executor=InlineExecutor()
    ) as topics:

        async def is_online() -> bool:
            for _ in range(3):
                topics.partition("t", 0)
                await asyncio.sleep(0)
            partition = topics.partition("t", 0)
            assert partition is not None
            return partition.failure is None

        assert not await is_online(), "it failed once"
        clock.advance(999)
        assert not await is_online(), "it is not tried before its time"
        clock.advance(1)
        assert not await is_online(), "it failed twice"
        clock.advance(1_999)
        assert not await is_online(), "the pauses grow"
        clock.advance(1)
        assert await is_online()
        partition = topics.partition("t", 0)
        assert partition is not None
        assert append(partition).base_offset == 0


async def test_a_partition_that_failed_while_it_ran_stays_offline() -> None:
    """What its disk holds is unknown until a start has looked at it."""
    clock = VirtualClock()
    async with running_topics(
        Path("/data"), files=SimulatedFileSystem(), store=memory_store(),
        clock=clock, executor=InlineExecutor(),
    ) as topics:  # fmt: skip
        topic = await topics.changes.create_topic("t", partition_count=1)
        topic.partitions[0].take_offline("a failed fsync")
        clock.advance(3_600_000)
        for _ in range(3):
            assert not topic.partitions.is_online(0)
            await asyncio.sleep(0)


async def test_a_failed_fsync_at_the_stop_leaves_no_mark(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFileSystem()
    store = memory_store()
    async with running_topics(Path("/data"), files=files, store=store) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=1)
        append(topic.partitions[0])
        files.fail("sync", suffix=".log", number=errno.EIO)
    assert not files.exists(f"/data/{CLEAN_MARK}")


async def test_the_cluster_id_stays_and_another_is_refused(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        first = topics.cluster_id
        assert len(first) == 22
    async with running_topics(tmp_path) as topics:
        assert topics.cluster_id == first
    with pytest.raises(ConfigError, match=r"kohort\.cluster\.id is other"):
        async with running_topics(tmp_path, "kohort.cluster.id=other"):
            pass


async def test_a_data_directory_that_is_a_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(StorageError, match="data"):
        async with running_topics(tmp_path / "data"):
            pass


async def test_stored_configs_that_are_not_understood_do_not_stop_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = memory_store()
    configs = {"retention.ms": "5", "of.another.release": "1", "segment.bytes": "tiny"}
    store.create_topics(
        [
            TopicRecord(
                topic_id=b"i" * 16, name="t", partition_count=1, created_ms=0, configs=configs
            )
        ]
    )
    async with running_topics(Path("/data"), files=SimulatedFileSystem(), store=store) as topics:
        topic = topics.get("t")
        assert topic is not None
        assert topic.config.retention_ms == 5
        assert topic.overrides == {"retention.ms": "5"}
    assert "of.another.release" in caplog.text


async def test_a_fault_of_ours_in_one_partition_does_not_stop_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_topics(tmp_path, stop_cleanly=False) as topics:
        for name in ("bad", "good"):
            topic = await topics.changes.create_topic(name, partition_count=1)
            append(topic.partitions[0])
    path_of = PartitionDirectories.path

    def faulty(self: PartitionDirectories, name: str, index: int) -> Path:
        if name == "bad" and not raised:
            raised.append(name)
            raise IndexError("not foreseen")
        return path_of(self, name, index)

    raised: list[str] = []
    monkeypatch.setattr(PartitionDirectories, "path", faulty)
    async with running_topics(tmp_path) as topics:
        good, bad = topics.partition("good", 0), topics.partition("bad", 0)
        assert good is not None
        assert bad is not None
        assert good.high_watermark == 1
        with pytest.raises(KafkaError) as answer:
            append(bad)
        assert answer.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "not foreseen" in caplog.text

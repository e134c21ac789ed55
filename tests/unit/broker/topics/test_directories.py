"""What a power loss leaves of partition directories, and whose they are then."""

from pathlib import Path
from random import Random

import pytest

from kohort.broker.storage.checkpoints.partition_metadata import FILE_NAME, read_topic_id
from kohort.broker.storage.metadata.store import MetadataStore, TopicRecord
from kohort.broker.topics.directories import PartitionDirectories
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.brokers.running_topics import InlineExecutor, append, running_topics
from tests.support.records.storage_tools import WALL_MS, fill, memory_store, settings

ROOT = Path("/data")


class NotedDisk(SimulatedFileSystem):
    """Notes what is forced to it, and which directories are renamed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[str, str]] = []

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if source in {str(ROOT / "orders-0"), str(ROOT / "orders-1")}:
            self.done.append(("rename", source))

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.done.append(("sync", path))

    def sync_file(self, path: str) -> None:
        super().sync_file(path)
        self.done.append(("sync", path))


def new_store(*before: MetadataStore) -> MetadataStore:
    """A store in memory, with the topics that another one was closed with."""
    store = memory_store()
    store.create_topics([topic for one in before for topic in one.topics()])
    return store


async def test_a_new_topic_waits_for_no_disk_but_that_of_the_metadata() -> None:
    disk = NotedDisk()
    async with running_topics(ROOT, files=disk, store=new_store()) as topics:
        disk.done.clear()
        topic = await topics.changes.create_topic("orders", partition_count=300)
        assert len(list(topic.partitions.opened())) == 300
        assert disk.done == []


@pytest.mark.parametrize("seed", range(20))
async def test_whose_records_were_flushed_is_known_after_a_power_loss(seed: int) -> None:
    disk, store = SimulatedFileSystem(), new_store()
    async with running_topics(
        ROOT, files=disk, store=store, executor=InlineExecutor(), stop_cleanly=False
    ) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=2)
        append(topic.partitions[0])
        await topic.partitions[0].force()
        append(topic.partitions[1])
    disk.lose_power(Random(seed).randrange)
    assert read_topic_id(disk, str(ROOT / "orders-0")) == topic.topic_id
    # For a topic that the metadata does not know it is another's.
    async with running_topics(ROOT, files=disk, store=new_store()) as topics:
        again = await topics.changes.create_topic("orders", partition_count=1)
        assert again.partitions[0].log.log_end_offset == 0


@pytest.mark.parametrize("seed", range(20))
async def test_a_partition_whose_id_did_not_reach_the_disk_is_the_topics_all_the_same(
    seed: int,
) -> None:
    disk, store = SimulatedFileSystem(), new_store()
    async with running_topics(
        ROOT, files=disk, store=store, executor=InlineExecutor(), stop_cleanly=False
    ) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=1)
        append(topic.partitions[0])
    disk.lose_power(Random(seed).randrange)
    async with running_topics(ROOT, files=disk, store=new_store(store)) as topics:
        partition = topics.partition("orders", 0)
        assert partition is not None
        assert partition.failure is None
        append(partition, b"new")
        assert partition.high_watermark == partition.log.log_end_offset
    assert read_topic_id(disk, str(ROOT / "orders-0")) == topic.topic_id


@pytest.mark.parametrize("is_name_free", [True, False])
async def test_a_directory_without_an_id_goes_with_a_deleted_topic_unless_another_has_its_name(
    *, is_name_free: bool
) -> None:
    disk, store = SimulatedFileSystem(), new_store()
    async with running_topics(ROOT, files=disk, store=store) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=1)
        append(topic.partitions[0])
    disk.remove(str(ROOT / "orders-0" / FILE_NAME))
    store = new_store(store)
    store.mark_topic_deleted(topic.topic_id)
    if not is_name_free:
        record = TopicRecord(topic_id=bytes(16), name="orders", partition_count=1, created_ms=0)
        store.create_topics([record])
    async with running_topics(ROOT, files=disk, store=store) as topics:
        assert store.deleted_topics() == []
        if is_name_free:
            await topics.changes.create_topic("orders", partition_count=1)
        partition = topics.partition("orders", 0)
        assert partition is not None
        assert partition.log.log_end_offset == (0 if is_name_free else 1)


async def test_a_deleted_topics_directories_cannot_come_back_under_their_names() -> None:
    disk, store = NotedDisk(), new_store()
    async with running_topics(ROOT, files=disk, store=store) as topics:
        await topics.changes.create_topic("orders", partition_count=2)
    async with running_topics(ROOT, files=disk, store=new_store(store)) as topics:
        topic = topics.get("orders")
        assert topic is not None
        append(topic.partitions[0])  # The other one is not open.
        await topics.changes.delete_topic(topic)
        renames = [number for number, done in enumerate(disk.done) if done[0] == "rename"]
        assert len(renames) == 2
        # Once for all of them, and before the name is free.
        assert disk.done[renames[-1] + 1 :] == [("sync", str(ROOT))]


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_log_that_was_never_opened_here_may_have_the_gaps_that_kafka_leaves(
    *, is_noted: bool
) -> None:
    disk = SimulatedFileSystem()
    disk.make_directory(str(ROOT))
    directories = PartitionDirectories(disk, ROOT, clean_shutdown=True)
    log = directories.open_log("orders", 0, bytes(16), settings(), wall_ms=WALL_MS)
    if is_noted:
        directories.note(log, "orders", 0)
        directories.write_checkpoints(*directories.notes())
    fill(log, 120)
    log.close()
    first, gone, *others = log.segments
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        disk.remove(gone.path(suffix))
    directories = PartitionDirectories(disk, ROOT, clean_shutdown=False)
    log = directories.open_log("orders", 0, bytes(16), settings(), wall_ms=WALL_MS)
    kept = [first] if is_noted else [first, *others]
    assert [one.base_offset for one in log.segments] == [one.base_offset for one in kept]
    assert log.lost_offsets == 0

"""What a power loss leaves of partition directories, and whose they are then."""

from pathlib import Path
from random import Random

import pytest

from kohort.broker.storage.checkpoints.offset_checkpoint import RECOVERY_POINT_FILE, read_offsets
from kohort.broker.storage.checkpoints.partition_metadata import FILE_NAME, read_topic_id
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.metadata.store import MetadataStore, TopicRecord
from kohort.broker.storage.segment.segment import LogSegment
from kohort.broker.topics.directories import PartitionDirectories
from kohort.protocol.records.batch import read_header
from kohort.testing.inline_executor import InlineExecutor
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.brokers.running_topics import append, running_topics
from tests.support.records.storage_tools import WALL_MS, fill, memory_store, read_all, settings

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
        topic = await topics.changes.create_topic("orders", partition_count=30)
        assert len(list(topic.partitions.opened())) == 30
        assert disk.done == []


@pytest.mark.parametrize("seed", range(8))
async def test_whose_records_were_flushed_is_known_after_a_power_loss(seed: int) -> None:
    disk, store = SimulatedFileSystem(), new_store()
    async with running_topics(
        ROOT, files=disk, store=store, executor=InlineExecutor(), stop_cleanly=False
    ) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=2)
        append(topic.partitions[0])
        topic.partitions[0].start_flush()
        await topic.partitions[0].wait_flushed()
        append(topic.partitions[1])
    disk.lose_power(Random(seed).randrange)
    assert read_topic_id(disk, str(ROOT / "orders-0")) == topic.topic_id
    # For a topic that the metadata does not know it is another's.
    async with running_topics(ROOT, files=disk, store=new_store()) as topics:
        again = await topics.changes.create_topic("orders", partition_count=1)
        assert again.partitions[0].log.log_end_offset == 0


@pytest.mark.parametrize("seed", range(8))
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
    store.mark_topics_deleted([topic.topic_id])
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
        assert await topics.changes.delete_topics([topic]) == [None]
        renames = [number for number, done in enumerate(disk.done) if done[0] == "rename"]
        assert len(renames) == 2
        # Once for all of them, and before the name is free.
        assert disk.done[renames[-1] + 1 :] == [("sync", str(ROOT))]


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_log_that_was_never_opened_here_may_have_the_gaps_that_kafka_leaves(
    *, is_noted: bool
) -> None:
    disk = new_disk()
    log = open_orders(disk, clean_shutdown=True)
    fill(log, 120)
    log.close()
    first, gone, *others = log.segments
    remove(disk, gone)
    if not is_noted:
        disk.remove(str(ROOT / RECOVERY_POINT_FILE))
    log = open_orders(disk, clean_shutdown=False)
    kept = [first] if is_noted else [first, *others]
    assert [one.base_offset for one in log.segments] == [one.base_offset for one in kept]
    assert log.lost_offsets == 0


@pytest.mark.parametrize("loss", ["sectors", "ends"])
@pytest.mark.parametrize("seed", range(8))
def test_a_power_loss_leaves_no_gap_in_a_log_that_has_just_been_made(loss: str, seed: int) -> None:
    disk, pick = new_disk(), Random(seed).randrange
    fill(open_orders(disk, clean_shutdown=True), 120)
    disk.lose_power(pick) if loss == "sectors" else disk.lose_ends(pick)
    log = open_orders(disk, clean_shutdown=False)
    headers = [read_header(batch) for batch in read_all(log)]
    assert [one.base_offset for one in headers] == [number * 2 for number in range(len(headers))]
    assert log.log_end_offset == len(headers) * 2


def test_logs_that_are_made_together_are_noted_by_the_first_that_rolls() -> None:
    disk = NotedDisk()
    disk.make_directory(str(ROOT))
    directories = PartitionDirectories(disk, ROOT, clean_shutdown=True)
    logs = [
        directories.open_log("orders", index, bytes(16), settings(), wall_ms=WALL_MS)
        for index in range(5)
    ]
    disk.done.clear()
    for log in logs:
        fill(log, 120)
        assert len(log.segments) > 2
    assert disk.done.count(("sync", str(ROOT))) == 1


def test_a_checkpoint_that_was_under_way_keeps_the_log_that_has_rolled_meanwhile() -> None:
    disk = new_disk()
    directories = PartitionDirectories(disk, ROOT, clean_shutdown=True)
    notes = directories.notes()
    log = directories.open_log("orders", 0, bytes(16), settings(), wall_ms=WALL_MS)
    fill(log, 120)
    directories.write_checkpoints(*notes)
    assert read_offsets(disk, str(ROOT), RECOVERY_POINT_FILE) == {("orders", 0): 0}


def new_disk() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    disk.make_directory(str(ROOT))
    return disk


def open_orders(disk: SimulatedFileSystem, *, clean_shutdown: bool) -> PartitionLog:
    """The log of a partition, opened by a broker that has just been started."""
    directories = PartitionDirectories(disk, ROOT, clean_shutdown=clean_shutdown)
    return directories.open_log("orders", 0, bytes(16), settings(), wall_ms=WALL_MS)


def remove(disk: SimulatedFileSystem, segment: LogSegment) -> None:
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        disk.remove(segment.path(suffix))

"""Logs are looked after: old segments go, flush.ms is kept, checkpoints are written."""

import asyncio
import errno
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from kohort.broker.runtime.slices import SLICE_MS
from kohort.broker.storage.checkpoints.offset_checkpoint import RECOVERY_POINT_FILE, read_offsets
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.topics.compaction import Compactor
from kohort.broker.topics.data_directory_shell import DataDirectoryShell
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.upkeep import Upkeep
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing.inline_executor import InlineExecutor
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from kohort.testing.virtual_clock import VirtualClock
from tests.support.brokers.running_topics import append, running_topics
from tests.support.records.storage_tools import memory_store
from tests.support.virtual_time import virtual


def kept_up(clock: VirtualClock, *overrides: str) -> AbstractAsyncContextManager[TopicManager]:
    return running_topics(
        Path("/data"),
        *overrides,
        clock=clock,
        files=SimulatedFileSystem(),
        store=memory_store(),
        executor=InlineExecutor(),
    )


@virtual
async def test_segments_beyond_retention_are_deleted_and_their_files_follow(
    clock: VirtualClock,
) -> None:
    async with kept_up(clock) as topics:
        topic = await topics.changes.create_topic(
            "orders",
            partition_count=1,
            configs={
                "internal.segment.bytes": "200",
                "retention.bytes": "500",
                "file.delete.delay.ms": "60000",
            },
        )
        partition = topic.partitions[0]
        for _ in range(20):
            append(partition, b"x" * 90)
        before = len(partition.log.segments)
        await asyncio.sleep(40)
        assert len(partition.log.segments) < before
        assert partition.log.log_start_offset > 0
        assert partition.log.size_bytes <= 700
        deleted = topics._files.entries("/data/orders-0")
        assert any(entry.name.endswith(".deleted") for entry in deleted)
        await asyncio.sleep(200)
        left = topics._files.entries("/data/orders-0")
        assert not any(entry.name.endswith(".deleted") for entry in left)


@virtual
async def test_a_record_is_on_the_disk_after_flush_ms(clock: VirtualClock) -> None:
    async with kept_up(clock) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=1)
        partition = topic.partitions[0]
        append(partition)
        await asyncio.sleep(10)
        assert partition.log.flushed_offset == 0
        await topics.changes.alter_topic(topic, lambda _: {"flush.ms": "1000"})
        await asyncio.sleep(0.5)
        assert partition.log.flushed_offset == 0
        await asyncio.sleep(1)
        await partition.wait_flushed()
        assert partition.log.flushed_offset == 1


@virtual
async def test_producers_are_forgotten_after_a_time_that_is_set_at_run_time(
    clock: VirtualClock,
) -> None:
    async with kept_up(clock) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=1)
        partition = topic.partitions[0]
        batch = encode_batch(
            [Record(b"x", timestamp=clock.wall_ms())],
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
        )
        partition.append(batch, read_header(batch), wall_ms=clock.wall_ms())
        await asyncio.sleep(700)
        assert len(partition.log.producers) == 1
        await topics.changes.alter_broker("1", lambda _: {"producer.id.expiration.ms": "60000"})
        await asyncio.sleep(600)
        assert len(partition.log.producers) == 0


@virtual
async def test_recovery_points_are_noted_from_time_to_time(clock: VirtualClock) -> None:
    async with kept_up(clock, "log.flush.offset.checkpoint.interval.ms=10000") as topics:
        topic = await topics.changes.create_topic("orders", partition_count=2)
        append(topic.partitions[1])
        topic.partitions[1].start_flush()
        await topic.partitions[1].wait_flushed()
        await asyncio.sleep(11)
        noted = read_offsets(topics._files, "/data", RECOVERY_POINT_FILE)
        assert noted == {("orders", 0): 0, ("orders", 1): 1}


@virtual
async def test_a_failing_partition_does_not_keep_the_others_from_their_turn(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def _broken(**_: int) -> int:
        raise OSError(errno.EIO, "as if the disk were gone")

    async with kept_up(clock) as topics:
        files = topics._files
        assert isinstance(files, SimulatedFileSystem)
        configs = {"internal.segment.bytes": "200", "retention.bytes": "500"}
        for name in ("a", "b"):
            topic = await topics.changes.create_topic(name, partition_count=1, configs=configs)
            for _ in range(20):
                append(topic.partitions[0], b"x" * 90)
        bad, good = topics.partition("a", 0), topics.partition("b", 0)
        assert bad is not None
        assert good is not None
        bad.log.enforce_retention = _broken  # type: ignore[method-assign]
        await asyncio.sleep(40)
        assert good.log.log_start_offset > 0
        assert topics._background_tasks.failing() == []
    assert "upkeep of Partition(a-0)" in caplog.text


@pytest.mark.parametrize(
    "broken",
    ["compaction", "retention", "flush.ms", "checkpoints", "removal of deleted segments",
     "expiry of producers"],
)  # fmt: skip
@virtual
async def test_work_that_fails_ends_no_other_and_goes_on_itself(
    clock: VirtualClock, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = {
        "compaction": (Compactor, "compact_one"),
        "retention": (Upkeep, "_visit"),
        "flush.ms": (Upkeep, "_flush_due"),
        "checkpoints": (DataDirectoryShell, "_note_offsets"),
        "removal of deleted segments": (Upkeep, "_remove_deleted_files"),
        "expiry of producers": (Upkeep, "_visit"),
    }[broken]
    works = getattr(owner, name)

    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    async with kept_up(clock) as topics:
        topic = await topics.changes.create_topic(
            "orders", partition_count=1, configs={"flush.ms": "1000"}
        )
        tasks = topics._upkeep._tasks
        counts = topics._background_tasks.failure_counts
        monkeypatch.setattr(owner, name, fail)
        await asyncio.sleep(700)
        assert counts[broken] >= 1
        assert broken in topics._background_tasks.failing()
        monkeypatch.setattr(owner, name, works)
        failed = dict(counts)
        assert {other for other, count in failed.items() if not count} >= WORK - SHARED[name]
        await asyncio.sleep(700)
        assert counts == failed, "it works again"
        assert topics._background_tasks.failing() == []
        assert not any(task.done() for task in tasks)
        compacted = await topics.changes.create_topic(
            "compacted",
            partition_count=1,
            configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
        )
        for partition in (topic.partitions[0], compacted.partitions[0]):
            for _ in range(5):
                append(partition, key=b"key")
                partition.log.roll(wall_ms=clock.wall_ms())
        size_bytes = compacted.partitions[0].log.size_bytes
        await asyncio.sleep(60)
        assert compacted.partitions[0].log.size_bytes < size_bytes
        assert topic.partitions[0].log.flushed_offset == 5


WORK = {"compaction", "retention", "flush.ms", "checkpoints", "removal of deleted segments",
        "expiry of producers"}  # fmt: skip
SHARED = {
    "compact_one": {"compaction"},
    "_visit": {"removal of deleted segments", "retention", "expiry of producers"},
    "_flush_due": {"flush.ms"},
    "_note_offsets": {"checkpoints"},
    "_remove_deleted_files": {"removal of deleted segments"},
}
"""Which work fails together with a method."""


@virtual
async def test_a_log_whose_files_cannot_be_removed_does_not_keep_those_of_others(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with kept_up(clock) as topics:
        removed: list[str] = []

        def note(log: PartitionLog, *, wall_ms: int) -> None:
            del wall_ms
            if log.directory.name == "a-0":
                raise RuntimeError("unforeseen")
            removed.append(log.directory.name)

        for name in ("a", "b"):
            topic = await topics.changes.create_topic(name, partition_count=1)
            append(topic.partitions[0])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PartitionLog, "remove_deleted_files", note)
            await asyncio.sleep(31)
            assert removed == ["b-0"]
        assert topics._background_tasks.failing() == []
    assert "removal of deleted segments of PartitionLog(/data/a-0" in caplog.text


@pytest.mark.parametrize(("work_ms", "turns_wanted"), [(0, 1), (SLICE_MS, 10)])
@virtual
async def test_others_have_the_loop_between_partitions_that_take_long(
    clock: VirtualClock, work_ms: int, turns_wanted: int
) -> None:
    async with kept_up(clock) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=10)
        for partition in topic.partitions:
            append(partition)
        turn, seen = 0, list[int]()

        def work(_: Partition) -> None:
            seen.append(turn)
            clock.advance(work_ms)

        visit = asyncio.ensure_future(topics._upkeep._visit(work))
        while not visit.done():
            turn += 1
            await asyncio.sleep(0)
        assert len(seen) == 10
        assert len(set(seen)) == turns_wanted

"""Compacted topics shrink while the broker runs, and keep the last value of every key."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.runtime.slices import SLICE_MS
from kohort.broker.storage.checkpoints.offset_checkpoint import CLEANER_OFFSET_FILE
from kohort.broker.storage.compaction import cleaner
from kohort.broker.storage.compaction.cleaner import Compaction, CompactionPlan, plan_compaction
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.topics.compaction import RETRY_MS_MAX, Compactor
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.batch import read_header, split_batches
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType
from kohort.protocol.records.record import Record, decode_records
from kohort.testing.inline_executor import InlineExecutor
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from kohort.testing.virtual_clock import VirtualClock
from tests.support.brokers.running_topics import append, running_topics
from tests.support.measures.busy_clock import BusyClock
from tests.support.records.storage_tools import memory_store

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def compactor_of(topics: TopicManager, clock: VirtualClock | None = None) -> Compactor:
    return Compactor(
        topics.all,
        topics.settings,
        topics._files,
        topics.directory,
        clock=clock or VirtualClock(),
        executor=topics._executor,
    )


def topics_in_memory(
    clock: VirtualClock, files: SimulatedFileSystem | None = None
) -> AbstractAsyncContextManager[TopicManager]:
    """Topics without a compactor: only that of the test works."""
    files = files or SimulatedFileSystem()
    files.make_directory("/data")
    return running_topics(
        Path("/data"),
        "log.cleaner.enable=false",
        files=files,
        store=memory_store(),
        clock=clock,
        executor=InlineExecutor(),
    )


async def wait_tried_again(compactor: Compactor, clock: VirtualClock) -> int:
    """Let time pass until a log is due; return how many seconds that took."""
    for waited_s in range(RETRY_MS_MAX // 1000 + 1):
        if await compactor._dirtiest():
            return waited_s
        clock.advance(1000)
    raise AssertionError("no log is due any more")


def fill(partition: Partition, rounds: int) -> None:
    """The same ten keys again and again, a segment for each round."""
    for number in range(rounds):
        for key in range(10):
            append(partition, b"value %d" % number, b"key %d" % key)
        partition.log.roll(wall_ms=1)


def content(partition: Partition) -> list[tuple[int, bytes | None, bytes | None]]:
    found = []
    offset = partition.log.log_start_offset
    while offset < partition.high_watermark:
        for header, batch in split_batches(partition.reads.read(offset, 1 << 20, min_one=True)):
            found += [(record.offset, record.key, record.value) for record in decode_records(batch)]
            offset = header.next_offset
    return found


def flip_a_byte(path: str) -> bytes:
    data = bytearray(Path(path).read_bytes())
    data[70] ^= 1
    Path(path).write_bytes(data)
    return bytes(data)


def content_of(data: bytes | memoryview) -> list[Record]:
    return [record for _, batch in split_batches(data) for record in decode_records(batch)]


async def test_a_topic_is_compacted_up_to_the_first_open_transaction_only(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1, configs=COMPACTED)
        partition = topic.partitions[0]
        fill(partition, rounds=2)
        batch = encode_batch(
            [Record(b"undecided", b"key 0")],
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        partition.append(batch, read_header(batch), wall_ms=1)
        fill(partition, rounds=2)
        compactor = compactor_of(topics)
        assert await compactor.compact_one()
        assert [offset for offset, _, _ in content(partition)] == list(range(10, 41))
        assert not await compactor.compact_one()
        partition.append_marker(
            1, 0, ControlType.ABORT, coordinator_epoch=0, transaction_version=1, wall_ms=1
        )
        partition.log.roll(wall_ms=1)
        assert await compactor.compact_one()
        kept = [(offset, value) for offset, key, value in content(partition) if key != b"\0\0\0\0"]
        assert kept == [(31 + key, b"value 1") for key in range(10)]


async def test_the_next_start_knows_what_is_clean_and_still_has_the_records(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1, configs=COMPACTED)
        fill(topic.partitions[0], rounds=3)
        await compactor_of(topics).compact_one()
        kept = content(topic.partitions[0])
    assert (tmp_path / CLEANER_OFFSET_FILE).read_text().splitlines() == ["0", "1", "t 0 30"]
    async with running_topics(tmp_path) as topics:
        again = topics.get("t")
        assert again is not None
        assert content(again.partitions[0]) == kept
        assert not await compactor_of(topics).compact_one()


async def test_retention_during_a_compaction_does_not_stop_it(tmp_path: Path) -> None:
    """What is left of the log is compacted; it used to be given up until the next start."""
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1, configs=COMPACTED)
        partition = topic.partitions[0]
        fill(partition, rounds=5)
        compactor = compactor_of(topics)
        running = asyncio.ensure_future(compactor.compact_one())
        # The plan is made in the first step of the task; its files are opened behind it.
        asyncio.get_running_loop().call_soon(topics.changes.delete_records_before, partition, 25)
        blocked = threading.Event()
        assert isinstance(topics._executor, ThreadPoolExecutor)
        for _ in range(2):
            topics._executor.submit(blocked.wait, 30)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        blocked.set()
        assert await running
        assert not await compactor.compact_one(), "nothing is dirty any more"
        assert content(partition) == [(40 + key, b"key %d" % key, b"value 4") for key in range(10)]


async def test_a_new_topic_of_a_deleted_ones_name_begins_dirty(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        compactor = compactor_of(topics)
        topics.changes.on_topics_deleted(compactor.forget)
        for _ in range(2):
            topic = await topics.changes.create_topic("t", partition_count=1, configs=COMPACTED)
            fill(topic.partitions[0], rounds=3)
            assert await compactor.compact_one()
            assert len(content(topic.partitions[0])) == 10
            assert await topics.changes.delete_topics([topic]) == [None]


async def test_a_full_disk_delays_compaction_and_does_not_end_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = SimulatedFileSystem()
    clock = VirtualClock()
    async with topics_in_memory(clock, files) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1, configs=COMPACTED)
        partition = topic.partitions[0]
        fill(partition, rounds=5)
        compactor = compactor_of(topics, clock)
        files.space_left = 100
        waits = []
        for _ in range(9):
            assert await compactor.compact_one()
            assert compactor.uncleanable_count == 1
            waits.append(await wait_tried_again(compactor, clock))
        assert waits == [15, 30, 60, 120, 240, 480, 600, 600, 600]
        assert compactor.failure_count == 9
        assert caplog.text.count("compaction failed, next try in") == 9
        assert partition.failure is None
        files.space_left = None
        assert await compactor.compact_one()
        assert compactor.uncleanable_count == 0
        assert content(partition) == [(40 + key, b"key %d" % key, b"value 4") for key in range(10)]


async def test_an_unforeseen_error_in_one_log_is_a_failure_of_that_log_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to end all upkeep of all logs."""
    work = Compaction.work

    def fail_for_one(run: Compaction) -> bool:
        if run._log.directory.name == "t-0":
            raise RuntimeError("unforeseen")
        return work(run)

    monkeypatch.setattr(Compaction, "work", fail_for_one)
    clock = VirtualClock()
    async with topics_in_memory(clock) as topics:
        topic = await topics.changes.create_topic("t", partition_count=2, configs=COMPACTED)
        broken, other = topic.partitions
        fill(broken, rounds=5)
        fill(other, rounds=3)
        compactor = compactor_of(topics, clock)
        assert await compactor.compact_one(), "the first of two that are equally dirty"
        assert await compactor.compact_one()
        assert not await compactor.compact_one()
        assert len(content(other)) == 10
        assert len(content(broken)) == 50
        assert (compactor.uncleanable_count, compactor.failure_count) == (1, 1)
        told = [record for record in caplog.records if record.levelname == "ERROR"]
        assert [record.message for record in told] == [
            f"{broken!r}: compaction failed, next try in 15 s: unforeseen"
        ]
        assert told[0].exc_info is not None, "an error in the program has a traceback"
        assert await wait_tried_again(compactor, clock) == 15
        assert await compactor.compact_one()
        assert compactor.failure_count == 2
        assert await wait_tried_again(compactor, clock) == 30
        monkeypatch.setattr(Compaction, "work", work)
        assert await compactor.compact_one()
        assert (compactor.uncleanable_count, len(content(broken))) == (0, 10)


async def test_an_unforeseen_error_in_the_plan_of_one_log_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def plan_or_fail(log: PartitionLog, **terms: Any) -> CompactionPlan | None:  # noqa: ANN401
        if log.directory.name == "t-0":
            raise RuntimeError("unforeseen")
        return plan_compaction(log, **terms)

    monkeypatch.setattr(cleaner, "plan_compaction", plan_or_fail)
    clock = VirtualClock()
    async with topics_in_memory(clock) as topics:
        topic = await topics.changes.create_topic("t", partition_count=2, configs=COMPACTED)
        for partition in topic.partitions:
            fill(partition, rounds=3)
        compactor = compactor_of(topics, clock)
        assert await compactor.compact_one()
        assert [len(content(partition)) for partition in topic.partitions] == [30, 10]
        assert (compactor.uncleanable_count, compactor.failure_count) == (1, 1)


async def test_damage_is_left_alone_and_what_lies_before_it_compacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1, configs=COMPACTED)
        partition = topic.partitions[0]
        fill(partition, rounds=5)
        compactor = compactor_of(topics)
        path = partition.log.segments[3].path(".log")
        damaged = flip_a_byte(path)
        assert await compactor.compact_one()
        assert "is compacted only up to its damaged part" in caplog.text
        assert await compactor.compact_one(), "up to the damage"
        assert not await compactor.compact_one()
        assert (compactor.uncleanable_count, compactor.failure_count) == (1, 1)
        assert await asyncio.to_thread(Path(path).read_bytes) == damaged
        first, *_ = split_batches(partition.reads.read(0, 1 << 20, min_one=True))
        assert first[0].record_count == 0


async def test_what_an_earlier_log_of_the_name_was_clean_up_to_means_nothing(
    tmp_path: Path,
) -> None:
    """This happens after a power loss that took the log's end, or a deletion just before a kill."""
    (tmp_path / CLEANER_OFFSET_FILE).write_text("0\n1\nt 0 30\n")
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1, configs=COMPACTED)
        partition = topic.partitions[0]
        fill(partition, rounds=3)
        append(partition, b"value", b"another key")
        partition.log.roll(wall_ms=1)
        assert await compactor_of(topics).compact_one()
        assert [offset for offset, _, _ in content(partition)] == list(range(20, 31))
    async with running_topics(tmp_path) as topics:
        assert not await compactor_of(topics).compact_one()


async def test_reads_after_a_compaction_see_nothing_from_before_it(tmp_path: Path) -> None:
    """Though offset, limit and high watermark are the same."""
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1, configs=COMPACTED)
        partition = topic.partitions[0]
        fill(partition, rounds=2)
        before = bytes(partition.reads.read(0, 1 << 20, min_one=True))
        aside = await partition.reads.read_in_thread(1, 1 << 20, min_one=True)
        assert isinstance(aside, bytes)
        assert partition.reads.read_cached(0, 1 << 20, min_one=True) == before
        assert await compactor_of(topics).compact_one()
        after = partition.reads.read(0, 1 << 20, min_one=True)
        assert bytes(after) != before
        assert await partition.reads.read_in_thread(1, 1 << 20, min_one=True) != aside
        assert [record.offset for record in content_of(after)] == list(range(10, 20))


async def test_reads_after_records_are_deleted_see_none_of_them(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1)
        partition = topic.partitions[0]
        fill(partition, rounds=2)
        partition.reads.read(0, 1 << 20, min_one=True)
        topics.changes.delete_records_before(partition, 5)
        with pytest.raises(KafkaError) as caught:
            partition.reads.read(0, 1 << 20, min_one=True)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_others_have_the_loop_while_many_logs_are_looked_at(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("t", partition_count=10, configs=COMPACTED)
        for partition in topic.partitions:
            append(partition, b"value", b"key")
        looking = asyncio.ensure_future(compactor_of(topics, BusyClock(SLICE_MS)).compact_one())
        turns = 0
        while not looking.done():
            turns += 1
            await asyncio.sleep(0)
        assert not looking.result()
        assert turns > 10


async def test_a_log_that_goes_offline_while_others_are_looked_at_is_left_alone(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("t", partition_count=3, configs=COMPACTED)
        for partition in topic.partitions:
            fill(partition, rounds=2)
        dirtiest = topic.partitions[0]
        before = len(dirtiest.log.segments)
        compactor = compactor_of(topics, BusyClock(SLICE_MS))
        looking = asyncio.ensure_future(compactor.compact_one())
        await asyncio.sleep(0)
        dirtiest.take_offline("as if its disk had failed")
        assert not await looking
        assert len(dirtiest.log.segments) == before
        assert compactor.failure_count == 0

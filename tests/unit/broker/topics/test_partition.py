"""What consumers and producers may know of a partition, held behind what the disk has."""

import asyncio
import errno
import gc
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar
from weakref import WeakSet

import pytest

from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record, decode_records
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.brokers.running_topics import append, running_topics

P = ParamSpec("P")
T = TypeVar("T")

FLUSH_EACH = "log.flush.interval.messages=1"


class GatedExecutor(Executor):
    """Lets nothing through that is named `flush` until the gate opens, as a slow disk does."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.flush_count = 0
        self._threads = ThreadPoolExecutor(4)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if getattr(fn, "__name__", "") != "flush":
            return self._threads.submit(fn, *args, **kwargs)
        self.flush_count += 1

        def wait_and_flush() -> T:
            assert self.gate.wait(20)
            return fn(*args, **kwargs)

        return self._threads.submit(wait_and_flush)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.gate.set()
        self._threads.shutdown(wait, cancel_futures=cancel_futures)


def values(partition: Partition, offset: int = 0) -> list[bytes | None]:
    data = partition.reads.read(offset, 1 << 20, min_one=True)
    found: list[bytes | None] = []
    while data:
        header = read_header(data)
        found += [record.value for record in decode_records(data[: header.size_bytes])]
        data = data[header.size_bytes :]
    return found


async def test_with_an_interval_of_one_no_one_sees_a_record_before_its_fsync(
    tmp_path: Path,
) -> None:
    executor = GatedExecutor()
    async with running_topics(tmp_path, FLUSH_EACH, executor=executor) as topics:
        partition = (await topics.changes.create_topic("t", partition_count=1)).partitions[0]
        append(partition, b"one")
        await asyncio.sleep(0.05)
        assert partition.high_watermark == 0
        assert values(partition) == []
        executor.gate.set()
        await asyncio.wait_for(partition.wait_committed(1), 10)
        assert values(partition) == [b"one"]


async def test_appends_while_the_disk_is_slow_share_one_fsync(tmp_path: Path) -> None:
    executor = GatedExecutor()
    async with running_topics(tmp_path, FLUSH_EACH, executor=executor) as topics:
        partition = (await topics.changes.create_topic("t", partition_count=1)).partitions[0]
        append(partition)
        await asyncio.sleep(0.05)
        for _ in range(50):
            append(partition)
        executor.gate.set()
        await asyncio.wait_for(partition.wait_committed(51), 10)
        assert executor.flush_count == 1


async def test_a_full_segment_is_forced_to_disk_without_being_waited_for(tmp_path: Path) -> None:
    executor = GatedExecutor()
    small = {"segment.bytes": "1048576"}
    async with running_topics(tmp_path, executor=executor) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1, configs=small)
        partition = topic.partitions[0]
        append(partition, b"x" * 600_000)
        assert executor.flush_count == 0
        append(partition, b"x" * 600_000)
        assert len(partition.log.segments) == 2
        assert partition.high_watermark == 2
        executor.gate.set()
        await partition.wait_flushed()
        assert partition.log.flushed_offset == 2


async def test_a_flush_for_upkeep_does_not_hold_back_what_is_appended_meanwhile(
    tmp_path: Path,
) -> None:
    executor = GatedExecutor()
    async with running_topics(tmp_path, executor=executor) as topics:
        partition = (await topics.changes.create_topic("t", partition_count=1)).partitions[0]
        append(partition)
        partition.start_flush()
        await asyncio.sleep(0.05)
        append(partition)
        assert partition.high_watermark == 2
        executor.gate.set()
        await partition.wait_flushed()
        assert partition.log.flushed_offset == 2


async def test_a_failed_fsync_takes_the_partition_offline_and_acknowledges_nothing(
    tmp_path: Path,
) -> None:
    files = SimulatedFileSystem()
    files.make_directory(str(tmp_path.parent))
    async with running_topics(tmp_path, FLUSH_EACH, files=files, stop_cleanly=False) as topics:
        topic = await topics.changes.create_topic("t", partition_count=2)
        broken, sound = topic.partitions
        files.fail("sync", suffix="t-0/00000000000000000000.log", number=errno.EIO)
        append(broken)
        with pytest.raises(KafkaError) as caught:
            await asyncio.wait_for(broken.wait_committed(1), 10)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert broken.high_watermark == 0
        with pytest.raises(KafkaError):
            append(broken)
        with pytest.raises(KafkaError):
            broken.reads.read(0, 1 << 20, min_one=True)
        append(sound)
        await asyncio.wait_for(sound.wait_committed(1), 10)


async def test_a_partition_that_is_offline_keeps_nothing_of_requests_that_it_refuses(
    tmp_path: Path,
) -> None:
    """An exception that is raised again and again holds every frame it has come through."""

    class Request:
        pass

    alive: WeakSet[Request] = WeakSet()

    def refused(partition: Partition) -> None:
        request = Request()
        alive.add(request)
        with pytest.raises(KafkaError):
            partition.check_online()

    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1)
        topic.partitions[0].take_offline("the disk failed")
        for _ in range(50):
            refused(topic.partitions[0])
        gc.collect()
        assert len(alive) == 0


async def test_a_repeated_batch_is_answered_with_its_first_offset_and_not_stored_again(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        partition = (await topics.changes.create_topic("t", partition_count=1)).partitions[0]
        append(partition)
        batch = encode_batch(
            [Record(b"v", timestamp=1)], producer_id=7, producer_epoch=0, base_sequence=0
        )
        first = partition.append(batch, read_header(batch), wall_ms=1)
        again = partition.append(batch, read_header(batch), wall_ms=2)
        assert not first.is_duplicate
        assert again.is_duplicate
        assert first.base_offset == again.base_offset == 1
        assert first.appended_ms == again.appended_ms == 1
        assert partition.log.log_end_offset == 2


async def test_who_waits_for_a_partition_that_is_deleted_is_told(tmp_path: Path) -> None:
    executor = GatedExecutor()
    async with running_topics(tmp_path, FLUSH_EACH, executor=executor) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1)
        partition = topic.partitions[0]
        append(partition)
        waiting = asyncio.ensure_future(partition.wait_committed(1))
        await asyncio.sleep(0.05)
        partition.mark_deleted()
        with pytest.raises(KafkaError) as caught:
            await asyncio.wait_for(waiting, 10)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        executor.gate.set()

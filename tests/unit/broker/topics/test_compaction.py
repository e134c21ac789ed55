"""Compacted topics shrink while the broker runs, and keep the last value of every key."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from broker.clock import VirtualClock
from broker.storage.offset_checkpoint import CLEANER_OFFSET_FILE
from broker.topics.compaction import Compactor
from broker.topics.manager import TopicManager
from broker.topics.partition import Partition
from protocol.records.batch import split_batches
from protocol.records.record import decode_records
from tests.running_topics import append, running_topics

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def compactor_of(topics: TopicManager) -> Compactor:
    return Compactor(
        topics.all,
        lambda: topics.settings,
        topics._files,
        topics.directory,
        clock=VirtualClock(),
        executor=topics._executor,
    )


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
        for header, batch in split_batches(partition.read(offset, 1 << 20, min_one=True)):
            found += [(record.offset, record.key, record.value) for record in decode_records(batch)]
            offset = header.next_offset
    return found


async def test_a_compacted_topic_keeps_the_last_value_of_every_key_at_its_offset(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.create_topic("t", partition_count=1, configs=COMPACTED)
        partition = topic.partitions[0]
        fill(partition, rounds=5)
        compactor = compactor_of(topics)
        assert await compactor.compact_one()
        assert content(partition) == [(40 + key, b"key %d" % key, b"value 4") for key in range(10)]
        assert not await compactor.compact_one(), "nothing is dirty any more"


async def test_the_next_start_knows_what_is_clean_and_still_has_the_records(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.create_topic("t", partition_count=1, configs=COMPACTED)
        fill(topic.partitions[0], rounds=3)
        await compactor_of(topics).compact_one()
        kept = content(topic.partitions[0])
    assert (tmp_path / CLEANER_OFFSET_FILE).read_text().splitlines() == ["0", "1", "t 0 30"]
    async with running_topics(tmp_path) as topics:
        again = topics.get("t")
        assert again is not None
        assert content(again.partitions[0]) == kept
        assert not await compactor_of(topics).compact_one()


async def test_retention_during_a_compaction_only_delays_it(tmp_path: Path) -> None:
    """The log is compacted as it is then; it used to be given up until the next start."""
    async with running_topics(tmp_path) as topics:
        topic = await topics.create_topic("t", partition_count=1, configs=COMPACTED)
        partition = topic.partitions[0]
        fill(partition, rounds=5)
        compactor = compactor_of(topics)
        running = asyncio.ensure_future(compactor.compact_one())
        # The plan is made in the first step of the task; its files are opened behind it.
        asyncio.get_running_loop().call_soon(topics.delete_records_before, partition, 25)
        blocked = threading.Event()
        assert isinstance(topics._executor, ThreadPoolExecutor)
        for _ in range(2):
            topics._executor.submit(blocked.wait, 30)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        blocked.set()
        assert await running
        assert await compactor.compact_one()
        assert content(partition) == [(40 + key, b"key %d" % key, b"value 4") for key in range(10)]


async def test_topics_that_are_not_compacted_are_left_alone(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.create_topic("t", partition_count=1)
        fill(topic.partitions[0], rounds=3)
        assert not await compactor_of(topics).compact_one()
        assert len(content(topic.partitions[0])) == 30


async def test_a_new_topic_of_a_deleted_ones_name_begins_dirty(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        compactor = compactor_of(topics)
        topics.on_topics_deleted(compactor.forget)
        for _ in range(2):
            topic = await topics.create_topic("t", partition_count=1, configs=COMPACTED)
            fill(topic.partitions[0], rounds=3)
            assert await compactor.compact_one()
            assert len(content(topic.partitions[0])) == 10
            await topics.delete_topic(topic)

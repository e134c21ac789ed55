"""The log in memory behaves as the one on disk; and which partition a group lives in."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import pytest

from kohort.broker.coordinator.offsets_log import OffsetsLog, StoredRecord, TopicOffsetsLog
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.broker.runtime.slices import SLICE_MS
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.groups.classic.stored_value import BYTES_AT_ONCE
from kohort.groups.encoding import encode_as_batch, encode_headers, encode_key, encode_value
from kohort.groups.records import (
    DurableRecord,
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    PendingOffset,
    StoredMember,
)
from kohort.groups.requests import CommittedOffset
from kohort.groups.steps import FEW
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support.brokers.running_topics import running_topics
from tests.support.measures.busy_clock import BusyClock
from tests.support.memory_logs import MemoryOffsetsLog

OFFSET = OffsetRecord("g", "t", 0, CommittedOffset(42, -1, "", 99))
NEXT_OFFSET = OffsetRecord("g", "t", 0, CommittedOffset(43, -1, "", 99))
GROUP = GroupRecord("g", "consumer", 1, "range", None, 99, (), b"12345678")
GONE = GroupTombstone("g")


def stored(record: DurableRecord, wall_ms: int = 99) -> StoredRecord:
    return StoredRecord(encode_key(record), encode_value(record), encode_headers(record), wall_ms)


async def done(append: Awaitable[None] | None) -> None:
    if append is not None:
        await append


@asynccontextmanager
async def a_log(
    kind: str, directory: Path, clock: VirtualClock | None = None
) -> AsyncIterator[OffsetsLog]:
    if kind == "memory":
        yield MemoryOffsetsLog()
    else:
        async with running_topics(directory, clock=clock) as topics:
            yield TopicOffsetsLog(topics, topics.settings.config)


both = pytest.mark.parametrize("kind", ["memory", "topic"])


@both
async def test_what_was_appended_is_read_in_order(kind: str, tmp_path: Path) -> None:
    async with a_log(kind, tmp_path) as log:
        assert log.partition_count == 50
        await done(log.append(7, [OFFSET, GROUP], wall_ms=99))
        await done(log.append(7, [NEXT_OFFSET, GONE], wall_ms=100))
        await done(log.append(8, [GROUP], wall_ms=100))
        assert list(log.read(7)) == [
            *(stored(OFFSET), stored(GROUP)),
            *(stored(NEXT_OFFSET, 100), stored(GONE, 100)),
        ]
        assert list(log.read(8)) == [stored(GROUP, 100)]


@both
async def test_a_partition_no_one_wrote_to_is_empty(kind: str, tmp_path: Path) -> None:
    async with a_log(kind, tmp_path) as log:
        assert list(log.read(7)) == []
        await done(log.append(8, [GROUP], wall_ms=99))
        assert list(log.read(7)) == []


@both
async def test_a_group_may_be_larger_than_a_producers_batch(kind: str, tmp_path: Path) -> None:
    members = tuple(
        StoredMember(f"m-{index}", None, "c", "/h", 1, 1, bytes(1_000), bytes(1_000))
        for index in range(2_000)
    )
    large = GroupRecord("g", "consumer", 1, "range", "m-0", 99, members)
    async with a_log(kind, tmp_path) as log:
        await done(log.append(0, [large], wall_ms=99))
        assert list(log.read(0)) == [stored(large)]


async def test_the_topic_is_made_by_the_first_append_as_kafka_makes_it(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        log = TopicOffsetsLog(topics, topics.settings.config)
        assert topics.get(CONSUMER_OFFSETS) is None
        # Two groups at once, and one topic for both.
        first, second = log.append(1, [GROUP], wall_ms=99), log.append(2, [GROUP], wall_ms=99)
        await done(first)
        await done(second)
        topic = topics.get(CONSUMER_OFFSETS)
        assert topic is not None
        assert topic.is_internal
        assert len(topic.partitions) == 50
        assert topic.config.cleanup_policy == ("compact",)
        assert log.append(1, [OFFSET], wall_ms=99) is None


async def test_a_group_of_few_large_members_is_not_encoded_on_the_event_loop(
    tmp_path: Path,
) -> None:
    metadata = bytes(BYTES_AT_ONCE // 2 + 1)
    members = tuple(StoredMember(name, None, "c", "/h", 1, 1, metadata, b"") for name in ("m", "n"))
    large = GROUP._replace(members=members)
    executor, is_free = ThreadPoolExecutor(1), Event()
    async with running_topics(tmp_path, executor=executor) as topics:
        log = TopicOffsetsLog(topics, topics.settings.config)
        await done(log.append(7, [GROUP], wall_ms=99))
        executor.submit(is_free.wait)
        try:
            waiting = log.append(7, [large], wall_ms=99)
            assert waiting is not None
            appending = asyncio.ensure_future(waiting)
            await asyncio.sleep(0)
            assert list(log.read(7)) == [stored(GROUP)]
        finally:
            is_free.set()
        await appending
        assert list(log.read(7)) == [stored(GROUP), stored(large)]


def group_of(size_bytes: int, assignment: bytes = b"") -> GroupRecord:
    """A group's record of about this size, without its assignment."""
    member = StoredMember("m", None, "c", "/h", 1, 1, bytes(size_bytes), assignment)
    return GROUP._replace(members=(member,))


def commits(count: int, metadata_bytes: int) -> list[DurableRecord]:
    offset = CommittedOffset(42, -1, "x" * metadata_bytes, 99)
    return [OffsetRecord("g", "t", partition, offset) for partition in range(count)]


@pytest.mark.parametrize(
    ("settings", "records"),
    [
        ((), [group_of(9 << 20)]),
        ((), [group_of(4 << 20, bytes(5 << 20))]),
        ((), commits(3_000, 4_000)),
        (("kohort.group.metadata.bytes.max=2000000",), [group_of(2_000_000)]),
        (("kohort.group.metadata.bytes.max=2000000",), commits(150, 20_000)),
        (("kohort.group.metadata.bytes.max=1",), [group_of(1 << 20)]),
    ],
    ids=["group", "assignment", "commits", "lower limit", "few commits", "limit of messages"],
)
async def test_a_batch_that_takes_long_to_write_is_rejected(
    tmp_path: Path, settings: tuple[str, ...], records: list[DurableRecord]
) -> None:
    async with running_topics(tmp_path, *settings) as topics:
        log = TopicOffsetsLog(topics, topics.settings.config)
        await done(log.append(7, [group_of(1_000_000)], wall_ms=99))
        with pytest.raises(KafkaError) as rejected:
            await done(log.append(7, records, wall_ms=99))
        assert rejected.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert list(log.read(7)) == [stored(group_of(1_000_000))]


async def test_what_was_appended_is_there_after_a_kill(tmp_path: Path) -> None:
    async with running_topics(tmp_path, stop_cleanly=False) as topics:
        await done(TopicOffsetsLog(topics, topics.settings.config).append(3, [GROUP], wall_ms=99))
    async with running_topics(tmp_path) as topics:
        log = TopicOffsetsLog(topics, topics.settings.config)
        assert list(log.read(3)) == [stored(GROUP)]


async def test_a_damaged_batch_is_never_served(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        log = TopicOffsetsLog(topics, topics.settings.config)
        await done(log.append(3, [OFFSET], wall_ms=99))
        await done(log.append(3, [NEXT_OFFSET], wall_ms=99))
    file = tmp_path / f"{CONSUMER_OFFSETS}-3" / "00000000000000000000.log"
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    async with running_topics(tmp_path) as topics:
        log = TopicOffsetsLog(topics, topics.settings.config)
        with pytest.raises(KafkaError):
            list(log.read(3))
        assert list(log.read(4)) == []


async def test_others_have_the_loop_while_a_large_group_is_written(tmp_path: Path) -> None:
    member = StoredMember("m", None, "c", "/h", 45_000, 300_000, b"metadata", b"share")
    members = tuple(member._replace(member_id=str(n)) for n in range(5_000))
    large = GROUP._replace(members=members)
    async with a_log("topic", tmp_path, BusyClock(SLICE_MS)) as log:
        await done(log.append(0, [OFFSET], wall_ms=99))
        append = log.append(0, [large, NEXT_OFFSET], wall_ms=99)
        assert append is not None
        written = asyncio.ensure_future(append)
        turns = 0
        while not written.done():
            turns += 1
            assert len(list(log.read(0))) in {1, 3}, "all or nothing"
            await asyncio.sleep(0)
        assert turns >= 5_000 // FEW
        assert list(log.read(0))[1:] == [stored(large), stored(NEXT_OFFSET)]


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        # By a JVM: Utils.abs(s.hashCode()) % 50; tests/property has many more.
        ("", 0),
        ("g", 3),
        ("payments", 13),
        ("billing", 9),
        ("orders", 31),
        ("my-group", 12),
        ("analytics", 10),
        # The hash that has no absolute value.
        ("polygenelubricants", 0),
    ],
)
def test_a_group_lives_where_kafka_puts_it(group_id: str, partition: int) -> None:
    assert partition_of(group_id, 50) == partition


@both
async def test_a_commit_in_a_transaction_is_a_batch_of_its_producer(
    kind: str, tmp_path: Path
) -> None:
    async with a_log(kind, tmp_path) as log:
        preparing = log.prepare()
        if preparing is not None:
            await preparing
        assert log.prepare() is None
        pending = PendingOffset(*OFFSET, 4_242, 3)
        for _ in range(2):
            # The same sequence, and no repetition: the group has been stepped twice.
            await done(log.append(0, [pending], wall_ms=99))
        await done(log.append(0, [NEXT_OFFSET], wall_ms=99))
        in_transaction = stored(OFFSET)._replace(producer_id=4_242, producer_epoch=3)
        assert list(log.read(0)) == [in_transaction, in_transaction, stored(NEXT_OFFSET)]


def test_such_a_batch_looks_as_kafkas() -> None:
    _, header = encode_as_batch([PendingOffset(*OFFSET, 4_242, 3)], 99)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4_242, 3, 0)
    assert header.is_transactional
    assert not header.is_control

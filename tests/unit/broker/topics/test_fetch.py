"""Fetches that wait, and what wakes them."""

from pathlib import Path

from kohort.broker.core.purgatory import Purgatory
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.topics.fetch import DelayedFetch, FetchPass, PartitionRead
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import ErrorCode
from tests.support.brokers.running_topics import append, running_topics

LIMIT = 1 << 20


def read_of(partition: Partition | None, offset: int = 0, max_bytes: int = LIMIT) -> PartitionRead:
    return PartitionRead(0, partition, offset, max_bytes)


def read_partitions(reads: list[PartitionRead], max_bytes: int) -> int:
    reading = FetchPass(reads, max_bytes)
    assert reading.read_cached()
    return reading.total_bytes


class Parked:
    """A fetch in the purgatory, and its answer once there is one."""

    def __init__(self, purgatory: Purgatory, reads: list[PartitionRead], *, min_bytes: int) -> None:
        self.answer: list[PartitionRead] | None = None
        self.later: Deferred[None] = Deferred()
        self.reads = reads
        found = read_partitions(reads, LIMIT)
        self.operation = DelayedFetch(
            reads,
            bytes_missing=min_bytes - found,
            read_again=self.take,
            answer=self.later,
            owner="connection",
        )
        self.purgatory = purgatory
        purgatory.try_complete_else_watch(self.operation, self.operation.keys, 1_000)

    @property
    def is_answered(self) -> bool:
        return self.answer is not None

    def take(self, answer: Deferred[None]) -> None:
        assert answer is self.later
        assert self.answer is None, "answered twice"
        read_partitions(self.reads, LIMIT)
        self.answer = self.reads


async def two_partitions(topics: TopicManager) -> list[Partition]:
    return list((await topics.changes.create_topic("t", partition_count=2)).partitions)


async def test_a_fetch_waits_until_the_sum_over_its_partitions_is_enough(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        purgatory = topics._purgatory
        first, second = await two_partitions(topics)
        append(first, bytes(100))
        reads = [read_of(first), read_of(second)]
        size = read_partitions(reads, LIMIT)
        parked = Parked(purgatory, reads, min_bytes=3 * size)
        append(second, bytes(100))
        purgatory.drain()
        assert not parked.is_answered
        append(second, bytes(100))
        purgatory.drain()
        assert parked.answer is not None
        assert sum(len(read.data) for read in parked.answer) == 3 * size


async def test_at_its_deadline_a_fetch_answers_with_what_there_is(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        purgatory = topics._purgatory
        first, _ = await two_partitions(topics)
        append(first)
        parked = Parked(purgatory, [read_of(first)], min_bytes=LIMIT)
        purgatory.expire(999)
        assert not parked.is_answered
        purgatory.expire(1_000)
        assert parked.answer is not None
        assert len(parked.answer[0].data) > 0


async def test_a_fetch_of_a_partition_that_goes_is_answered_at_once(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        purgatory = topics._purgatory
        first, _ = await two_partitions(topics)
        parked = Parked(purgatory, [read_of(first)], min_bytes=1)
        topic = topics.get("t")
        assert topic is not None
        assert await topics.changes.delete_topics([topic]) == [None]
        purgatory.drain()
        assert parked.answer is not None
        assert parked.answer[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_first_batch_comes_whole_and_later_partitions_keep_to_the_limit(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        first, second = await two_partitions(topics)
        append(first, bytes(500))
        append(second, bytes(500))
        reads = [read_of(first, max_bytes=1), read_of(second)]
        total = read_partitions(reads, 100)
        assert len(reads[0].data) == total > 500
        assert reads[1].data == b""

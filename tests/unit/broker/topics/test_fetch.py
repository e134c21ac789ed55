"""Fetches that wait, and what wakes them."""

from pathlib import Path

from kohort.broker.core.purgatory import Purgatory
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.topics.fetch import DelayedFetch, FetchPass, PartitionRead
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import ErrorCode
from tests.support.brokers.running_topics import running_topics

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

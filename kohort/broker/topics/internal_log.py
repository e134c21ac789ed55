"""An internal topic as a log of the broker's own: made when there is something to write.

The topic is made with its first batch, and each of its partitions with the first batch that lies in
it, so that neither a start nor the first client waits for fifty directories. How durable a batch is
when that is told depends on the broker's flush settings, as for any other topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from typing import TypeAlias

from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import FIRST_LEADER_EPOCH, Partition
from kohort.broker.topics.records import read_records
from kohort.broker.topics.topic import Topic
from kohort.protocol.records.batch import BatchHeader
from kohort.protocol.records.record import Record

Batch: TypeAlias = tuple[bytes, BatchHeader]


class InternalLog:
    """One internal topic; it is never deleted, and never gets other partitions."""

    def __init__(
        self, topics: TopicManager, name: str, *, partition_count: int, configs: Mapping[str, str]
    ) -> None:
        """`partition_count` and `configs` are for the topic's creation."""
        self._topics = topics
        self._name = name
        self._planned_count = partition_count
        self._configs = configs
        self._creating: asyncio.Task[Topic] | None = None
        self._found: Topic | None = None

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has; before there is one, as many as it will get."""
        topic = self._topic()
        return self._planned_count if topic is None else len(topic.partitions)

    def leader_epoch(self, partition: int) -> int:
        """The leader epoch with which batches are appended."""
        found = self._on_disk(partition)
        return FIRST_LEADER_EPOCH if found is None else found.leader_epoch

    def append(self, partition: int, batch: Batch, *, wall_ms: int) -> Awaitable[None] | None:
        """Append a batch; None if it is durable already.

        The awaitable ends when the batch is durable, and may be cancelled without an effect on it.
        Either way KafkaError means that it is not in the log and will not be.
        """
        topic = self._topic()
        if topic is None:
            return self._create_and_append(partition, batch, wall_ms)
        return _append(topic.partitions[partition], batch, wall_ms)

    def read(self, partition: int) -> Iterator[Record]:
        """All durable records, in order. Raises KafkaError: what follows cannot be read."""
        found = self._on_disk(partition)
        if found is not None:
            yield from read_records(found, found.log.log_start_offset)

    def _topic(self) -> Topic | None:
        if self._found is None:
            self._found = self._topics.get(self._name)
        return self._found

    def _on_disk(self, partition: int) -> Partition | None:
        """A partition that has a directory: a look must not make one."""
        topic = self._topic()
        if topic is None or not self._topics.is_on_disk(self._name, partition):
            return None
        return topic.partitions[partition]

    async def _create_and_append(self, partition: int, batch: Batch, wall_ms: int) -> None:
        if self._creating is None or self._creating.done():
            self._creating = asyncio.create_task(self._create(), name=f"create {self._name}")
        topic = await asyncio.shield(self._creating)
        waiting = _append(topic.partitions[partition], batch, wall_ms)
        if waiting is not None:
            await waiting

    async def _create(self) -> Topic:
        return self._topic() or await self._topics.changes.create_topic(
            self._name, partition_count=self._planned_count, configs=dict(self._configs)
        )


def _append(partition: Partition, made: Batch, wall_ms: int) -> Awaitable[None] | None:
    batch, header = made
    appended = partition.append(batch, header, wall_ms=wall_ms)
    if partition.high_watermark >= appended.next_offset:
        return None
    return partition.wait_committed(appended.next_offset)

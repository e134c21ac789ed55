"""An internal topic as a log of the broker's own, created when there is something to write.

The topic is created by `prepare` or with its first batch, and the directory of a partition with the
partition's first batch, so neither the start nor the first client waits for fifty directories. As
for any other topic, the broker's flush settings decide how durable an acknowledged batch is.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping

from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import FIRST_LEADER_EPOCH, Partition
from kohort.broker.topics.records import read_records
from kohort.broker.topics.topic import Topic
from kohort.protocol.records.batch import SealedBatch
from kohort.protocol.records.record import Record


class InternalLog:
    """One internal topic; it is never deleted, and its partition count never changes."""

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
        """The partition count of the topic, or the one with which it will be created."""
        topic = self._found or self._find()
        return self._planned_count if topic is None else len(topic.partitions)

    def leader_epoch(self, partition: int) -> int:
        """Return the leader epoch with which batches are appended."""
        topic = self._found or self._find()
        opened = None if topic is None else topic.partitions.peek(partition)
        opened = opened or self.on_disk(partition)
        return FIRST_LEADER_EPOCH if opened is None else opened.leader_epoch

    def append(self, partition: int, batch: SealedBatch, *, wall_ms: int) -> Awaitable[None] | None:
        """Append a batch; None if it is durable already.

        The awaitable completes when the batch is durable; cancelling it has no effect on the batch.
        A KafkaError, raised at once or by the awaitable, means that it is not in the log and never
        will be.
        """
        topic = self._found or self._find()
        if topic is None:
            return self._create_and_append(partition, batch, wall_ms)
        opened = topic.partitions[partition]
        made, header = batch
        # Batches that the broker writes for a producer have no sequence numbers of their own.
        appended = opened.append(made, header, wall_ms=wall_ms, is_numbered=False)
        if opened.high_watermark >= appended.next_offset:
            return None
        return opened.wait_committed(appended.next_offset)

    def read(self, partition: int) -> Iterator[Record]:
        """Yield all durable records, in order. Raises KafkaError if the rest cannot be read."""
        opened = self.on_disk(partition)
        if opened is not None:
            yield from read_records(opened, opened.log.log_start_offset)

    def prepare(self) -> Awaitable[None] | None:
        """Create the topic if it does not exist; None if it exists. Raises KafkaError."""
        return None if (self._found or self._find()) is not None else self._prepare()

    async def force(self, partition: int) -> None:
        """Return when everything in the partition is on disk. Raises KafkaError."""
        topic = self._found or self._find()
        if topic is not None:
            await topic.partitions[partition].force()

    def on_disk(self, partition: int) -> Partition | None:
        """Return a partition if it has a directory; the lookup must not create one."""
        topic = self._found or self._find()
        if topic is None or not self._topics.is_on_disk(self._name, partition):
            return None
        return topic.partitions[partition]

    def _find(self) -> Topic | None:
        self._found = self._topics.get(self._name)
        return self._found

    async def _create_and_append(self, partition: int, batch: SealedBatch, wall_ms: int) -> None:
        await self._prepare()
        waiting = self.append(partition, batch, wall_ms=wall_ms)
        if waiting is not None:
            await waiting

    async def _prepare(self) -> None:
        if self._creating is None or self._creating.done():
            self._creating = asyncio.create_task(self._create(), name=f"create {self._name}")
            # All waiters may have been cancelled when it fails.
            self._creating.add_done_callback(_retrieve_exception)
        self._found = await asyncio.shield(self._creating)

    async def _create(self) -> Topic:
        return self._find() or await self._topics.changes.create_topic(
            self._name, partition_count=self._planned_count, configs=dict(self._configs)
        )


def _retrieve_exception(task: asyncio.Task[Topic]) -> None:
    if not task.cancelled():
        task.exception()

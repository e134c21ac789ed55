"""The groups' log as what it is on disk: the internal topic __consumer_offsets.

The topic is made when the first group has something to write, and each of its partitions when the
first group comes to live in it, so that neither a start nor a first group waits for fifty
directories. How durable an append is when it is told depends on the broker's flush settings, as for
any other topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence

from kohort.broker.config import BrokerConfig
from kohort.broker.coordinator.log.offsets_log import (
    Batch,
    Stored,
    StoredRecord,
    batch_steps,
    decode_stored,
    encode_as_batch,
    encode_stored,
    is_large,
)
from kohort.broker.core.group.records import DurableRecord
from kohort.broker.runtime.turns import in_turns
from kohort.broker.topics.internal import internal_topic_configs
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.broker.topics.records import read_batches
from kohort.broker.topics.topic import Topic
from kohort.protocol.errors import DecodeError, ErrorCode, KafkaError


class TopicOffsetsLog:
    """An OffsetsLog over the broker's own topics."""

    def __init__(self, topics: TopicManager, config: BrokerConfig) -> None:
        self._topics = topics
        self._config = config
        self._creating: asyncio.Task[Topic] | None = None
        self._found: Topic | None = None
        """The topic, once it is there: it is never deleted."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has; before there is one, as many as it will get."""
        topic = self._found or self._find()
        return self._config.offsets_topic_num_partitions if topic is None else len(topic.partitions)

    def _find(self) -> Topic | None:
        self._found = self._topics.get(CONSUMER_OFFSETS)
        return self._found

    def append(
        self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append in order, as one batch; None if that is durable already."""
        if is_large(records):
            return self._append_in_steps(partition, records, wall_ms)
        return self._append_batch(partition, encode_as_batch(records, wall_ms), wall_ms)

    def read(self, partition: int) -> Iterator[Stored]:
        """All durable records and markers, in order. Raises KafkaError: what follows cannot be
        read.
        """
        topic = self._topics.get(CONSUMER_OFFSETS)
        # A look must not make a directory.
        if topic is None or not self._topics.is_on_disk(CONSUMER_OFFSETS, partition):
            return
        found = topic.partitions[partition]
        for header, batch in read_batches(found, found.log.log_start_offset):
            try:
                yield from decode_stored(header, batch)
            except DecodeError as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    def append_stored(
        self, partition: int, records: Sequence[StoredRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append records as they lie in a log already, with their own timestamps; see `append`."""
        return self._append_batch(partition, encode_stored(records), wall_ms)

    async def force(self, partition: int) -> None:
        """Return when all that the partition holds is on the disk. Raises KafkaError."""
        topic = self._topics.get(CONSUMER_OFFSETS)
        if topic is not None:
            await topic.partitions[partition].force()

    async def _append_in_steps(
        self, partition: int, records: Sequence[DurableRecord], wall_ms: int
    ) -> None:
        """Others have the loop in between; the group that waits for this is not stepped."""
        batch = await in_turns(batch_steps(records, wall_ms))
        waiting = self._append_batch(partition, batch, wall_ms)
        if waiting is not None:
            await waiting

    def _append_batch(self, partition: int, made: Batch, wall_ms: int) -> Awaitable[None] | None:
        topic = self._found or self._find()
        if topic is None:
            return self._create_and_append(partition, made, wall_ms)
        found = topic.partitions[partition]
        batch, header = made
        appended = found.append(batch, header, wall_ms=wall_ms, is_numbered=False)
        if found.high_watermark >= appended.next_offset:
            return None
        return found.wait_committed(appended.next_offset)

    def prepare(self) -> Awaitable[None] | None:
        """Let there be a topic; None if there is one. Raises KafkaError: there is none."""
        return None if (self._found or self._find()) is not None else self._prepare()

    async def _prepare(self) -> None:
        if self._creating is None or self._creating.done():
            self._creating = asyncio.create_task(self._create(), name=f"create {CONSUMER_OFFSETS}")
        self._found = await asyncio.shield(self._creating)

    async def _create_and_append(self, partition: int, made: Batch, wall_ms: int) -> None:
        await self._prepare()
        waiting = self._append_batch(partition, made, wall_ms)
        if waiting is not None:
            await waiting

    async def _create(self) -> Topic:
        existing = self._topics.get(CONSUMER_OFFSETS)
        if existing is not None:
            return existing
        return await self._topics.changes.create_topic(
            CONSUMER_OFFSETS,
            partition_count=self._config.offsets_topic_num_partitions,
            configs=internal_topic_configs(CONSUMER_OFFSETS, self._config),
        )

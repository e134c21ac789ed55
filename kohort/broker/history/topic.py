"""The internal topic __rebalance_history, which stores records durably and for other readers.

One partition; the key is the group id, the value the JSON text, and headers allow sorting records
without parsing them: `schema`, `kind` (rebalance, avoided, or running for a long rebalance that has
not ended), `sequence`, and the `generation` that a rebalance ended with. No error here may disturb
a group: records that cannot be written are lost, counted, and logged once.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Final, Protocol

from kohort.broker.config import BrokerConfig
from kohort.broker.topics.internal_log import read_records
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import REBALANCE_HISTORY, internal_topic_configs
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.topic import Topic
from kohort.groups.history.entry import Entry, entry_of, record_of
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.batch import CompressionType, read_header
from kohort.protocol.records.builder import encode_batch

logger = logging.getLogger(__name__)

RESTORE_BYTES: Final = 4 * 1024 * 1024
"""Startup reads the latest segments up to this total size, including the one that exceeds it."""

BATCH_BYTES: Final = 256 * 1024
"""Maximum total size of the values in a batch; a larger value gets a batch of its own."""

COMPRESSED_FROM_BYTES: Final = 8 * 1024

SLOW_FROM_BYTES: Final = 64 * 1024
"""Larger batches are compressed in the executor: on the event loop, they would block it for
milliseconds."""

RETRY_CREATION_MS: Final = 10_000
"""The delay before the next attempt, after the topic could not be created."""

RUNNING: Final = "running"


class HistoryLog(Protocol):
    lost_count: int
    """Number of entries that could not be written since startup."""

    async def append(self, entries: Sequence[Entry]) -> None:
        """Write the entries, or count them as lost; never raises."""
        ...

    def read(self) -> Iterator[Entry]:
        """Yield the latest entries, oldest first. Raises KafkaError if the rest cannot be read."""
        ...

    def is_whole(self) -> bool:
        """Whether `read` begins with the very first record of the history."""
        ...


class TopicHistoryLog:
    """A HistoryLog in one of the broker's own topics, which is created when the first entry is
    written.
    """

    def __init__(self, topics: TopicManager, config: BrokerConfig, executor: Executor) -> None:
        self._topics = topics
        self._config = config
        self._executor = executor
        self._is_failing = False
        self._next_creation_ms = 0
        self.lost_count = 0

    async def append(self, entries: Sequence[Entry]) -> None:
        for batch in _batches(entries):
            try:
                await self._append_batch(batch)
            except KafkaError as error:
                self._lose(len(batch), error)
            else:
                self._is_failing = False

    def _lose(self, count: int, error: KafkaError) -> None:
        self.lost_count += count
        if not self._is_failing:
            self._is_failing = True
            logger.warning("The rebalance history is not stored while this error lasts: %s", error)

    async def _append_batch(self, entries: Sequence[Entry]) -> None:
        encoded = await self._encode(entries)
        topic = self._topics.get(REBALANCE_HISTORY)
        if topic is None:
            topic = await self._create(entries[0].wall_ms)
        partition = topic.partitions[0]
        partition.append(encoded, read_header(encoded), wall_ms=entries[-1].wall_ms)

    async def _encode(self, entries: Sequence[Entry]) -> bytes:
        if sum(len(entry.text) for entry in entries) < SLOW_FROM_BYTES:
            return _encode(entries)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, _encode, entries)

    async def _create(self, wall_ms: int) -> Topic:
        if self._is_failing and wall_ms < self._next_creation_ms:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, "the topic could not be created recently"
            )
        self._next_creation_ms = wall_ms + RETRY_CREATION_MS
        return await self._topics.changes.create_topic(
            REBALANCE_HISTORY,
            partition_count=1,
            configs=internal_topic_configs(REBALANCE_HISTORY, self._config),
        )

    def read(self) -> Iterator[Entry]:
        topic = self._topics.get(REBALANCE_HISTORY)
        if topic is None or not self._topics.is_on_disk(REBALANCE_HISTORY, 0):
            return
        partition = topic.partitions[0]
        yield from filter(None, map(entry_of, read_records(partition, _tail_offset(partition))))

    def is_whole(self) -> bool:
        topic = self._topics.get(REBALANCE_HISTORY)
        if topic is None or not self._topics.is_on_disk(REBALANCE_HISTORY, 0):
            return True
        return _tail_offset(topic.partitions[0]) == 0


def _batches(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        if batch and size + len(entry.text) > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += len(entry.text)
    if batch:
        yield batch


def _encode(entries: Sequence[Entry]) -> bytes:
    is_large = sum(len(entry.text) for entry in entries) >= COMPRESSED_FROM_BYTES
    records = list(map(record_of, entries))
    # gzip is supported by every client.
    codec, level = (CompressionType.GZIP, 1) if is_large else (CompressionType.NONE, None)
    return encode_batch(records, codec=codec, level=level)


def _tail_offset(partition: Partition) -> int:
    """Return the first offset of the tail: the latest segments that total `RESTORE_BYTES`."""
    segments = partition.log.segments
    size_bytes = 0
    for segment in reversed(segments):
        size_bytes += segment.size_bytes
        if size_bytes >= RESTORE_BYTES:
            return segment.base_offset
    return segments[0].base_offset if segments else 0

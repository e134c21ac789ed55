"""Reads and writes an internal topic, such as __transaction_state, for the broker itself.

The topic is created by `prepare` or with its first batch, and the directory of a partition with the
partition's first batch, so neither startup nor the first client waits for fifty directories. As for
any other topic, the broker's flush settings decide how durable an acknowledged batch is.
"""

import asyncio
from bisect import bisect
from collections.abc import Awaitable, Iterator, Mapping
from typing import Final

from kohort.broker.topics.directories import FIRST_LEADER_EPOCH
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.topic import Topic
from kohort.protocol.errors import DecodeError, ErrorCode, KafkaError
from kohort.protocol.records.batch import BatchHeader, SealedBatch, split_batches
from kohort.protocol.records.control import ControlType, decode_marker
from kohort.protocol.records.record import Record, decode_records
from kohort.protocol.records.varint import Buffer

READ_BYTES: Final = 1 << 20


def read_records(partition: Partition, offset: int) -> Iterator[Record]:
    """Yield all visible records from `offset` on, except control records.

    For topics that this broker does not write in transactions. Files written by Kafka may contain
    transactions: the records of a committed one are yielded in offset order, those of an aborted or
    open one are skipped.

    Raises:
        KafkaError: the rest cannot be read.
    """
    ends: _TransactionEnds | None = None
    for header, batch in read_batches(partition, offset):
        if header.is_control:
            continue
        if header.is_transactional:
            if ends is None:
                ends = _TransactionEnds(partition, header.base_offset)
            if not ends.is_committed(header):
                continue
        try:
            records = decode_records(batch)
        except DecodeError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        yield from records


class _TransactionEnds:
    """Outcomes of a partition's transactions: two parallel lists per producer, for `bisect`.

    Created only when a transactional record is found, because it reads the log to its end.
    """

    def __init__(self, partition: Partition, offset: int) -> None:
        self._offsets: dict[int, list[int]] = {}
        self._committed: dict[int, list[bool]] = {}
        for header, batch in read_batches(partition, offset):
            # Compaction leaves empty control batches, which end nothing.
            if not header.is_control or not header.record_count:
                continue
            try:
                marker = decode_marker(batch, header)
            except DecodeError as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
            if marker is not None:
                is_commit = marker.control_type is ControlType.COMMIT
                self._offsets.setdefault(header.producer_id, []).append(header.base_offset)
                self._committed.setdefault(header.producer_id, []).append(is_commit)

    def is_committed(self, header: BatchHeader) -> bool:
        offsets = self._offsets.get(header.producer_id, [])
        place = bisect(offsets, header.base_offset)
        return place < len(offsets) and self._committed[header.producer_id][place]


def read_batches(partition: Partition, offset: int) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Yield all batches up to the high watermark. Raises KafkaError at unreadable ones."""
    offset = max(offset, partition.log.log_start_offset)
    while offset < partition.high_watermark:
        data = partition.reads.read(offset, READ_BYTES, min_one=True)
        if not data:
            return
        for header, batch in split_batches(data, partial_tail=True):
            offset = header.next_offset
            yield header, batch


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
        A KafkaError, raised at once or by the awaitable, means that the batch is not in the log and
        never will be.
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

    def end_offset(self, partition: int) -> int:
        """Return the offset of the next record; to be called after an append."""
        topic = self._found or self._find()
        assert topic is not None, "nothing was appended"
        return topic.partitions[partition].log.log_end_offset

    def read(self, partition: int) -> Iterator[Record]:
        """Yield all durable records, in order. Raises KafkaError if the rest cannot be read."""
        opened = self.on_disk(partition)
        if opened is not None:
            yield from read_records(opened, opened.log.log_start_offset)

    def prepare(self) -> Awaitable[None] | None:
        """Create the topic; return None if it exists already. Raises KafkaError."""
        return None if (self._found or self._find()) is not None else self._prepare()

    def delete_before(self, partition: int, offset: int) -> None:
        """Advance the log start offset, and delete the segments below it. Raises KafkaError."""
        opened = self.on_disk(partition)
        if opened is not None and opened.log.log_start_offset < offset:
            self._topics.changes.delete_records_before(opened, offset)

    def on_disk(self, partition: int) -> Partition | None:
        """Return a partition if it has a directory, else None: the lookup must not create a
        directory.
        """
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
            # If all waiters are cancelled, asyncio would log the exception of a failed creation.
            self._creating.add_done_callback(_retrieve_exception)
        self._found = await asyncio.shield(self._creating)

    async def _create(self) -> Topic:
        return self._find() or await self._topics.changes.create_topic(
            self._name, partition_count=self._planned_count, configs=dict(self._configs)
        )


def _retrieve_exception(task: asyncio.Task[Topic]) -> None:
    if not task.cancelled():
        task.exception()

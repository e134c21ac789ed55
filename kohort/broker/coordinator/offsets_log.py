"""The groups' log: __consumer_offsets as the coordinator sees it.

Each group belongs to one partition, chosen as in Kafka, so that tools find it. The records of one
`append` form one batch: either all are stored, or none.
"""

from collections.abc import Awaitable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kohort.broker.config import BrokerConfig
from kohort.broker.runtime.slices import Slice, run
from kohort.broker.topics.internal_log import InternalLog, read_batches
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import CONSUMER_OFFSETS, internal_topic_configs
from kohort.groups.encoding import batch_steps, encode_as_batch, has_many_bytes, is_large, too_large
from kohort.groups.offsets.table import HeldValues
from kohort.groups.records import DurableRecord, RecordHeaders
from kohort.protocol.errors import DecodeError, ErrorCode, KafkaError
from kohort.protocol.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    SealedBatch,
)
from kohort.protocol.records.control import ControlType, decode_marker
from kohort.protocol.records.record import decode_records
from kohort.protocol.records.varint import Buffer


class StoredRecord(NamedTuple):
    key: bytes
    value: bytes | None
    headers: RecordHeaders
    timestamp: int
    """Wall-clock time of the append, in milliseconds."""
    producer_id: int = NO_PRODUCER_ID
    """Producer of the record's transaction; -1 outside of a transaction."""
    producer_epoch: int = NO_PRODUCER_EPOCH


class StoredMarker(NamedTuple):
    """A transaction marker, as stored in the log among the records."""

    producer_id: int
    is_commit: bool


Stored: TypeAlias = StoredRecord | StoredMarker


class OffsetsLog(Protocol):
    @property
    def partition_count(self) -> int: ...

    def append(
        self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append records in order, as one batch; None if they are durable already. Pending offsets
        must all belong to one transaction, without other records in the batch.

        The awaitable completes when the records are durable; cancelling it has no effect on them. A
        KafkaError, raised at once or by the awaitable, means that they are not in the log and never
        will be.
        """
        ...

    def read(self, partition: int) -> Iterator[Stored]:
        """Yield all durable records and markers, in order; `PendingResolver`
        decides which records count.

        Raises:
            KafkaError: the rest of the partition cannot be read.
        """
        ...

    def prepare(self) -> Awaitable[None] | None:
        """Create the log, so that the first append need not wait for it; None if it exists.

        Raises:
            KafkaError: it cannot be created.
        """
        ...


def decode_stored(header: BatchHeader, batch: Buffer) -> Iterator[Stored]:
    """Decode a batch of the log. Raises DecodeError."""
    if header.is_control:
        # Compaction leaves empty batches, which do not end a transaction.
        marker = decode_marker(batch, header) if header.record_count else None
        if marker is not None:
            is_commit = marker.control_type is ControlType.COMMIT
            yield StoredMarker(header.producer_id, is_commit)
        return
    producer_id, producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    if header.is_transactional:
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
    for record in decode_records(batch, header):
        if record.key is not None:
            yield StoredRecord(
                record.key,
                record.value,
                record.headers,
                record.timestamp,
                producer_id,
                producer_epoch,
            )


class PendingResolver:
    """Determines which records of a partition count. It must get all entries, from the first on.

    A record outside of transactions counts immediately. A transactional record counts once its
    commit marker is read, unless a later record in the log with the same key counts already.
    """

    def __init__(self) -> None:
        self.held: HeldValues[bytes, StoredRecord] = HeldValues()
        """Records of the transactions that are open at the present position in the log, by key."""

    def take(self, entry: Stored) -> Sequence[StoredRecord]:
        """Process the next entry; return the records that begin to count with it. Each replaces
        any earlier record of its key.
        """
        if isinstance(entry, StoredMarker):
            ended = self.held.end(entry.producer_id, commit=entry.is_commit)
            return [record for _, record in ended]
        if entry.producer_id != NO_PRODUCER_ID:
            self.held.hold(entry.producer_id, entry.key, entry)
            return ()
        if self.held.by_producer:
            if entry.value is None:
                self.held.drop(entry.key)
            else:
                self.held.overtake(entry.key)
        return (entry,)


class TopicOffsetsLog:
    """An OffsetsLog stored in one of the broker's own topics."""

    def __init__(self, topics: TopicManager, config: BrokerConfig) -> None:
        self._batch_bytes_max = max(
            config.message_max_bytes, config.kohort_group_metadata_bytes_max
        )
        self._clock = topics.clock
        self._disk = topics.disk
        self._log = InternalLog(
            topics,
            CONSUMER_OFFSETS,
            partition_count=config.offsets_topic_num_partitions,
            configs=internal_topic_configs(CONSUMER_OFFSETS, config),
        )
        self.prepare = self._log.prepare

    @property
    def partition_count(self) -> int:
        """The partition count of the topic, or the count with which the topic will be created."""
        return self._log.partition_count

    def append(
        self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append records in order, as one batch; return None if they are durable already.

        A batch is written within one event loop iteration, which takes up to 4 ms per MiB. So its
        size is limited: KafkaError with MESSAGE_TOO_LARGE.
        """
        if has_many_bytes(records):
            encoding = self._disk.run(encode_as_batch, records, wall_ms)
            return self._append_when(encoding, partition, wall_ms)
        if is_large(records):
            steps = run(batch_steps(records, wall_ms, self._batch_bytes_max), Slice(self._clock))
            return self._append_when(steps, partition, wall_ms)
        return self._append_batch(partition, encode_as_batch(records, wall_ms), wall_ms)

    def read(self, partition: int) -> Iterator[Stored]:
        """Yield all durable records and markers, in order. Raises KafkaError if the rest cannot be
        read.
        """
        found = self._log.on_disk(partition)
        if found is None:
            return
        for header, batch in read_batches(found, found.log.log_start_offset):
            try:
                yield from decode_stored(header, batch)
            except DecodeError as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    async def _append_when(
        self, encoding: Awaitable[SealedBatch], partition: int, wall_ms: int
    ) -> None:
        """Append a batch once it is encoded. Other tasks may run meanwhile; the group that waits
        for this append executes no commands.
        """
        waiting = self._append_batch(partition, await encoding, wall_ms)
        if waiting is not None:
            await waiting

    def _append_batch(
        self, partition: int, batch: SealedBatch, wall_ms: int
    ) -> Awaitable[None] | None:
        size_bytes = len(batch[0])
        if size_bytes > self._batch_bytes_max:
            raise too_large(size_bytes, self._batch_bytes_max)
        return self._log.append(partition, batch, wall_ms=wall_ms)

"""The groups' log on disk: the internal topic __consumer_offsets."""

from collections.abc import Awaitable, Iterator, Sequence

from kohort.broker.config import BrokerConfig
from kohort.broker.coordinator.log.offsets_log import (
    Stored,
    decode_stored,
)
from kohort.broker.runtime.slices import Slice, run
from kohort.broker.topics.internal_log import InternalLog, read_batches
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import CONSUMER_OFFSETS, internal_topic_configs
from kohort.groups.encoding import (
    batch_steps,
    encode_as_batch,
    has_many_bytes,
    is_large,
    too_large,
)
from kohort.groups.records import DurableRecord
from kohort.protocol.errors import DecodeError, ErrorCode, KafkaError
from kohort.protocol.records.batch import SealedBatch


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
        """The partition count of the topic, or the one with which it will be created."""
        return self._log.partition_count

    def append(
        self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append in order, as one batch; None if that is durable already.

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
        """Append a batch once it is encoded. Others can use the event loop in the meantime; the
        waiting group is not stepped.
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

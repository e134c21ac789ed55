"""A producer for the command line: records into batches, each of which is appended exactly once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, TypedDict

from kohort.admin.batches_in_flight import BatchesInFlight, SentBatch
from kohort.admin.cluster import RETRY_S, Cluster, RefusedError
from kohort.admin.partitioner import partition_of
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.errors import DisconnectedError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kohort.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.builder import LinesBatch, encode_batch
from kohort.protocol.records.lines import LINE_END, RECORD_OVERHEAD_BYTES_MAX
from kohort.protocol.records.record import Record

BATCH_BYTES: Final = 1_000_000
"""Keys and values in a batch; with what is around them it stays below the usual max.message.bytes
of 1,048,588 where records are not tiny."""
RECORD_OVERHEAD_BYTES: Final = 12
"""What a record takes beside its key and value, roughly."""

_ALL_REPLICAS: Final = -1
_SEQUENCES: Final = 1 << 31


class _Identity(TypedDict):
    """The fields of a producer's batches beside the records."""

    codec: CompressionType
    producer_id: int
    producer_epoch: int
    base_sequence: int


class _Batch:
    """Records of one partition that wait to be sent."""

    __slots__ = ("byte_count", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.byte_count = 0


class Producer:
    """Appends records to one topic; `flush` at the end."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        timeout_s: float,
        codec: CompressionType = CompressionType.NONE,
    ) -> None:
        """Find the topic's partitions; a broker that makes topics by itself is let make it.

        Args:
            timeout_s: how long a batch is tried.

        Raises:
            RefusedError: there is no such topic, or it may not be written to.
            DisconnectedError
        """
        self._cluster = cluster
        self._topic = topic
        self._timeout_s = timeout_s
        self._codec = codec
        self._waiting: dict[int, _Batch] = {}
        self._sequences: dict[int, int] = {}
        self.leaders = self._find_leaders()
        """The leader of each partition, None where there is none now."""
        self.partition_count = len(self.leaders)
        self._next_partition = 0
        self._lines: LinesBatch | None = None
        self._lines_bytes = 0
        self._lines_time = -1
        self._lines_partition: int | None = None
        self._under_way = BatchesInFlight(topic, self, timeout_s)
        # A broker that has just been started may ask for a moment.
        self._producer_id, self._producer_epoch = cluster.retrying(self._find_id)

    @property
    def sent_records(self) -> int:
        """Records that a broker has."""
        return self._under_way.appended_records

    @property
    def sent_bytes(self) -> int:
        """How many bytes the keys and values of the sent records have."""
        return self._under_way.appended_bytes

    def add(self, record: Record, partition: int | None = None) -> None:
        """Take a record, and send a batch if one is full.

        Args:
            partition: by default chosen by the key, or any one without a key.

        Raises RefusedError, DisconnectedError.
        """
        if partition is None:
            key = record.key
            partition = (
                self._next_partition if key is None else partition_of(key, self.partition_count)
            )
        size = len(record.value or b"") + len(record.key or b"") + RECORD_OVERHEAD_BYTES
        batch = self._waiting.get(partition)
        if batch is not None and batch.byte_count + size > BATCH_BYTES:
            self._send(partition)
            batch = None
        if batch is None:
            batch = self._waiting[partition] = _Batch()
        batch.records.append(record)
        batch.byte_count += size

    def add_lines(
        self, text: bytearray, end: int, timestamp: int, partition: int | None = None
    ) -> None:
        """Take records that are nothing but a value, a line of `text` each, and send full batches.

        Args:
            text: read until this returns, and not kept.
            end: behind the end of its last line.

        Raises RefusedError, DisconnectedError.
        """
        self._lines_time, self._lines_partition = timestamp, partition
        position = 0
        while position < end:
            if self._lines is None:
                line_bytes = text.index(LINE_END, position) - position
                self._lines = LinesBatch(max(BATCH_BYTES, line_bytes + RECORD_OVERHEAD_BYTES_MAX))
            had, begun = self._lines.count, position
            position = self._lines.add(text, position, end)
            # Their ends are no part of them.
            self._lines_bytes += position - begun - (self._lines.count - had)
            if position < end:
                self._send_lines()

    def flush(self) -> None:
        """Send all that waits, and return when a broker has it. Raises RefusedError,
        DisconnectedError.
        """
        for partition in list(self._waiting):
            self._send(partition)
        self._send_lines()
        self._under_way.settle()

    def refresh(self) -> None:
        """Look for the leaders once more; without an answer they stay what they were."""
        try:
            self.leaders |= self._leaders_now()[0]
        except (DisconnectedError, RefusedError):
            return

    # Within.

    def _send(self, partition: int) -> None:
        batch = self._waiting.pop(partition)
        data = encode_batch(batch.records, **self._identity(partition))
        count = len(batch.records)
        self._append(partition, data, count, batch.byte_count - RECORD_OVERHEAD_BYTES * count)

    def _send_lines(self) -> None:
        lines, self._lines = self._lines, None
        if lines is None:
            return
        partition = self._lines_partition
        if partition is None:
            partition = self._next_partition
        data = lines.encode(self._lines_time, **self._identity(partition))
        byte_count, self._lines_bytes = self._lines_bytes, 0
        self._append(partition, data, lines.count, byte_count)

    def _identity(self, partition: int) -> _Identity:
        return {
            "codec": self._codec,
            "producer_id": self._producer_id,
            "producer_epoch": self._producer_epoch,
            "base_sequence": self._sequences.get(partition, 0),
        }

    def _append(
        self, partition: int, data: bytes | memoryview, count: int, byte_count: int
    ) -> None:
        """Send a batch of `count` records with so many bytes of keys and values."""
        if partition == self._next_partition:
            # Records without a key go on in the next one: a batch each, as Java's clients do.
            self._next_partition = (partition + 1) % self.partition_count
        self._sequences[partition] = (self._sequences.get(partition, 0) + count) % _SEQUENCES
        request = ProduceRequest(
            acks=_ALL_REPLICAS,
            timeout_ms=int(self._timeout_s * 1000),
            topic_data=[
                TopicProduceData(
                    name=self._topic,
                    partition_data=[PartitionProduceData(index=partition, records=data)],
                )
            ],
        )
        deadline_s = time.monotonic() + self._timeout_s
        self._under_way.send(SentBatch(partition, request, count, byte_count, deadline_s))

    def _find_leaders(self) -> dict[int, BlockingConnection | None]:
        """The leader of each partition of a topic that may just have been made."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            leaders, error = self._leaders_now()
            if leaders and None not in leaders.values():
                return leaders
            is_coming = not error or ErrorCode(error).retriable
            if not is_coming or time.monotonic() + RETRY_S > deadline_s:
                what = f"the topic {self._topic!r} cannot be written to"
                raise RefusedError(error or ErrorCode.LEADER_NOT_AVAILABLE, what)
            time.sleep(RETRY_S)

    def _leaders_now(self) -> tuple[dict[int, BlockingConnection | None], int]:
        answer = self._cluster.metadata([self._topic], creates=True)
        described = answer.topics[0]
        leaders = {
            one.partition_index: self._cluster.broker(answer, one.leader_id)
            for one in described.partitions
        }
        return leaders, described.error_code

    def _find_id(self) -> tuple[int, int]:
        leaders: Sequence[BlockingConnection | None] = list(self.leaders.values())
        assert leaders[0] is not None, "waited for"
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        found: InitProducerIdResponse = self._cluster.ask(leaders[0], request)
        if found.error_code:
            raise RefusedError(found.error_code, "no producer id is given")
        return found.producer_id, found.producer_epoch

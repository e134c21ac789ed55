"""A producer for the command line: batches records, and by default appends each exactly once."""

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from kohort.admin.cluster import RETRY_S, Cluster, RefusedError, check
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.errors import DisconnectedError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record

BATCH_BYTES: Final = 1_000_000
"""Maximum size of a batch's keys and values plus `RECORD_OVERHEAD_BYTES` per record. Unless
headers are large, the batch stays below the usual max.message.bytes of 1,048,588."""
RECORD_OVERHEAD_BYTES: Final = 12
"""Approximate size of a record without its key and value."""

_ALL_REPLICAS: Final = -1
_SEQUENCES: Final = 1 << 31
_PRODUCE_MAX: Final = 12
"""The last version with topic names; later ones have topic ids."""
_APPENDED: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})

_SEED: Final = 0x9747B28C

_FACTOR: Final = 0x5BD1E995

_MASK: Final = 0xFFFFFFFF


class _Batch:
    """Records of one partition that wait to be sent."""

    __slots__ = ("byte_count", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.byte_count = 0


class Producer:
    """Appends records to one topic; call `flush` after the last record."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        timeout_s: float,
        codec: CompressionType = CompressionType.NONE,
        is_idempotent: bool = True,
    ) -> None:
        """Find the topic's partitions; a broker with auto.create.topics.enable creates a missing
        topic.

        Args:
            timeout_s: time limit for delivering a batch.
            is_idempotent: append each batch exactly once; otherwise a retry may append it again.

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
        self.sent_records = 0
        """Records that a broker has appended."""
        self.sent_bytes = 0
        self._producer_id, self._producer_epoch = -1, -1
        self._is_idempotent = is_idempotent
        if is_idempotent:
            # A broker that has just started may not have producer ids yet.
            self._producer_id, self._producer_epoch = cluster.retrying(self._find_id)

    def add(self, record: Record, partition: int | None = None) -> None:
        """Take a record, and send a batch if one is full.

        Args:
            partition: by default chosen by the key; any partition for a record without a key.
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

    def flush(self) -> None:
        """Return when brokers have appended all records."""
        for partition in list(self._waiting):
            self._send(partition)

    def _send(self, partition: int) -> None:
        """Take a partition's batch from the buffer, and append it."""
        if partition == self._next_partition:
            # Records without a key fill a batch of one partition, then of the next, as in Java.
            self._next_partition = (partition + 1) % self.partition_count
        batch = self._waiting.pop(partition)
        sequence = self._sequences.get(partition, 0)
        try:
            data = encode_batch(
                batch.records,
                codec=self._codec,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=sequence if self._is_idempotent else -1,
            )
            self._append(partition, data)
        except KeyboardInterrupt:
            # `flush` retries the batch. If it is idempotent, a broker that has appended it already
            # detects the duplicate (KIP-98).
            self._waiting[partition] = batch
            raise
        count = len(batch.records)
        self._sequences[partition] = (sequence + count) % _SEQUENCES
        self.sent_records += count
        self.sent_bytes += batch.byte_count - RECORD_OVERHEAD_BYTES * count

    def _append(self, partition: int, data: bytes) -> None:
        """Send a batch until it is appended. After `timeout_s`, raise the last error."""
        produced = PartitionProduceData(index=partition, records=data)
        request = ProduceRequest(
            acks=_ALL_REPLICAS,
            timeout_ms=int(self._timeout_s * 1000),
            topic_data=[TopicProduceData(name=self._topic, partition_data=[produced])],
        )
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._try(partition, request)
            except (RefusedError, DisconnectedError) as error:
                is_final = isinstance(error, RefusedError) and not ErrorCode(error.error).retriable
                if is_final or time.monotonic() + RETRY_S > deadline_s:
                    raise
            time.sleep(RETRY_S)
            self._refresh()

    def _try(self, partition: int, request: ProduceRequest) -> None:
        """Send a batch once. After RefusedError or DisconnectedError, it may have been appended."""
        what = f"{self._topic}-{partition} does not take a batch"
        leader = self.leaders.get(partition)
        if leader is None:
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, what)
        answer = self._cluster.ask(leader, request, at_most=_PRODUCE_MAX)
        result: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        if result.error_code in _APPENDED:
            return
        if result.error_code == ErrorCode.MESSAGE_TOO_LARGE:
            what += "; max.message.bytes of the topic is the limit"
        raise RefusedError(result.error_code, what, result.error_message)

    def _refresh(self) -> None:
        """Refresh the leaders; they are unchanged if no broker responds."""
        try:
            self.leaders |= self._leaders_now()[0]
        except (DisconnectedError, RefusedError):
            return

    def _find_leaders(self) -> dict[int, BlockingConnection | None]:
        """Return the partitions' leaders; wait for those of a topic that was just created."""
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
            partition.partition_index: self._cluster.broker(answer, partition.leader_id)
            for partition in described.partitions
        }
        return leaders, described.error_code

    def _find_id(self) -> tuple[int, int]:
        leaders: Sequence[BlockingConnection | None] = list(self.leaders.values())
        assert leaders[0] is not None, "waited for"
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        found: InitProducerIdResponse = self._cluster.ask(leaders[0], request)
        check(found.error_code, "no producer id is given")
        return found.producer_id, found.producer_epoch


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of Kafka's `Utils.murmur2`, unsigned."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for place in range(0, whole, 4):
        word = int.from_bytes(data[place : place + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        value = value * _FACTOR & _MASK ^ word
    if whole < length:
        value ^= int.from_bytes(data[whole:], "little")
        value = value * _FACTOR & _MASK
    value = (value ^ value >> 13) * _FACTOR & _MASK
    return value ^ value >> 15


@lru_cache(maxsize=4096)
def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition of a key, as in Java and in librdkafka's `murmur2_random`."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count

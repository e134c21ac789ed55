"""A producer for the command line: batches sent one after another, each exactly once (KIP-98).

A batch is sent again, with the same sequence numbers, until a broker has it or the time is over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, TypedDict

from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.errors import DisconnectedError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kohort.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.builder import encode_batch, encode_values
from kohort.protocol.records.record import Record
from kohort.wire.cluster import RETRY_S, Cluster, RefusedError
from kohort.wire.partitioner import partition_of

BATCH_BYTES: Final = 1_000_000
"""Keys and values in a batch; with what is around them it stays below the usual max.message.bytes
of 1,048,588 where records are not tiny."""
RECORD_OVERHEAD_BYTES: Final = 12
"""What a record takes beside its key and value, roughly."""

_PRODUCE_MAX: Final = 12
"""From version 13 on topics are ids."""
_ALL_REPLICAS: Final = -1
_SEQUENCES: Final = 1 << 31
_HAS_IT: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class _Identity(TypedDict):
    """What the batches of a producer bear beside their records."""

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
        self.sent_records = 0
        self.sent_bytes = 0
        """Keys and values."""
        self._waiting: dict[int, _Batch] = {}
        self._sequences: dict[int, int] = {}
        self._leaders = self._find_leaders()
        self.partition_count = len(self._leaders)
        self._next_partition = 0
        self._values: list[bytes] = []
        self._values_bytes = 0
        self._values_time = -1
        self._values_partition: int | None = None
        # A broker that has just been started may ask for a moment.
        self._producer_id, self._producer_epoch = cluster.patiently(self._find_id)

    def add(self, record: Record, partition: int | None = None) -> None:
        """Take a record, and send a batch if one is full.

        Args:
            partition: by default the key's, or whichever without a key.

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

    def add_values(
        self, values: Sequence[bytes], timestamp: int, partition: int | None = None
    ) -> None:
        """Take records that are nothing but a value, and send what makes full batches.

        Raises RefusedError, DisconnectedError.
        """
        self._values += values
        self._values_time, self._values_partition = timestamp, partition
        self._values_bytes += sum(map(len, values)) + RECORD_OVERHEAD_BYTES * len(values)
        if self._values_bytes >= BATCH_BYTES:
            self._send_values()

    def flush(self) -> None:
        """Send all that waits. Raises RefusedError, DisconnectedError."""
        for partition in list(self._waiting):
            self._send(partition)
        self._send_values()

    # Within.

    def _send(self, partition: int) -> None:
        batch = self._waiting.pop(partition)
        data = encode_batch(batch.records, **self._identity(partition))
        self._append_counted(partition, data, len(batch.records), batch.byte_count)

    def _send_values(self) -> None:
        """Send the values that wait, in batches that are not too long."""
        values, self._values, self._values_bytes = self._values, [], 0
        begun = byte_count = 0
        for place, value in enumerate(values):
            size = len(value) + RECORD_OVERHEAD_BYTES
            if byte_count + size > BATCH_BYTES and place > begun:
                self._send_batch_of(values[begun:place], byte_count)
                begun, byte_count = place, 0
            byte_count += size
        if begun < len(values):
            self._send_batch_of(values[begun:], byte_count)

    def _send_batch_of(self, values: Sequence[bytes], byte_count: int) -> None:
        partition = self._values_partition
        if partition is None:
            partition = self._next_partition
        data = encode_values(values, self._values_time, **self._identity(partition))
        self._append_counted(partition, data, len(values), byte_count)

    def _identity(self, partition: int) -> _Identity:
        return {
            "codec": self._codec,
            "producer_id": self._producer_id,
            "producer_epoch": self._producer_epoch,
            "base_sequence": self._sequences.get(partition, 0),
        }

    def _append_counted(self, partition: int, data: bytes, count: int, byte_count: int) -> None:
        if partition == self._next_partition:
            # Those without a key go on in the next one: a batch each, as Java's clients do.
            self._next_partition = (partition + 1) % self.partition_count
        self._append(partition, data)
        self._sequences[partition] = (self._sequences.get(partition, 0) + count) % _SEQUENCES
        self.sent_records += count
        self.sent_bytes += byte_count - RECORD_OVERHEAD_BYTES * count

    def _append(self, partition: int, data: bytes) -> None:
        """Send a batch to the current leader of its partition."""
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
        while True:
            failure: RefusedError | DisconnectedError
            try:
                answer = self._ask_leader(partition, request)
                if answer.error_code in _HAS_IT:
                    return
                failure = self._refused(partition, answer)
                if not ErrorCode(answer.error_code).retriable:
                    raise failure
            except DisconnectedError as error:
                failure = error
            if time.monotonic() + RETRY_S > deadline_s:
                raise failure
            time.sleep(RETRY_S)
            self._refresh()

    def _ask_leader(self, partition: int, request: ProduceRequest) -> PartitionProduceResponse:
        leader = self._leaders.get(partition)
        if leader is None:
            return PartitionProduceResponse(
                index=partition, error_code=ErrorCode.LEADER_NOT_AVAILABLE, base_offset=-1
            )
        answer: ProduceResponse = self._cluster.ask(leader, request, at_most=_PRODUCE_MAX)
        return answer.responses[0].partition_responses[0]

    def _refused(self, partition: int, answer: PartitionProduceResponse) -> RefusedError:
        what = f"{self._topic}-{partition} does not take a batch"
        if answer.error_code == ErrorCode.MESSAGE_TOO_LARGE:
            what += "; max.message.bytes of the topic is the limit"
        return RefusedError(answer.error_code, what, answer.error_message)

    def _refresh(self) -> None:
        """Look for the leaders once more; without an answer they stay what they were."""
        try:
            self._leaders |= self._leaders_now()[0]
        except (DisconnectedError, RefusedError):
            return

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
        leaders: Sequence[BlockingConnection | None] = list(self._leaders.values())
        assert leaders[0] is not None, "waited for"
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        found: InitProducerIdResponse = self._cluster.ask(leaders[0], request)
        if found.error_code:
            raise RefusedError(found.error_code, "no producer id is given")
        return found.producer_id, found.producer_epoch

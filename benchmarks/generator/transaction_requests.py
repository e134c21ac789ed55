"""The requests of a transaction, prepared as frames, in the flow of old clients and of new ones.

What changes from one transaction to the next, the producer with its epoch, the sequence and the
checksum behind them, is written into a frame before it is sent. An answer of the same length as the
first one is looked at where its error stands; every other is read field by field.
"""

import random
import struct
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from benchmarks.generator.frames import read_answer, request_frame
from kohort.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from kohort.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kohort.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kohort.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kohort.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kohort.protocol.records.batch import CRC_START
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.crc import crc32c
from kohort.protocol.records.record import Record

FLOWS: Final = {
    "TV2": ("produce", "end"),
    "TV2 with offsets": ("produce", "commit offsets", "end"),
    "TV1": ("add partitions", "produce", "end"),
    "TV1 with offsets": ("add partitions", "produce", "add offsets", "commit offsets", "end"),
    "idempotent": ("produce",),
}
"""Requests of one transaction, in order. TV2 is KIP-890's flow, TV1 the one before it; without a
transaction there is a batch after the other."""

PRODUCER: Final = struct.Struct(">qh")
"""Id and epoch, which stand together in every request and in batches."""
_BATCH_PRODUCER: Final = struct.Struct(">qhi")
"""The same with the sequence."""
_BATCH_PRODUCER_AT: Final = 43
_BATCH_CRC_AT: Final = 17
_CRC: Final = struct.Struct(">I")
_ERROR: Final = struct.Struct(">h")
_PLACEHOLDER: Final = 0x5A5B5C5D5E5F6061, 0x6263

_TIMEOUT_MS: Final = 60_000
_Errors: TypeAlias = Callable[[Any], list[int]]


class Work(NamedTuple):
    """What all producers do."""

    flow: str
    topic: str
    group_id: str = ""
    """The group whose positions are committed."""
    records: int = 1
    """In a transaction: one batch."""
    record_bytes: int = 100
    abort_every: int = 0
    """0: all transactions are committed."""


class _Kind(NamedTuple):
    """A request of a flow."""

    message: type[Any]
    errors: _Errors
    """Every error code in an answer."""
    error_at: Callable[[str], int]
    """Where the one of the only partition stands, given the topic's name."""


_KINDS: Final = {
    "add partitions": _Kind(
        AddPartitionsToTxnResponse,
        lambda answer: [
            partition.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        ],
        lambda topic: 20 + len(topic),
    ),
    "produce": _Kind(
        ProduceResponse,
        lambda answer: [
            partition.error_code
            for topic in answer.responses
            for partition in topic.partition_responses
        ],
        lambda topic: 16 + len(topic),
    ),
    "add offsets": _Kind(AddOffsetsToTxnResponse, lambda answer: [answer.error_code], lambda _: 13),
    "commit offsets": _Kind(
        TxnOffsetCommitResponse,
        lambda answer: [
            partition.error_code for topic in answer.topics for partition in topic.partitions
        ],
        lambda topic: 20 + len(topic),
    ),
    "end": _Kind(EndTxnResponse, lambda answer: [answer.error_code], lambda _: 13),
}


class Step:
    """One request of a producer's transactions, to be sent again and again."""

    def __init__(self, name: str, version: int, request: object, batch: bytes, topic: str) -> None:
        """`batch` is the one in the request, or empty."""
        self.name = name
        self.frame = bytearray(request_frame(request, version))
        self._version = version
        self._kind = _KINDS[name]
        self._error_at = self._kind.error_at(topic)
        self._size = 0
        """The size of an answer without an error."""
        self._batch_at = self.frame.index(batch) if batch else -1
        self._batch_end = self._batch_at + len(batch)
        self._producer_at = -1 if batch else self.frame.index(PRODUCER.pack(*_PLACEHOLDER))

    def prepare(self, producer_id: int, epoch: int, sequence: int) -> None:
        """For the transaction to come."""
        frame, at = self.frame, self._batch_at
        if at < 0:
            PRODUCER.pack_into(frame, self._producer_at, producer_id, epoch)
            return
        _BATCH_PRODUCER.pack_into(frame, at + _BATCH_PRODUCER_AT, producer_id, epoch, sequence)
        with memoryview(frame) as view:
            crc = crc32c(view[at + CRC_START : self._batch_end])
        _CRC.pack_into(frame, at + _BATCH_CRC_AT, crc)

    def error(self, answer: bytes) -> int:
        """Raises RuntimeError if it is no answer to this."""
        if len(answer) == self._size:
            error: int = _ERROR.unpack_from(answer, self._error_at)[0]
            if not error:
                return 0
        (error,) = self._kind.errors(read_answer(answer, self._kind.message, self._version))
        if not error and not self._size:
            if _ERROR.unpack_from(answer, self._error_at)[0]:
                raise RuntimeError(f"the error of {self.name} stands elsewhere")
            self._size = len(answer)
        return error


def make_step(name: str, work: Work, transactional_id: str | None, partition: int) -> Step:
    producer_id, epoch = _PLACEHOLDER
    who: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch}
    is_new = work.flow.startswith("TV2")
    if name == "produce":
        batch = _batch(work, is_transactional=transactional_id is not None)
        data = PartitionProduceData(index=partition, records=batch)
        produce = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=work.topic, partition_data=[data])],
        )
        return Step(name, 12 if is_new else 11, produce, batch, work.topic)
    assert transactional_id is not None
    request: object
    if name == "add partitions":
        version = 3
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=work.topic, partitions=[partition])],
        )
    elif name == "add offsets":
        version = 3
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id, group_id=work.group_id, **who
        )
    elif name == "commit offsets":
        version = 5 if is_new else 4
        position = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=4_711, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=work.group_id,
            topics=[TxnOffsetCommitRequestTopic(name=work.topic, partitions=[position])],
            **who,
        )
    else:
        version = 5 if is_new else 4
        request = EndTxnRequest(transactional_id=transactional_id, committed=True, **who)
    return Step(name, version, request, b"", work.topic)


def _batch(work: Work, *, is_transactional: bool) -> bytes:
    now = int(time.time() * 1e3)
    # No two alike, or a disk that compresses would have less to do than with a user's.
    values = random.Random(7)
    records = [
        Record(values.randbytes(work.record_bytes), timestamp=now) for _ in range(work.records)
    ]
    producer_id, epoch = _PLACEHOLDER
    return encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=is_transactional,
    )

"""Where groups write: __consumer_offsets as the coordinator sees it.

A group lives in one partition, chosen as Kafka does, so that tools find it. The records of one call
become one batch, all or nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from kohort.broker.core.group.records import (
    DurableRecord,
    GroupRecord,
    PendingOffset,
    RecordHeaders,
    encode_headers,
    encode_key,
    encode_value,
    value_steps,
)
from kohort.broker.core.steps import Steps
from kohort.protocol.errors import EncodeError, ErrorCode, KafkaError
from kohort.protocol.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    SealedBatch,
    read_header,
)
from kohort.protocol.records.builder import encode_batch, make_batch
from kohort.protocol.records.control import ControlType, decode_marker
from kohort.protocol.records.record import Record, decode_records
from kohort.protocol.records.varint import Buffer

_JAVA_INT_MIN: Final = -0x8000_0000

MEMBERS_AT_ONCE: Final = 500
"""Members of a group that is written down in the turn that asks for it: two milliseconds."""


class StoredRecord(NamedTuple):
    """A record as it lies in the log."""

    key: bytes
    value: bytes | None
    headers: RecordHeaders
    timestamp: int
    """Wall time of the append, milliseconds."""
    producer_id: int = NO_PRODUCER_ID
    """Producer of the transaction that it belongs to; -1 for none."""
    producer_epoch: int = NO_PRODUCER_EPOCH


class StoredMarker(NamedTuple):
    """The end of a producer's transaction, as it lies in the log between records."""

    producer_id: int
    is_commit: bool


Stored: TypeAlias = StoredRecord | StoredMarker


class OffsetsLog(Protocol):
    """The log, in partitions."""

    @property
    def partition_count(self) -> int: ...

    def append(
        self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append in order, as one batch; None if that is durable already. Pending positions are of
        one transaction, with nothing else among them.

        The awaitable ends when the records are durable, and may be cancelled without an effect on
        them. Either way KafkaError means that they are not in the log and will not be.
        """
        ...

    def read(self, partition: int) -> Iterator[Stored]:
        """All durable records and markers, in order; `settle.Settler` tells which records count.

        Raises:
            KafkaError: what follows cannot be read.
        """
        ...

    def append_stored(
        self, partition: int, records: Sequence[StoredRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append records as they lie in a log already, with their own timestamps; see `append`."""
        ...

    def prepare(self) -> Awaitable[None] | None:
        """Let there be a log, so that an append happens at once; None if there is one.

        Raises:
            KafkaError: there is none.
        """
        ...

    async def force(self, partition: int) -> None:
        """Return when all that the partition holds is on the disk, whatever is configured.

        Raises:
            KafkaError: it may not be.
        """
        ...


def partition_of(group_id: str, partition_count: int) -> int:
    """The partition a group lives in: the absolute value of Java's string hash, modulo the count.

    As in Kafka, the one hash that has no absolute value in 32 bits counts as 0 (`Utils.abs`).
    """
    hashed = java_hash(group_id)
    return 0 if hashed == _JAVA_INT_MIN else abs(hashed) % partition_count


def java_hash(text: str) -> int:
    """What `String.hashCode` returns."""
    hashed = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        hashed = (31 * hashed + (units[position] << 8 | units[position + 1])) & 0xFFFF_FFFF
    return hashed - 0x1_0000_0000 if hashed & 0x8000_0000 else hashed


def encode_as_batch(records: Sequence[DurableRecord], wall_ms: int) -> SealedBatch:
    """The records as one batch of the topic, and its header.

    Raises:
        KafkaError: INVALID_RECORD, for what the topic's format cannot say.
    """
    try:
        encoded = []
        for record in records:
            # As `_stored`, which would be two calls more for each commit.
            headers = encode_headers(record) if record.__class__ is GroupRecord else ()
            encoded.append(Record(encode_value(record), encode_key(record), headers, wall_ms))
        if records[0].__class__ is PendingOffset:
            return _transactional(records, encoded)
        return make_batch(encoded)
    except EncodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


def _transactional(records: Sequence[DurableRecord], encoded: Sequence[Record]) -> SealedBatch:
    """A batch of one transaction. As in Kafka, all of them have sequence 0: a group is stepped once
    for each request, and what a client repeats is stored again.
    """
    first = records[0]
    assert isinstance(first, PendingOffset)
    batch = encode_batch(
        encoded,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    return batch, read_header(batch)


def decode_stored(header: BatchHeader, batch: Buffer) -> Iterator[Stored]:
    """What a batch of the log holds. Raises DecodeError."""
    if header.is_control:
        # Compaction leaves empty ones, which say nothing of a transaction.
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


def encode_stored(records: Sequence[StoredRecord]) -> SealedBatch:
    """Records that lie in a log already as one batch of another partition."""
    return make_batch(
        [
            Record(record.value, key=record.key, headers=record.headers, timestamp=record.timestamp)
            for record in records
        ]
    )


def is_large(records: Sequence[DurableRecord]) -> bool:
    """Is there a group among them that is better written in steps?"""
    for record in records:
        if record.__class__ is GroupRecord and len(record.members) > MEMBERS_AT_ONCE:
            return True
    return False


def batch_steps(records: Sequence[DurableRecord], wall_ms: int) -> Steps[SealedBatch]:
    """Encodes a batch like `encode_as_batch`, in steps."""
    encoded: list[Record] = []
    try:
        for record in records:
            value = yield from value_steps(record)
            encoded.append(_stored(record, value, wall_ms))
        yield
        return make_batch(encoded)
    except EncodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


def _stored(record: DurableRecord, value: bytes | None, wall_ms: int) -> Record:
    return Record(value, key=encode_key(record), headers=encode_headers(record), timestamp=wall_ms)

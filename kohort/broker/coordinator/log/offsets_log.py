"""The groups' log: __consumer_offsets as the coordinator sees it.

Each group belongs to one partition, chosen as Kafka does, so that tools find it. The records of one
call form one batch, all or nothing.
"""

from collections.abc import Awaitable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kohort.groups.offsets.held_values import HeldValues
from kohort.groups.record_codec import RecordHeaders
from kohort.groups.records import DurableRecord
from kohort.protocol.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
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
    """Producer of the transaction that it belongs to; -1 for none."""
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
        """Append in order, as one batch; None if that is durable already. Pending offsets must all
        belong to one transaction, with no other records among them.

        The awaitable completes when the records are durable; cancelling it has no effect on them. A
        KafkaError, raised at once or by the awaitable, means that they are not in the log and never
        will be.
        """
        ...

    def read(self, partition: int) -> Iterator[Stored]:
        """Yield all durable records and markers, in order; `pending_resolver.PendingResolver`
        decides which records count.

        Raises:
            KafkaError: the rest of the partition cannot be read.
        """
        ...

    def prepare(self) -> Awaitable[None] | None:
        """Create the log if it does not exist, so that appends are immediate; None if it exists.

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
    """Determines which records of a partition count, which is read from its beginning.

    A record outside of transactions counts immediately. A transactional record counts from its
    commit marker on, but in its own place in the log: a later record with its key takes precedence.
    """

    def __init__(self) -> None:
        self.held: HeldValues[bytes, StoredRecord] = HeldValues()
        """Records of open transactions at this point of the log, by key."""

    def take(self, entry: Stored) -> Sequence[StoredRecord]:
        """Process the next entry; return records, each of which supersedes any earlier one of its
        key.
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

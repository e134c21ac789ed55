"""Decides what compaction keeps of a batch, by Kafka's rules (KIP-58, KIP-534).

A record is kept if no later record has its key; a tombstone (no value) is kept for
delete.retention.ms longer, counted from its first compaction, which stores the end of that time in
the batch as its delete horizon. If the horizon does not fit into the batch, the tombstone is kept,
and a later compaction tries again. Records without a key are removed, and those of aborted
transactions. Batches keep their offsets and producer data.

Kafka leaves gaps between the remaining batches. Kohort writes an empty batch of 61 bytes that
covers all offsets of a gap, so that every gap in a log is a sign of damage. Consumers advance over
it, as over the empty batches that Kafka keeps for the state of producers.

A log is compacted only below its last stable offset, where every transaction has ended. Records of
aborted transactions do not count as values of their keys. When nothing is left of a transaction,
its marker is kept for delete.retention.ms, like a tombstone: a reader that has seen a record of the
transaction must still find its outcome.

A compaction reads a log from its start, so that it finds a transaction's data before its marker, in
whichever segments they are.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.compaction.key_offsets import KeyOffsets, hash_of
from kohort.protocol.errors import EncodeError
from kohort.protocol.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
)
from kohort.protocol.records.builder import assemble
from kohort.protocol.records.compression import compress
from kohort.protocol.records.control import decode_marker
from kohort.protocol.records.record import decode_records, inflate, iter_spans, write_record
from kohort.protocol.records.varint import Buffer
from kohort.protocol.records.walk import RecordSpan


class AbortedRanges:
    """The aborted transactions in the offset range of one compaction; immutable."""

    __slots__ = ("_by_marker", "_by_producer")

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        """`aborted`: all aborted transactions with records in the range, even if their marker is
        after the range.
        """
        self._by_marker = {transaction.last_offset: transaction for transaction in aborted}
        self._by_producer: dict[int, list[AbortedTransaction]] = {}
        for _, transaction in sorted(self._by_marker.items()):
            self._by_producer.setdefault(transaction.producer_id, []).append(transaction)

    def holds(self, header: BatchHeader) -> bool:
        if not header.attributes & TRANSACTIONAL_BIT:
            return False
        of_producer = self._by_producer.get(header.producer_id)
        if of_producer is None:
            return False
        # A producer's transactions do not overlap: find the first that ends after the batch.
        number = bisect_right(
            of_producer, header.base_offset, key=lambda transaction: transaction.last_offset
        )
        return number < len(of_producer) and of_producer[number].first_offset <= header.base_offset

    def marked_at(self, offset: int) -> AbortedTransaction | None:
        return self._by_marker.get(offset)


class TransactionPass:
    """The transactions found so far in a pass over all batches of a log, in order."""

    __slots__ = ("_spent", "_with_data", "aborted")

    def __init__(self, aborted: AbortedRanges, with_data: Iterable[int] = ()) -> None:
        self.aborted = aborted
        self._with_data = set(with_data)
        """Producer ids with a transactional batch since their last marker."""
        self._spent: set[int] = set()
        """Offsets of markers whose transactions have no records left."""

    def copy(self) -> "TransactionPass":
        """Return a copy, so that a pass can start from this state more than once."""
        return TransactionPass(self.aborted, self._with_data)

    def note_data(self, header: BatchHeader) -> None:
        """Process a batch of records. An empty transactional batch counts too: on replay it opens a
        transaction.
        """
        if header.attributes & TRANSACTIONAL_BIT:
            self._with_data.add(header.producer_id)

    def is_spent(self, header: BatchHeader) -> bool:
        """Process a marker; return whether its transaction had no batch in this pass."""
        if header.producer_id in self._with_data:
            self._with_data.remove(header.producer_id)
            return False
        self._spent.add(header.base_offset)
        return True

    def index_entry(self, header: BatchHeader) -> AbortedTransaction | None:
        """Return the transaction index entry that a kept batch needs in the new segment; None
        unless it is the marker of an aborted transaction with records.
        """
        offset = header.base_offset
        return None if offset in self._spent else self.aborted.marked_at(offset)


_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_HORIZON_BIT = 0x40
_CODEC_MASK = 0x07


def note_keys(offsets: KeyOffsets, batch: Buffer, header: BatchHeader) -> None:
    """Add every key of a batch to the map, or raise DecodeError having added none."""
    if header.is_control or not header.record_count:
        return
    block = inflate(batch, header)
    # Parse all records first: an unreadable batch must not supersede readable ones.
    spans = list(iter_spans(block, header.record_count))
    base_offset = header.base_offset
    for span in spans:
        length = span.key_length
        if length >= 0:
            start = span.key_start
            offsets.note(hash_of(block[start : start + length]), base_offset + span.offset_delta)


class RetentionTerms(NamedTuple):
    """Parameters that determine which records one compaction retains."""

    offsets: KeyOffsets
    up_to_offset: int
    """Exclusive end of the offset range whose keys are in `offsets`: the base offset of a batch."""
    wall_ms: int
    delete_retention_ms: int
    last_offsets: Mapping[int, int]
    """Producer id -> last offset: the batch that ends there is kept, even if it is empty."""
    marked_epochs: Mapping[int, int]
    """Producer id -> epoch, for producers without batches: a marker of that epoch is kept, at least
    as an empty batch.
    """


def filter_batch(
    batch: Buffer, header: BatchHeader, terms: RetentionTerms, transactions: TransactionPass
) -> bytes | None:
    """Return the batch to write to the new segment, None to drop the batch. Raises DecodeError.

    A batch at or after `terms.up_to_offset` is kept unchanged; its tombstones get no delete
    horizon: the records they delete still exist, and a tombstone must outlast them.

    Args:
        transactions: the state of the pass before this batch; updated.
    """
    if header.base_offset >= terms.up_to_offset:
        return bytes(batch)
    if header.is_control:
        return _filter_marker(batch, header, terms, transactions)
    transactions.note_data(header)
    if header.record_count and not transactions.aborted.holds(header):
        return _filter_records(batch, header, terms)
    return _emptied(header) if _ends_a_producer(header, terms) else None


def _filter_records(batch: Buffer, header: BatchHeader, terms: RetentionTerms) -> bytes | None:
    block = inflate(batch, header)
    spans = list(iter_spans(block, header.record_count))
    kept = [span for span in spans if _stays(block, span, header, terms)]
    if not kept:
        return _emptied(header) if _ends_a_producer(header, terms) else None
    sets_horizon = not header.has_delete_horizon and any(span.value_length < 0 for span in kept)
    if len(kept) == len(spans) and not sets_horizon:
        return bytes(batch)
    if sets_horizon:
        marked = _with_horizon(batch, kept, header, terms)
        if marked is not None:
            return marked
        if len(kept) == len(spans):
            return bytes(batch)
    # No size check: a subset of a batch's records always fits into a batch.
    payload = b"".join(bytes(block[span.start : span.stop]) for span in kept)
    latest = header.base_timestamp + max(span.timestamp_delta for span in kept)
    return _assembled(header, len(kept), latest, payload)


def _filter_marker(
    batch: Buffer, header: BatchHeader, terms: RetentionTerms, transactions: TransactionPass
) -> bytes | None:
    is_last_trace = terms.marked_epochs.get(header.producer_id) == header.producer_epoch
    if not header.record_count:
        return bytes(batch) if is_last_trace else None
    if decode_marker(batch, header) is None or not transactions.is_spent(header):
        return bytes(batch)
    if not header.has_delete_horizon:
        spans = list(iter_spans(inflate(batch, header), header.record_count))
        marked = _with_horizon(batch, spans, header, terms)
        return bytes(batch) if marked is None else marked
    if header.base_timestamp > terms.wall_ms:
        return bytes(batch)
    return _emptied(header) if is_last_trace else None


def _stays(block: Buffer, span: RecordSpan, header: BatchHeader, terms: RetentionTerms) -> bool:
    length = span.key_length
    if length < 0:
        return False
    key_hash = hash_of(block[span.key_start : span.key_start + length])
    if terms.offsets.latest(key_hash) > header.base_offset + span.offset_delta:
        return False
    is_tombstone = span.value_length < 0
    return not (
        is_tombstone and header.has_delete_horizon and header.base_timestamp <= terms.wall_ms
    )


def _ends_a_producer(header: BatchHeader, terms: RetentionTerms) -> bool:
    return (
        header.has_producer_id and terms.last_offsets.get(header.producer_id) == header.last_offset
    )


def _with_horizon(
    batch: Buffer, kept: list[RecordSpan], header: BatchHeader, terms: RetentionTerms
) -> bytes | None:
    """Encode the kept records with the delete horizon as base timestamp, to which their timestamp
    deltas are relative.

    Returns None if the horizon, or the difference between it and a record's timestamp, exceeds 64
    bits: if delete.retention.ms is near its maximum, or a timestamp is 290 million years away. A
    horizon limited to 64 bits would remove the tombstone too early. In Kafka such a horizon
    overflows to a negative number, and is not stored.
    """
    horizon_ms = terms.wall_ms + terms.delete_retention_ms
    if horizon_ms > _INT64_MAX:
        return None
    offsets = {header.base_offset + span.offset_delta for span in kept}
    records = [record for record in decode_records(batch, header) if record.offset in offsets]
    payload = bytearray()
    try:
        for record in records:
            delta = record.timestamp - horizon_ms
            write_record(payload, record, delta, record.offset - header.base_offset)
        marked = header._replace(
            attributes=header.attributes | _HORIZON_BIT, base_timestamp=horizon_ms
        )
        latest = max(record.timestamp for record in records)
        return _assembled(marked, len(records), latest, payload)
    except EncodeError:
        return None


def _assembled(
    header: BatchHeader, record_count: int, latest: int, payload: bytes | bytearray
) -> bytes:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        latest = header.max_timestamp
    # A producer may have sent timestamp deltas that overflow 64 bits: topics that are not compacted
    # accept them, and may become compacted.
    latest = min(max(latest, _INT64_MIN), _INT64_MAX)
    changed = header._replace(record_count=record_count, max_timestamp=latest)
    return assemble(changed, compress(header.codec, payload))


def _emptied(header: BatchHeader) -> bytes:
    """Return an empty batch: the header alone, with the producer's id, epoch and sequence."""
    changed = header._replace(
        attributes=header.attributes & ~(_CODEC_MASK | _HORIZON_BIT),
        record_count=0,
        base_timestamp=NO_TIMESTAMP,
    )
    return assemble(changed, b"")


def filler(base_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """Create an empty batch that covers the offsets of removed records."""
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=0,
    )
    return assemble(header, b"")

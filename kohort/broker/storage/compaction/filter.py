"""What compaction keeps of a batch, by Kafka's rules (KIP-58, KIP-534).

A record stays if no later record has its key; a tombstone (no value) stays for delete.retention.ms
longer, counted from the first compaction that met it, which notes the end of that time in the
batch. Records without a key go, and those of aborted transactions. Batches keep their offsets and
what they say of their producer. A marker stays as long as anything of its transaction, and then for
delete.retention.ms longer (:mod:`kohort.broker.storage.compaction.transactions`).

Where Kafka leaves gaps between the batches that remain, here an empty batch of 61 bytes covers all
offsets of a gap, as Kafka's own empty batches do for producers. Consumers advance over it, and a
log never has a gap that is not damage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kohort.broker.storage.compaction.key_offsets import KeyOffsets, hash_of
from kohort.broker.storage.compaction.transactions import TransactionPass
from kohort.protocol.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
)
from kohort.protocol.records.builder import assemble
from kohort.protocol.records.compression import compress
from kohort.protocol.records.control import decode_marker
from kohort.protocol.records.record import (
    decode_records,
    inflate,
    iter_spans,
    write_record,
)
from kohort.protocol.records.varint import Buffer
from kohort.protocol.records.walk import RecordSpan

_HORIZON_BIT = 0x40
_CODEC_MASK = 0x07


def note_keys(offsets: KeyOffsets, batch: Buffer, header: BatchHeader) -> None:
    """Note every key of a batch, or none of them and DecodeError."""
    if header.is_control or not header.record_count:
        return
    block = inflate(batch, header)
    # All of them first: a batch that cannot be read must not outdate what can.
    spans = list(iter_spans(block, header.record_count))
    base_offset = header.base_offset
    for span in spans:
        length = span.key_length
        if length >= 0:
            start = span.key_start
            offsets.note(hash_of(block[start : start + length]), base_offset + span.offset_delta)


class RetentionTerms(NamedTuple):
    """What decides about the records of one compaction."""

    offsets: KeyOffsets
    up_to_offset: int
    """Where the range ends that `offsets` knows; at the start of a batch."""
    wall_ms: int
    delete_retention_ms: int
    last_offsets: Mapping[int, int]
    """Producer id -> last offset: the batch that ends there stays, be it empty."""
    marked_epochs: Mapping[int, int]
    """Producer id -> epoch, of those without a batch: a marker of it stays, be it empty."""


def filter_batch(
    batch: Buffer, header: BatchHeader, terms: RetentionTerms, transactions: TransactionPass
) -> bytes | None:
    """The batch as it is to be written again, None if nothing of it is. Raises DecodeError.

    A batch behind the range of the map stays exactly as it is. Above all its tombstones get no
    horizon: what they delete is still there, and a tombstone must outlast that.

    Args:
        transactions: what the pass has met before this batch, and notes of it.
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
    """The same for a batch with records that count."""
    block = inflate(batch, header)
    spans = list(iter_spans(block, header.record_count))
    kept = [span for span in spans if _stays(block, span, header, terms)]
    if not kept:
        return _emptied(header) if _ends_a_producer(header, terms) else None
    sets_horizon = not header.has_delete_horizon and any(span.value_length < 0 for span in kept)
    if len(kept) == len(spans) and not sets_horizon:
        return bytes(batch)
    if sets_horizon:
        return _with_horizon(batch, kept, header, terms.wall_ms + terms.delete_retention_ms)
    payload = b"".join(bytes(block[span.start : span.stop]) for span in kept)
    latest = header.base_timestamp + max(span.timestamp_delta for span in kept)
    return _assembled(header, len(kept), latest, payload)


def _filter_marker(
    batch: Buffer, header: BatchHeader, terms: RetentionTerms, transactions: TransactionPass
) -> bytes | None:
    """The same for a control batch."""
    is_last_trace = terms.marked_epochs.get(header.producer_id) == header.producer_epoch
    if not header.record_count:
        return bytes(batch) if is_last_trace else None
    if decode_marker(batch, header) is None or not transactions.is_spent(header):
        return bytes(batch)
    if not header.has_delete_horizon:
        spans = list(iter_spans(inflate(batch, header), header.record_count))
        return _with_horizon(batch, spans, header, terms.wall_ms + terms.delete_retention_ms)
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
    batch: Buffer, kept: list[RecordSpan], header: BatchHeader, horizon_ms: int
) -> bytes:
    """The horizon takes the place of the base timestamp, to which deltas are relative."""
    offsets = {header.base_offset + span.offset_delta for span in kept}
    records = [record for record in decode_records(batch, header) if record.offset in offsets]
    payload = bytearray()
    for record in records:
        delta = record.timestamp - horizon_ms
        write_record(payload, record, delta, record.offset - header.base_offset)
    marked = header._replace(attributes=header.attributes | _HORIZON_BIT, base_timestamp=horizon_ms)
    latest = max(record.timestamp for record in records)
    return _assembled(marked, len(records), latest, payload)


def _assembled(
    header: BatchHeader, record_count: int, latest: int, payload: bytes | bytearray
) -> bytes:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        latest = header.max_timestamp
    changed = header._replace(record_count=record_count, max_timestamp=latest)
    return assemble(changed, compress(header.codec, payload))


def _emptied(header: BatchHeader) -> bytes:
    """The header alone, which still says what its producer sent."""
    changed = header._replace(
        attributes=header.attributes & ~(_CODEC_MASK | _HORIZON_BIT),
        record_count=0,
        base_timestamp=NO_TIMESTAMP,
    )
    return assemble(changed, b"")


def filler(base_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """An empty batch that covers offsets whose records are gone."""
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

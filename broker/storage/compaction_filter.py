"""What compaction keeps of a batch, by Kafka's rules (KIP-58, KIP-534).

A record stays if no later record has its key; a tombstone (no value) stays for delete.retention.ms
longer, counted from the first compaction that met it, which notes the end of that time in the
batch. Records without a key go. Batches keep their offsets and what they say of their producer.

Where Kafka leaves gaps between the batches that remain, here an empty batch of 61 bytes covers all
offsets of a gap, as Kafka's own empty batches do for producers. Consumers advance over it, and a
log never has a gap that is not damage.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from protocol.lazy_dataclass import dataclass
from protocol.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
)
from protocol.records.builder import assemble
from protocol.records.compression import compress
from protocol.records.record import (
    decode_records,
    field_of,
    inflate,
    iter_spans,
    write_record,
)
from protocol.records.varint import Buffer
from protocol.records.walk import RecordSpan

KEY_BYTES_MAX = 16
"""Longer keys are represented by a hash of this size."""
KEY_MEMORY_BYTES = 200
"""What one entry of KeyOffsets takes, measured."""

_HORIZON_BIT = 0x40
_CODEC_MASK = 0x07


class KeyOffsets:
    """The latest offset of every key in a range of the log; bounded in memory."""

    __slots__ = ("_keys_max", "_offsets")

    def __init__(self, memory_bytes: int) -> None:
        self._keys_max = max(1, memory_bytes // KEY_MEMORY_BYTES)
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room_for(self, count: int) -> bool:
        """Whether `count` more keys are within the bound."""
        return not self._offsets or len(self._offsets) + count <= self._keys_max

    def note_batch(self, batch: Buffer, header: BatchHeader) -> None:
        """Note every key of a batch. Raises DecodeError."""
        if header.is_control or not header.record_count:
            return
        block = inflate(batch, header)
        for span in iter_spans(block, header.record_count):
            key = _key_of(block, span)
            if key is not None:
                self._offsets[key] = header.base_offset + span.offset_delta

    def has_later(self, key: bytes, offset: int) -> bool:
        """Whether a record behind `offset` has the key."""
        return self._offsets.get(key, -1) > offset


def _key_of(block: Buffer, span: RecordSpan) -> bytes | None:
    key = field_of(block, span.key_start, span.key_length)
    if key is None or len(key) < KEY_BYTES_MAX:
        return key
    return blake2b(key, digest_size=KEY_BYTES_MAX).digest()


@dataclass(frozen=True, slots=True)
class RetentionTerms:
    """What decides about the records of one compaction."""

    offsets: KeyOffsets
    wall_ms: int
    delete_retention_ms: int
    last_offsets: Mapping[int, int]
    """Producer id -> last offset: the batch that ends there stays, be it empty."""


def filter_batch(batch: Buffer, header: BatchHeader, terms: RetentionTerms) -> bytes | None:
    """The batch as it is to be written again, None if nothing of it is. Raises DecodeError."""
    if header.is_control:
        return bytes(batch)
    if not header.record_count:
        return bytes(batch) if _ends_a_producer(header, terms) else None
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


def _stays(block: Buffer, span: RecordSpan, header: BatchHeader, terms: RetentionTerms) -> bool:
    key = _key_of(block, span)
    if key is None or terms.offsets.has_later(key, header.base_offset + span.offset_delta):
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

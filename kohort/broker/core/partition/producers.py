"""What a partition remembers of idempotent producers, and what it lets them send next (KIP-98).

Producers number their records per partition. The partition keeps the last five batches of each,
as a client has at most five requests in flight: a batch sent again is answered with the offset it
got the first time, a gap is refused, and a producer that was replaced (lower epoch) is fenced.

Pure: nothing is appended here and time is an argument. `check` judges, `note_appended` records, and
both are used alike for live batches and when a log is read again after a start. State is forgotten
after producer.id.expiration.ms without an append by the broker's clock. (Kafka goes by the records'
own timestamps, by which a producer of old records is forgotten while it is still sending.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.batch import NO_PRODUCER_EPOCH, SEQUENCE_MODULUS, BatchHeader

BATCHES_REMEMBERED = 5
PRODUCERS_MAX = 100_000
"""Per partition. Beyond it the one that was quiet longest is forgotten, as if it had expired: ids
are free to invent, and this is about 50 MB. Kafka has no limit here."""


class AppendedBatch(NamedTuple):
    """A batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int
    """When it was appended."""


class ProducerSnapshot(NamedTuple):
    """One producer in the fields of Kafka's producer snapshot files, which hold one batch each."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    """Offset of the last record of the last batch, relative to the start of that batch."""
    timestamp: int
    coordinator_epoch: int = -1
    current_transaction_first_offset: int = -1
    """-1: none open."""


@dataclass(slots=True, eq=False)
class ProducerEntry:
    """One producer as this partition knows it."""

    producer_epoch: int
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))
    """Oldest first, all of the current epoch; never empty."""

    @property
    def last(self) -> AppendedBatch:
        """The youngest batch."""
        return self.batches[-1]

    def find(self, first_sequence: int, last_sequence: int) -> AppendedBatch | None:
        """The remembered batch with exactly these sequences."""
        for batch in reversed(self.batches):
            if (batch.first_sequence, batch.last_sequence) == (first_sequence, last_sequence):
                return batch
        return None


class ProducerState:
    """All producers of one partition."""

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers_max = producers_max
        self._entries: dict[int, ProducerEntry] = {}
        """By producer id, in the order of their last append."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """What is known of a producer; None if nothing is, or no longer."""
        return self._entries.get(producer_id)

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """Whether a batch may be appended next.

        Returns:
            None if it may; the batch in the log that it repeats if it must not be appended again.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH for a producer that was replaced,
                OUT_OF_ORDER_SEQUENCE_NUMBER for a gap or a repetition too old to be known.
        """
        if not header.has_producer_id:
            return None
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.producer_epoch == NO_PRODUCER_EPOCH:
            return None
        if header.producer_epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.producer_epoch},"
                f" not {header.producer_epoch}",
            )
        first = header.base_sequence
        if header.producer_epoch > entry.producer_epoch:
            expected = 0
        else:
            duplicate = entry.find(first, header.last_sequence)
            if duplicate is not None:
                return duplicate
            expected = (entry.last.last_sequence + 1) % SEQUENCE_MODULUS
        if first != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {first}, expected {expected}",
            )
        return None

    def note_appended(self, header: BatchHeader, *, base_offset: int, timestamp: int) -> None:
        """Remember a batch that is in the log at `base_offset`, appended at `timestamp`.

        It is not checked again: what the log holds was accepted, and a log that lost its beginning
        continues a producer in the middle.
        """
        if not header.has_producer_id or header.is_control:
            return
        entry = self._entries.pop(header.producer_id, None)
        if entry is None or entry.producer_epoch != header.producer_epoch:
            entry = ProducerEntry(header.producer_epoch)
        entry.batches.append(
            AppendedBatch(
                header.base_sequence,
                header.last_sequence,
                base_offset,
                base_offset + header.last_offset_delta,
                timestamp,
            )
        )
        self._put(header.producer_id, entry)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without an append for `expiration_ms`; how many that were."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if now_ms - entry.last.timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def clear(self) -> None:
        """Forget everything, as before a log is read again."""
        self._entries.clear()

    def snapshot(self) -> list[ProducerSnapshot]:
        """Every producer with its last batch, which is all that survives a start."""
        return [
            ProducerSnapshot(
                producer_id,
                entry.producer_epoch,
                entry.last.last_sequence,
                entry.last.last_offset,
                entry.last.last_offset - entry.last.base_offset,
                entry.last.timestamp,
            )
            for producer_id, entry in self._entries.items()
        ]

    def restore(self, snapshot: Iterable[ProducerSnapshot]) -> None:
        """Replace everything by what a snapshot holds, in its order."""
        self._entries.clear()
        for taken in snapshot:
            entry = ProducerEntry(taken.producer_epoch)
            entry.batches.append(
                AppendedBatch(
                    (taken.last_sequence - taken.offset_delta) % SEQUENCE_MODULUS,
                    taken.last_sequence,
                    taken.last_offset - taken.offset_delta,
                    taken.last_offset,
                    taken.timestamp,
                )
            )
            self._put(taken.producer_id, entry)

    def _put(self, producer_id: int, entry: ProducerEntry) -> None:
        self._entries[producer_id] = entry
        if len(self._entries) > self._producers_max:
            del self._entries[next(iter(self._entries))]

"""The producer state of a partition, and what each producer may send next (KIP-98, KIP-890).

Producers number their records per partition. The partition remembers the last five batches of each,
as a client has at most five requests in flight: a retried batch is answered with its original
offset, a gap is rejected, and a replaced producer (lower epoch) is fenced.

A transactional batch opens a transaction of its producer here, and a marker of the coordinator ends
it. A marker with a higher epoch fences requests of the old epoch that are still in flight.

Pure: nothing is appended here and time is an argument. `check` and `check_marker` decide,
`note_appended` and `note_marker` record; the latter two are used both for live batches and when a
log is read at a start. State is dropped after producer.id.expiration.ms without an append by the
broker's clock, but never while a transaction is open. (Kafka uses the records' own timestamps, so
it may drop a producer that is still sending, if its records are old.)
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from kohort.broker.core.partition.transactions import (
    AbortedTransaction,
    OpenTransaction,
    TransactionSpans,
)
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.batch import (
    CONTROL_BIT,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    SEQUENCE_MODULUS,
    TRANSACTIONAL_BIT,
    BatchHeader,
)

BATCHES_REMEMBERED = 5
PRODUCERS_MAX = 100_000
"""Maximum producers per partition. Above it, the least recently active one is dropped, as if it had
expired: clients can invent ids, and this is about 50 MB. Kafka has no limit here. Producers with an
open transaction are kept; the coordinator bounds their number."""
_LOOKED_AT_MAX: Final = 8
"""Maximum producers examined to find one that may be dropped: one without an open transaction."""

NO_COORDINATOR_EPOCH: Final = -1
NO_TRANSACTION: Final = -1
"""Used in place of the first offset if no transaction is open."""
EXHAUSTED_EPOCH: Final = 32_767
"""An epoch that only markers have; the last epoch that a producer can use is 32766."""
EPOCH_RISES_SINCE: Final = 2
"""transaction.version from which a marker has a higher epoch than its transaction's batches."""


class AppendedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class UnendedTransactionError(KafkaError):
    """A batch of a higher epoch would continue an open transaction of a lower one, whose marker is
    missing (an internal error).
    """


class ProducerSnapshot(NamedTuple):
    """One producer as in Kafka's producer snapshot files, which have only its last batch."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """-1 without a batch: a marker raised the epoch, or there were only markers."""
    last_offset: int
    """-1 without a batch."""
    offset_delta: int
    """Offset of the last record of the last batch, relative to the start of that batch."""
    timestamp: int
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """-1 before the first marker."""
    current_transaction_first_offset: int = NO_TRANSACTION
    """-1: no open transaction."""


@dataclass(slots=True, eq=False)
class ProducerEntry:
    producer_epoch: int
    last_ms: int
    """When its last batch or marker was appended."""
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))
    """The last batches, oldest first, all of the current epoch; empty if there are only markers
    since that epoch began.
    """
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """The coordinator's epoch in the last marker."""
    transaction_first_offset: int = NO_TRANSACTION

    def find(self, first_sequence: int, last_sequence: int) -> AppendedBatch | None:
        """Return the remembered batch with exactly these sequences."""
        for batch in reversed(self.batches):
            if (batch.first_sequence, batch.last_sequence) == (first_sequence, last_sequence):
                return batch
        return None


class ProducerState:
    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers_max = producers_max
        self._entries: dict[int, ProducerEntry] = {}
        """Entries by producer id, in the order of their last append."""
        self.spans: Final = TransactionSpans()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def check(
        self,
        header: BatchHeader,
        *,
        is_first_of_epoch_zero: bool = False,
        is_numbered: bool = True,
    ) -> AppendedBatch | None:
        """Check whether a batch of records may be appended next.

        Args:
            is_first_of_epoch_zero: whether the first sequence of an epoch must be 0 even for an
                unknown producer, as in transactions of version 2 (KIP-890). Producers of older
                versions may continue from state that the partition has dropped.
            is_numbered: false for batches that the broker itself writes for a producer, as the
                group coordinator does: their sequences are meaningless, and none is a duplicate.

        Returns:
            None if the batch may be appended; otherwise the batch in the log that it duplicates.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH for a producer that was replaced,
                OUT_OF_ORDER_SEQUENCE_NUMBER for a gap or a duplicate too old to be known,
                INVALID_TXN_STATE for a non-transactional batch while a transaction of the producer
                is open.
            UnendedTransactionError: KAFKA_STORAGE_ERROR for a transactional batch of a higher epoch
                while a transaction of a lower one is open.
        """
        if header.producer_id <= NO_PRODUCER_ID:
            return None
        entry = self._entries.get(header.producer_id)
        first = header.base_sequence
        if entry is None or entry.producer_epoch == NO_PRODUCER_EPOCH:
            expected = 0 if is_first_of_epoch_zero else first
        elif header.producer_epoch < entry.producer_epoch:
            raise _fenced(header.producer_id, entry.producer_epoch, header.producer_epoch)
        elif not is_numbered:
            expected = first
        elif header.producer_epoch > entry.producer_epoch or not entry.batches:
            expected = 0
        else:
            duplicate = entry.find(first, header.last_sequence)
            if duplicate is not None:
                return duplicate
            expected = (entry.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS
        if first != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {first}, expected {expected}",
            )
        if entry is not None and entry.transaction_first_offset != NO_TRANSACTION:
            _check_goes_on(entry, header)
        return None

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        """Check whether a marker may be appended. A marker is accepted even if no transaction is
        open; it then ends nothing.

        Args:
            transaction_version: 2 or more if the epoch rises with every transaction.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED: there is a later
                marker already, and the transaction has ended.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        if producer_epoch < entry.producer_epoch or (
            transaction_version >= EPOCH_RISES_SINCE
            and producer_epoch == entry.producer_epoch
            and producer_epoch != EXHAUSTED_EPOCH
            # A marker that repeats the one that ended the transaction is accepted.
            and entry.transaction_first_offset != NO_TRANSACTION
        ):
            raise _fenced(producer_id, entry.producer_epoch, producer_epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator of epoch {entry.coordinator_epoch} has marked producer"
                f" {producer_id}, which is later than {coordinator_epoch}",
            )

    def note_appended(self, header: BatchHeader, *, base_offset: int, timestamp: int) -> None:
        """Record a batch of records that is in the log at `base_offset`, appended at `timestamp`.

        The batch is not checked again: batches in the log were accepted, and in a log that lost its
        start, a producer's sequences begin anywhere. Control batches are for `note_marker`.
        """
        producer_id = header.producer_id
        if producer_id <= NO_PRODUCER_ID or header.attributes & CONTROL_BIT:
            return
        entry = self._entries.pop(producer_id, None)
        if entry is None:
            entry = ProducerEntry(header.producer_epoch, timestamp)
        else:
            entry.last_ms = timestamp
            if entry.producer_epoch != header.producer_epoch:
                entry.producer_epoch = header.producer_epoch
                entry.batches.clear()
        entry.batches.append(
            AppendedBatch(
                header.base_sequence,
                header.last_sequence,
                base_offset,
                base_offset + header.last_offset_delta,
                timestamp,
            )
        )
        if (
            header.attributes & TRANSACTIONAL_BIT
            and entry.transaction_first_offset == NO_TRANSACTION
        ):
            entry.transaction_first_offset = base_offset
            self.spans.begin(base_offset, producer_id)
        self._put(producer_id, entry)

    def note_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        offset: int,
        timestamp: int,
    ) -> AbortedTransaction | None:
        """Record a marker that is in the log. If it aborts a transaction, return the entry for the
        index of aborted transactions; otherwise None.
        """
        entry = self._note_epoch(producer_id, producer_epoch, timestamp)
        entry.coordinator_epoch = coordinator_epoch
        first_offset = entry.transaction_first_offset
        if first_offset == NO_TRANSACTION:
            return None
        entry.transaction_first_offset = NO_TRANSACTION
        last_stable_offset = self.spans.end(first_offset, offset)
        if is_commit:
            return None
        return AbortedTransaction(producer_id, first_offset, offset, last_stable_offset)

    def note_emptied_marker(self, header: BatchHeader, *, timestamp: int) -> None:
        """Record the empty batch that compaction left of a marker: the producer's epoch is at least
        that of the batch.

        Kafka loses the epoch when it reads such a log again, and would let a fenced producer send.
        """
        known = self._entries.get(header.producer_id)
        if known is None or known.producer_epoch < header.producer_epoch:
            self._note_epoch(header.producer_id, header.producer_epoch, timestamp)

    def _note_epoch(self, producer_id: int, producer_epoch: int, timestamp: int) -> ProducerEntry:
        """Update the entry of a producer for a marker; a change of the epoch drops its batches."""
        entry = self._entries.pop(producer_id, None)
        if entry is None:
            entry = ProducerEntry(producer_epoch, timestamp)
        elif entry.producer_epoch != producer_epoch:
            entry.producer_epoch = producer_epoch
            entry.batches.clear()
        entry.last_ms = timestamp
        self._put(producer_id, entry)
        return entry

    @property
    def first_open_last_ms(self) -> int | None:
        """When the producer of the first open transaction last appended; None if none is open."""
        producer_id = next(iter(self.spans.open.values()), None)
        return None if producer_id is None else self._entries[producer_id].last_ms

    def open_transactions(self, at_most: int | None = None) -> list[OpenTransaction]:
        """Return the open transactions, or the first `at_most`, by first offset."""
        entries = self._entries
        return [
            OpenTransaction(
                producer_id,
                entries[producer_id].producer_epoch,
                first_offset,
                entries[producer_id].last_ms,
            )
            for first_offset, producer_id in islice(self.spans.open.items(), at_most)
        ]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Drop producers without an append for `expiration_ms`; return how many."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if now_ms - entry.last_ms >= expiration_ms
            and entry.transaction_first_offset == NO_TRANSACTION
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def clear(self) -> None:
        self._entries.clear()
        self.spans.clear()

    def snapshot(self) -> list[ProducerSnapshot]:
        """Return every producer with its last batch: the state that survives a restart."""
        return [_taken(producer_id, entry) for producer_id, entry in self._entries.items()]

    def restore(self, snapshot: Iterable[ProducerSnapshot]) -> None:
        """Replace all state with a snapshot, and keep the order of its producers."""
        self.clear()
        opened = []
        for taken in snapshot:
            entry = ProducerEntry(
                taken.producer_epoch,
                taken.timestamp,
                coordinator_epoch=taken.coordinator_epoch,
                transaction_first_offset=taken.current_transaction_first_offset,
            )
            if taken.last_offset >= 0:
                entry.batches.append(
                    AppendedBatch(
                        (taken.last_sequence - taken.offset_delta) % SEQUENCE_MODULUS,
                        taken.last_sequence,
                        taken.last_offset - taken.offset_delta,
                        taken.last_offset,
                        taken.timestamp,
                    )
                )
            if entry.transaction_first_offset != NO_TRANSACTION:
                opened.append((entry.transaction_first_offset, taken.producer_id))
            self._put(taken.producer_id, entry)
        for first_offset, producer_id in sorted(opened):
            self.spans.begin(first_offset, producer_id)

    def recall_batches(self, earlier: "ProducerState") -> None:
        """Restore the recent batches of each producer; a snapshot has only the last batch.

        Args:
            earlier: the state built from the log's last batches before the snapshot. A producer
                whose last batch is not the same in both keeps the state of the snapshot.
        """
        for producer_id, entry in self._entries.items():
            known = earlier.get(producer_id)
            if (
                known is not None
                and entry.batches
                and known.batches
                and known.producer_epoch == entry.producer_epoch
                and known.batches[-1].last_offset == entry.batches[-1].last_offset
            ):
                entry.batches = known.batches

    def _put(self, producer_id: int, entry: ProducerEntry) -> None:
        self._entries[producer_id] = entry
        if len(self._entries) > self._producers_max:
            self._forget_one()

    def _forget_one(self) -> None:
        """Drop the least recently active producer without an open transaction; none if the first
        `_LOOKED_AT_MAX` producers all have one.
        """
        for _ in range(_LOOKED_AT_MAX):
            producer_id = next(iter(self._entries))
            entry = self._entries.pop(producer_id)
            if entry.transaction_first_offset == NO_TRANSACTION:
                return
            # Moved to the end, so that the next call does not examine this producer again.
            self._entries[producer_id] = entry


def _taken(producer_id: int, entry: ProducerEntry) -> ProducerSnapshot:
    last = entry.batches[-1] if entry.batches else None
    return ProducerSnapshot(
        producer_id,
        entry.producer_epoch,
        NO_SEQUENCE if last is None else last.last_sequence,
        -1 if last is None else last.last_offset,
        0 if last is None else last.last_offset - last.base_offset,
        entry.last_ms,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )


def _check_goes_on(entry: ProducerEntry, header: BatchHeader) -> None:
    if not header.attributes & TRANSACTIONAL_BIT:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} has a transaction open and sent a batch outside it",
        )
    if header.producer_epoch > entry.producer_epoch:
        raise UnendedTransactionError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"a transaction of producer {header.producer_id} and epoch {entry.producer_epoch} is"
            f" open from {entry.transaction_first_offset}, and a batch of epoch"
            f" {header.producer_epoch} has come",
        )


def _fenced(producer_id: int, known_epoch: int, epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} has epoch {known_epoch}, not {epoch}",
    )

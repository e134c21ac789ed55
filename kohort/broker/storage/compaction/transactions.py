"""Transactions in compaction, by Kafka's rules (KIP-98, KIP-534).

A log is compacted only below its last stable offset, where every transaction is decided. Records of
aborted transactions do not count as values of their keys, and are removed. A marker is removed when
nothing is left of its transaction, but as late as tombstones: a reader that has seen a record of
the transaction must still find its outcome.

A run goes through a log from its start, so that the data of a transaction is met before its marker,
in whichever segments they are.
"""

from bisect import bisect_right
from collections.abc import Iterable

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.protocol.records.batch import TRANSACTIONAL_BIT, BatchHeader


class AbortedRanges:
    """The aborted transactions in the range of a run; immutable."""

    __slots__ = ("_by_marker", "_by_producer")

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        """`aborted`: all with records in the range of the run, even if their marker is after it."""
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
    """The state of a pass over the batches of a log, in order."""

    __slots__ = ("_spent", "_with_data", "aborted")

    def __init__(self, aborted: AbortedRanges, with_data: Iterable[int] = ()) -> None:
        self.aborted = aborted
        self._with_data = set(with_data)
        """Producer ids with a transactional batch since their last marker."""
        self._spent: set[int] = set()
        """Offsets of markers whose transactions have no records left."""

    def copy(self) -> "TransactionPass":
        """Return a copy, to be able to continue from here more than once."""
        return TransactionPass(self.aborted, self._with_data)

    def note_data(self, header: BatchHeader) -> None:
        """Process a batch of records: empty or not, it opens a transaction when it is replayed."""
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
        """Return the index entry of the new segment for a batch that is kept."""
        offset = header.base_offset
        return None if offset in self._spent else self.aborted.marked_at(offset)

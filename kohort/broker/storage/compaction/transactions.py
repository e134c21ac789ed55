"""What compaction has to know of transactions, by Kafka's rules (KIP-98, KIP-534).

A log is compacted below its last stable offset only, where every transaction is decided. Records of
those that were aborted are no values of their keys, and go. A marker goes when nothing is left of
its transaction, but as late as tombstones do: a reader that has seen a record of the transaction
must still find what became of it.

A run passes over a log from its start, so that the data of a transaction is met before its marker,
in whichever segments they lie.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.protocol.records.batch import TRANSACTIONAL_BIT, BatchHeader


class AbortedRanges:
    """The aborted transactions that a run may meet; unchanging."""

    __slots__ = ("_by_marker", "_by_producer")

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        """All with records in the range of the run, though their marker lie behind it."""
        self._by_marker = {one.last_offset: one for one in aborted}
        self._by_producer: dict[int, list[AbortedTransaction]] = {}
        for _, one in sorted(self._by_marker.items()):
            self._by_producer.setdefault(one.producer_id, []).append(one)

    def holds(self, header: BatchHeader) -> bool:
        """Whether a batch of records belongs to one of them."""
        if not header.attributes & TRANSACTIONAL_BIT:
            return False
        of_producer = self._by_producer.get(header.producer_id)
        if of_producer is None:
            return False
        # A producer's transactions follow each other: the first that ends behind the batch.
        number = bisect_right(of_producer, header.base_offset, key=lambda one: one.last_offset)
        return number < len(of_producer) and of_producer[number].first_offset <= header.base_offset

    def marked_at(self, offset: int) -> AbortedTransaction | None:
        """The one whose marker lies there."""
        return self._by_marker.get(offset)


class TransactionPass:
    """The state of a pass over the batches of a log, in order."""

    __slots__ = ("_spent", "_with_data", "aborted")

    def __init__(self, aborted: AbortedRanges, with_data: Iterable[int] = ()) -> None:
        self.aborted = aborted
        self._with_data = set(with_data)
        """Producer ids of which a transactional batch was met since their last marker."""
        self._spent: set[int] = set()
        """Offsets of markers of whose transactions nothing is left."""

    def copy(self) -> TransactionPass:
        """To go on from here more than once."""
        return TransactionPass(self.aborted, self._with_data)

    def note_data(self, header: BatchHeader) -> None:
        """A batch of records was met: empty or not, it opens a transaction when it is replayed."""
        if header.attributes & TRANSACTIONAL_BIT:
            self._with_data.add(header.producer_id)

    def is_spent(self, header: BatchHeader) -> bool:
        """A marker was met: whether its transaction had no batch in this pass."""
        if header.producer_id in self._with_data:
            self._with_data.remove(header.producer_id)
            return False
        self._spent.add(header.base_offset)
        return True

    def index_entry(self, header: BatchHeader) -> AbortedTransaction | None:
        """What the index of the new segment needs of a batch that is kept."""
        offset = header.base_offset
        return None if offset in self._spent else self.aborted.marked_at(offset)

"""The committed positions of one group, and those that wait for the end of a transaction.

Holds only what is durable; what is still being written is not visible here. All records of a group
lie in one partition and are applied here in their order, live and on replay; see `held` for which
of them holds.
"""

from collections.abc import Collection, Iterator, Mapping

from kohort.broker.core.group.offsets.held import HeldValues
from kohort.broker.core.group.records import OffsetRecord, OffsetTombstone, PendingOffset
from kohort.broker.core.group.requests import CommittedOffset, TopicPartition


class OffsetTable:
    """Positions by topic and partition."""

    __slots__ = ("_committed", "_held", "count")

    def __init__(self) -> None:
        self._committed: dict[str, dict[int, CommittedOffset]] = {}
        self._held: HeldValues[TopicPartition, CommittedOffset] = HeldValues()
        self.count = 0
        """Committed positions."""

    def __bool__(self) -> bool:
        return bool(self._committed or self._held.by_producer)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """The committed position of a partition, None if nothing was committed."""
        partitions = self._committed.get(topic)
        return None if partitions is None else partitions.get(partition)

    def topics(self) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """All of it; not to be kept across steps."""
        return self._committed

    def has_any(self, topics: Collection[str]) -> bool:
        """Is there a position of one of these topics, be it of an open transaction?"""
        return any(topic in self._committed for topic in topics) or any(
            place.topic in topics for place, _ in self.pending_items()
        )

    def items(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        for topic, partitions in self._committed.items():
            for partition, committed in partitions.items():
                yield TopicPartition(topic, partition), committed

    # Changes.

    def apply(self, record: OffsetRecord | PendingOffset | OffsetTombstone) -> None:
        """Let the table be what a record says: the one place where positions change, live and on
        replay, but for `end_transaction`. Records come in the order in which they lie in the log.
        """
        if isinstance(record, OffsetRecord):
            partitions = self._committed.setdefault(record.topic, {})
            self.count += record.partition not in partitions
            partitions[record.partition] = record.committed
            if self._held.by_producer:
                self._held.overtake(TopicPartition(record.topic, record.partition))
            return
        place = TopicPartition(record.topic, record.partition)
        if isinstance(record, PendingOffset):
            self._held.hold(record.producer_id, place, record.committed)
        else:
            self._remove(place)
            self._held.drop(place)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Make the producer's pending positions visible where they hold; or drop them."""
        for place, committed in self._held.end(producer_id, commit=commit):
            partitions = self._committed.setdefault(place.topic, {})
            self.count += place.partition not in partitions
            partitions[place.partition] = committed

    def _remove(self, place: TopicPartition) -> None:
        partitions = self._committed.get(place.topic, {})
        if partitions.pop(place.partition, None) is not None:
            self.count -= 1
            if not partitions:
                del self._committed[place.topic]

    # Positions that wait for the end of a transaction.

    def pending_items(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """What open transactions hold, a partition as often as there are transactions with it;
        first what will not hold whatever becomes of them.
        """
        yield from self._held.items(overtaken=True)
        yield from self._held.items(overtaken=False)

    def pending_producers(self) -> list[int]:
        """The ids of producers whose open transactions hold positions."""
        return list(self._held.by_producer)

    @property
    def has_pending(self) -> bool:
        """Are there positions that wait for the end of a transaction?"""
        return bool(self._held.by_producer)

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Is a transaction with a position for this partition still open?"""
        return bool(self._held.by_producer) and self._held.has(TopicPartition(topic, partition))

"""The committed positions of one group, and those that wait for the end of a transaction.

Holds only what is durable; what is still being written is not visible here.

Of the records of a position, the one that lies latest in the log holds, whichever transaction ends
first. All records of a group lie in one partition and are applied here in their order, live and on
replay; so it is enough to remember, of those that wait, which came before which. One that a later
record has overtaken never holds, but until its transaction ends the position is not stable.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from kohort.broker.core.group.records import OffsetRecord, OffsetTombstone, PendingOffset
from kohort.broker.core.group.requests import CommittedOffset, TopicPartition


class _Held(NamedTuple):
    """A position that waits for the end of a transaction."""

    order: int
    """Rises from record to record."""
    committed: CommittedOffset | None
    """None if a later record holds already."""


class OffsetTable:
    """Positions by topic and partition."""

    __slots__ = ("_committed", "_held", "_order", "count")

    def __init__(self) -> None:
        self._committed: dict[str, dict[int, CommittedOffset]] = {}
        self._held: dict[int, dict[TopicPartition, _Held]] = {}
        """What waits, by producer id; none without positions."""
        self._order = 0
        self.count = 0
        """Committed positions."""

    def __bool__(self) -> bool:
        return bool(self._committed or self._held)

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
            place.topic in topics for positions in self._held.values() for place in positions
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
            if self._held:
                self._overtake(TopicPartition(record.topic, record.partition), self._order + 1)
        elif isinstance(record, PendingOffset):
            self._order += 1
            positions = self._held.setdefault(record.producer_id, {})
            place = TopicPartition(record.topic, record.partition)
            positions[place] = _Held(self._order, record.committed)
        else:
            self._remove(record.topic, record.partition)
            self.drop_pending(record.topic, record.partition)

    def end_transaction(self, producer_id: int, *, commit: bool) -> int:
        """Make the producer's pending positions visible where no later record holds, or drop them;
        returns how many there were.
        """
        positions = self._held.pop(producer_id, {})
        if commit:
            for place, (order, committed) in positions.items():
                if committed is not None:
                    partitions = self._committed.setdefault(place.topic, {})
                    self.count += place.partition not in partitions
                    partitions[place.partition] = committed
                    self._overtake(place, order)
        return len(positions)

    def _overtake(self, place: TopicPartition, order: int) -> None:
        """A record of this order holds now: what came before it never will."""
        for positions in self._held.values():
            held = positions.get(place)
            if held is not None and held.order < order:
                positions[place] = _Held(held.order, None)

    def _remove(self, topic: str, partition: int) -> None:
        partitions = self._committed.get(topic, {})
        if partitions.pop(partition, None) is not None:
            self.count -= 1
            if not partitions:
                del self._committed[topic]

    # Positions that wait for the end of a transaction.

    def pending_items(self) -> Iterator[tuple[TopicPartition, CommittedOffset | None]]:
        """What open transactions hold, a partition as often as there are transactions with it;
        None for a position that a later record has overtaken.
        """
        for positions in self._held.values():
            for place, held in positions.items():
                yield place, held.committed

    def pending_producers(self) -> list[int]:
        """The ids of producers whose open transactions hold positions."""
        return list(self._held)

    @property
    def has_pending(self) -> bool:
        """Are there positions that wait for the end of a transaction?"""
        return bool(self._held)

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Is a transaction with a position for this partition still open?"""
        if not self._held:
            return False
        place = TopicPartition(topic, partition)
        return any(place in positions for positions in self._held.values())

    def drop_pending(self, topic: str, partition: int) -> None:
        """Forget what open transactions hold for the partition."""
        place = TopicPartition(topic, partition)
        for producer_id, positions in list(self._held.items()):
            positions.pop(place, None)
            if not positions:
                del self._held[producer_id]

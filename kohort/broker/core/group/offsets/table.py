"""The committed positions of one group, and those that wait for the end of a transaction.

Holds only what is durable; what is still being written is not visible here.
"""

from collections.abc import Collection, Iterator, Mapping

from kohort.broker.core.group.records import OffsetRecord, OffsetTombstone
from kohort.broker.core.group.requests import CommittedOffset, TopicPartition


class OffsetTable:
    """Positions by topic and partition."""

    __slots__ = ("_committed", "_transactional", "count")

    def __init__(self) -> None:
        self._committed: dict[str, dict[int, CommittedOffset]] = {}
        self._transactional: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        self.count = 0
        """Committed positions."""

    def __bool__(self) -> bool:
        return bool(self._committed or self._transactional)

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
            partition.topic in topics for partition, _ in self.transactional_items()
        )

    def items(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        for topic, partitions in self._committed.items():
            for partition, committed in partitions.items():
                yield TopicPartition(topic, partition), committed

    def apply(self, record: OffsetRecord | OffsetTombstone) -> None:
        """Let the table be what a record says: the one place where positions change, live and on
        replay.
        """
        if isinstance(record, OffsetRecord):
            partitions = self._committed.setdefault(record.topic, {})
            self.count += record.partition not in partitions
            partitions[record.partition] = record.committed
        else:
            self.remove(record.topic, record.partition)

    def set(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        partitions = self._committed.setdefault(topic, {})
        self.count += partition not in partitions
        partitions[partition] = committed

    def remove(self, topic: str, partition: int) -> bool:
        """False if there was nothing."""
        partitions = self._committed.get(topic, {})
        if partitions.pop(partition, None) is None:
            return False
        self.count -= 1
        if not partitions:
            del self._committed[topic]
        return True

    # Positions that become visible when their transaction commits.

    def set_transactional(
        self, producer_id: int, topic: str, partition: int, committed: CommittedOffset
    ) -> None:
        positions = self._transactional.setdefault(producer_id, {})
        positions[TopicPartition(topic, partition)] = committed

    def end_transaction(self, producer_id: int, *, commit: bool) -> int:
        """Make the producer's pending positions visible, or drop them; returns how many."""
        positions = self._transactional.pop(producer_id, {})
        if commit:
            for (topic, partition), committed in positions.items():
                self.set(topic, partition, committed)
        return len(positions)

    def transactional_items(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """What open transactions hold."""
        for positions in self._transactional.values():
            yield from positions.items()

    @property
    def has_transactional(self) -> bool:
        """Are there positions that wait for the end of a transaction?"""
        return bool(self._transactional)

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Is a transaction with a position for this partition still open?"""
        if not self._transactional:
            return False
        key = TopicPartition(topic, partition)
        return any(key in positions for positions in self._transactional.values())

    def remove_transactional(self, topic: str, partition: int) -> None:
        """Drop what open transactions hold for the partition, which is being deleted."""
        key = TopicPartition(topic, partition)
        for producer_id, positions in list(self._transactional.items()):
            positions.pop(key, None)
            if not positions:
                del self._transactional[producer_id]

"""The committed offsets of one group, and those that wait for the end of a transaction.

Contains only what is durable: offsets still being written are invisible here. All records of a
group are in one partition and are applied here in order, live and on replay; `HeldValues`
determines which record of a key is valid.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping
from operator import itemgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

from kohort.groups.config import GroupConfig
from kohort.groups.membership import Membership
from kohort.groups.outbox import Outbox
from kohort.groups.records import DurableRecord, OffsetRecord, OffsetTombstone, PendingOffset
from kohort.groups.requests import CommittedOffset, Now, TopicPartition

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Held(NamedTuple, Generic[V]):
    order: int
    """Sequence number of the record among the log's transactional records."""
    value: V
    is_superseded: bool = False
    """Whether a later record of the key is already valid: not transactional, or committed."""


class HeldValues(Generic[K, V]):
    """The values in a log's open transactions, such as offsets, by producer and key.

    Of a key's records, the last one in the log is valid, whichever transaction ends first. A record
    is superseded if a later one is already valid: it never becomes valid, but is kept until its
    transaction ends, because the key is unstable until then. Only transactional records are
    numbered: any other record supersedes all values that its key has at that moment.
    """

    __slots__ = ("_order", "by_producer")

    def __init__(self) -> None:
        self.by_producer: dict[int, dict[K, _Held[V]]] = {}
        """Values by producer; producers without values are missing. Modified only here."""
        self._order = 0

    def hold(self, producer_id: int, key: K, value: V) -> None:
        """Add the next record, which belongs to an open transaction."""
        self._order += 1
        self.by_producer.setdefault(producer_id, {})[key] = _Held(self._order, value)

    def overtake(self, key: K) -> None:
        """Mark a key's values as superseded by the next record, which is not transactional."""
        self._overtake(key, self._order + 1)

    def end(self, producer_id: int, *, commit: bool) -> list[tuple[K, V]]:
        """End the producer's transaction; return the values that it commits."""
        held = self.by_producer.pop(producer_id, {})
        if not commit:
            return []
        now: list[tuple[K, V]] = []
        for key, (order, value, is_superseded) in held.items():
            if not is_superseded:
                now.append((key, value))
                self._overtake(key, order)
        return now

    def drop(self, key: K) -> None:
        """Forget the values of a key, because the next record deletes it."""
        for producer_id, held in list(self.by_producer.items()):
            held.pop(key, None)
            if not held:
                del self.by_producer[producer_id]

    def has(self, key: K) -> bool:
        """Whether an open transaction has a value for this key, even a superseded one."""
        return any(key in held for held in self.by_producer.values())

    def items(self, *, superseded: bool) -> Iterator[tuple[K, V]]:
        """Yield keys and values in log order: the superseded ones, or else all others."""
        found = [
            (held.order, key, held.value)
            for by_key in self.by_producer.values()
            for key, held in by_key.items()
            if held.is_superseded == superseded
        ]
        for _, key, value in sorted(found, key=itemgetter(0)):
            yield key, value

    def _overtake(self, key: K, order: int) -> None:
        for held in self.by_producer.values():
            earlier = held.get(key)
            if earlier is not None and earlier.order < order:
                held[key] = earlier._replace(is_superseded=True)


class OffsetTable:
    __slots__ = ("_committed", "_held", "count")

    def __init__(self) -> None:
        self._committed: dict[str, dict[int, CommittedOffset]] = {}
        self._held: HeldValues[TopicPartition, CommittedOffset] = HeldValues()
        self.count = 0
        """Number of committed offsets."""

    def __bool__(self) -> bool:
        return bool(self._committed or self._held.by_producer)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """Return the committed offset of a partition, None if there is none."""
        partitions = self._committed.get(topic)
        return None if partitions is None else partitions.get(partition)

    def topics(self) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """All committed offsets; later commits change the mapping."""
        return self._committed

    def has_any(self, topics: Collection[str]) -> bool:
        """Whether there is an offset of one of these topics, even one of an open transaction."""
        return any(topic in self._committed for topic in topics) or any(
            place.topic in topics for place, _ in self.pending_items()
        )

    def items(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        for topic, partitions in self._committed.items():
            for partition, committed in partitions.items():
                yield TopicPartition(topic, partition), committed

    # Changes.

    def apply(self, record: OffsetRecord | PendingOffset | OffsetTombstone) -> None:
        """Apply a record, in log order. Live and on replay, offsets change only here and in
        `end_transaction`.
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
        """Make the producer's pending offsets visible, except superseded ones; or drop them all."""
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

    # Offsets that wait for the end of a transaction.

    def pending_items(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """Yield the offsets of open transactions; those superseded by a later commit come first."""
        yield from self._held.items(superseded=True)
        yield from self._held.items(superseded=False)

    def pending_producers(self) -> list[int]:
        """Ids of producers whose open transactions hold offsets."""
        return list(self._held.by_producer)

    @property
    def has_pending(self) -> bool:
        """Whether any offsets wait for the end of a transaction."""
        return bool(self._held.by_producer)

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Whether a transaction with an offset of this partition is still open."""
        return bool(self._held.by_producer) and self._held.has(TopicPartition(topic, partition))


class OffsetsOwner(Protocol):
    """The group that offsets belong to; see :class:`kohort.groups.group.Group`."""

    group_id: str
    config: GroupConfig
    offsets: OffsetTable
    outbox: Outbox
    membership: Membership | None
    is_dead: bool

    @property
    def is_empty(self) -> bool: ...

    def tombstones(self) -> tuple[DurableRecord, ...]: ...

    def end(self, now: Now) -> None: ...

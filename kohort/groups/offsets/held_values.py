"""Records of open transactions in a log, and which of several records of a key is valid.

Of the records of a key, the last one in the log is valid, whichever transaction ends first. Records
arrive here in log order, so it suffices to remember the order of those that wait. A record that a
later one has overtaken never becomes valid, but is kept until its transaction ends, because the key
is not stable before.
"""

from collections.abc import Hashable, Iterator
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Held(NamedTuple, Generic[V]):
    order: int
    """Increases from record to record."""
    value: V
    is_overtaken: bool = False
    """Whether a later record is already valid."""


class HeldValues(Generic[K, V]):
    """Values by the producer whose transaction they wait for, and by key."""

    __slots__ = ("_order", "by_producer")

    def __init__(self) -> None:
        self.by_producer: dict[int, dict[K, _Held[V]]] = {}
        """Values by producer, for reading only; contains no producer without keys."""
        self._order = 0

    def hold(self, producer_id: int, key: K, value: V) -> None:
        """Add the next record, which belongs to an open transaction."""
        self._order += 1
        self.by_producer.setdefault(producer_id, {})[key] = _Held(self._order, value)

    def overtake(self, key: K) -> None:
        """Process the next record, which is not transactional."""
        self._overtake(key, self._order + 1)

    def end(self, producer_id: int, *, commit: bool) -> list[tuple[K, V]]:
        """End the producer's transaction; return the values that become valid."""
        held = self.by_producer.pop(producer_id, {})
        if not commit:
            return []
        now: list[tuple[K, V]] = []
        for key, (order, value, is_overtaken) in held.items():
            if not is_overtaken:
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
        """Whether any value of this key waits, overtaken or not."""
        return any(key in held for held in self.by_producer.values())

    def items(self, *, overtaken: bool) -> Iterator[tuple[K, V]]:
        """Yield the keys and values that later records have overtaken, or the others, in record
        order.
        """
        found = [
            (held.order, key, held.value)
            for by_key in self.by_producer.values()
            for key, held in by_key.items()
            if held.is_overtaken == overtaken
        ]
        for _, key, value in sorted(found, key=itemgetter(0)):
            yield key, value

    def _overtake(self, key: K, order: int) -> None:
        for held in self.by_producer.values():
            earlier = held.get(key)
            if earlier is not None and earlier.order < order:
                held[key] = earlier._replace(is_overtaken=True)

"""What lies in a log in open transactions, and which of several records of a key holds.

Of the records of a key, the one that lies latest in the log holds, whichever transaction ends
first. Records come here in the order in which they lie, so it is enough to remember, of those that
wait, which came before which. One that a later record has overtaken never holds, but is here until
its transaction ends: the key is not settled before.
"""

from collections.abc import Hashable, Iterator
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Held(NamedTuple, Generic[V]):
    order: int
    """Rises from record to record."""
    value: V
    is_overtaken: bool = False
    """Does a later record hold already?"""


class HeldValues(Generic[K, V]):
    """Values by the producer whose transaction they wait for, and by key."""

    __slots__ = ("_order", "by_producer")

    def __init__(self) -> None:
        self.by_producer: dict[int, dict[K, _Held[V]]] = {}
        """To be looked at only; no producer is here without a key."""
        self._order = 0

    def hold(self, producer_id: int, key: K, value: V) -> None:
        """The next record is one of an open transaction."""
        self._order += 1
        self.by_producer.setdefault(producer_id, {})[key] = _Held(self._order, value)

    def overtake(self, key: K) -> None:
        """The next record is one outside of transactions."""
        self._overtake(key, self._order + 1)

    def end(self, producer_id: int, *, commit: bool) -> list[tuple[K, V]]:
        """The producer's transaction has ended; returns what holds from now on."""
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
        """Forget what waits under this key: the next record has deleted it."""
        for producer_id, held in list(self.by_producer.items()):
            held.pop(key, None)
            if not held:
                del self.by_producer[producer_id]

    def has(self, key: K) -> bool:
        """Does anything wait under this key, be it overtaken?"""
        return any(key in held for held in self.by_producer.values())

    def items(self, *, overtaken: bool) -> Iterator[tuple[K, V]]:
        """What is overtaken, or what is not, in the order of the records; a key comes as often as
        there are transactions with it.
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

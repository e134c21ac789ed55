"""A map that creates missing values and drops the least recently used.

For names chosen by peers, which are otherwise unbounded: addresses, client ids.
"""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    __slots__ = ("_by_name", "_most", "_new")

    def __init__(self, new: Callable[[], V], most: int) -> None:
        """`new` creates the value of a new name; `most` is the maximum number of names."""
        self._new = new
        self._most = most
        self._by_name: dict[K, V] = {}

    def __iter__(self) -> Iterator[K]:
        """Iterate over the names, least recently used first."""
        return iter(self._by_name)

    def __getitem__(self, name: K) -> V:
        """Return the value of a name, which becomes the most recently used."""
        value = self._by_name.pop(name, None)
        if value is None:
            value = self._new()
            if len(self._by_name) >= self._most:
                del self._by_name[next(iter(self._by_name))]
        self._by_name[name] = value
        return value

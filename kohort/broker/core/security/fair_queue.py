"""A bounded queue in which no owner takes the turn or the place of another.

Owners take turns, however many items each has waiting, as in fair queuing (RFC 970). If the queue
is full, the owner with the most items loses the newest of them: an owner may use places that others
leave free, and never loses more than exceeds an equal share.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[K, T]):
    """Waiting items by owner. An item must not be added again while it waits."""

    __slots__ = ("_most", "_waiting", "count")

    def __init__(self, most: int) -> None:
        """`most` is the bound on waiting items."""
        self._most = most
        self.count = 0
        """Waiting items of all owners; to read."""
        self._waiting: dict[K, dict[T, None]] = {}
        """Owners in the order of their turns; each has at least one item."""

    def add(self, owner: K, item: T) -> T | None:
        """Append an item to the owner's others. Returns the item that is dropped for it, which may
        be the item itself; None if there is room.
        """
        mine = self._waiting.get(owner, {})
        given_up: T | None = None
        if self.count >= self._most:
            longest = max(self._waiting, key=lambda one: len(self._waiting[one]))
            if len(self._waiting[longest]) <= len(mine) + 1:
                # An exchange would only make another owner worse off.
                return item
            given_up = next(reversed(self._waiting[longest]))
            self.remove(longest, given_up)
        mine[item] = None
        self._waiting[owner] = mine
        self.count += 1
        return given_up

    def take(self) -> T:
        """Take the oldest item of the owner whose turn it is. Raises IndexError if empty."""
        if not self._waiting:
            raise IndexError("nothing waits")
        owner = next(iter(self._waiting))
        items = self._waiting.pop(owner)
        item = next(iter(items))
        del items[item]
        if items:
            self._waiting[owner] = items
        self.count -= 1
        return item

    def remove(self, owner: K, item: T) -> None:
        """Remove an item, if it still waits."""
        items = self._waiting.get(owner, {})
        if item not in items:
            return
        del items[item]
        if not items:
            del self._waiting[owner]
        self.count -= 1

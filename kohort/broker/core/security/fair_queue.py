"""A bounded fair queue: round robin over owners, as in fair queuing (RFC 970).

If the queue is full, the owner with the most items loses the newest of them. An owner may use
capacity that others leave free, and loses only items in excess of an equal share.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[K, T]):
    """Queued items by owner. An item must not be added again while it is queued."""

    __slots__ = ("_most", "_waiting", "count")

    def __init__(self, most: int) -> None:
        """`most` is the maximum number of items."""
        self._most = most
        self.count = 0
        """Number of queued items; callers must not set it."""
        # OrderedDict, because the first entry of a dict is found by skipping all removed ones.
        self._waiting: OrderedDict[K, OrderedDict[T, None]] = OrderedDict()
        """Owners in round-robin order; each has at least one item."""

    def add(self, owner: K, item: T) -> T | None:
        """Append an item; return None. If the queue is full, return the item that is dropped, which
        may be the new one.
        """
        mine = self._waiting.get(owner) or OrderedDict()
        dropped: T | None = None
        if self.count >= self._most:
            longest = max(self._waiting, key=lambda owner: len(self._waiting[owner]))
            if len(self._waiting[longest]) <= len(mine) + 1:
                # An owner that lost an item to this one would have fewer items than this one.
                return item
            dropped = next(reversed(self._waiting[longest]))
            self.remove(longest, dropped)
        mine[item] = None
        self._waiting[owner] = mine
        self.count += 1
        return dropped

    def take(self) -> T:
        """Remove and return the oldest item of the next owner. Raises IndexError if empty."""
        if not self._waiting:
            raise IndexError("the queue is empty")
        owner, items = next(iter(self._waiting.items()))
        item, _ = items.popitem(last=False)
        if items:
            self._waiting.move_to_end(owner)
        else:
            del self._waiting[owner]
        self.count -= 1
        return item

    def remove(self, owner: K, item: T) -> None:
        items = self._waiting.get(owner)
        if items is None or item not in items:
            return
        del items[item]
        if not items:
            del self._waiting[owner]
        self.count -= 1

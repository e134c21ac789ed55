"""A set of prefixes that finds which of them a name begins with.

If the prefixes have few different lengths, the start of the name of each length is looked up. If
they have many, the sorted prefixes are searched: the entry right before a name shares with it the
longest start of all, so each step finds a prefix or excludes all that are longer than what is
shared (the walk of Kafka's `StandardAuthorizerData`).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

FEW: Final = 12
"""Up to this many lengths, look-ups are faster than a search; up to this many prefixes, trying each
in turn is faster than both."""
LONG: Final = 300
"""From this length on, a look-up, which reads the whole text, costs more than a search."""
_STEPS_MAX: Final = 8
"""Bound on the steps of a search, after which all lengths are looked up: prefixes can be chosen so
that each step excludes only one."""
_PLACED_MAX: Final = 64
"""Up to this many new prefixes are inserted one by one; more are sorted in."""


class Prefixes:
    """A set of prefixes, none of them empty."""

    __slots__ = ("_all", "_counts", "_gone", "_lengths", "_new", "_order")

    def __init__(self, prefixes: Iterable[str] = ()) -> None:
        self._all: set[str] = set()
        self._counts: Counter[int] = Counter()
        """The number of prefixes of each length."""
        self._lengths: list[int] = []
        """The lengths that occur, ascending."""
        # All in sorted order, without those in `_new` but still with those in `_gone`: removing one
        # of a hundred thousand costs much, and one that stays in does not mislead a search.
        self._order: list[str] = []
        self._new: set[str] = set()
        self._gone: set[str] = set()
        for prefix in prefixes:
            self.add(prefix)

    def add(self, prefix: str) -> None:
        """Add a prefix that is not in the set."""
        self._all.add(prefix)
        if prefix in self._gone:
            self._gone.remove(prefix)
        else:
            self._new.add(prefix)
        length = len(prefix)
        self._counts[length] += 1
        if self._counts[length] == 1:
            insort(self._lengths, length)

    def remove(self, prefix: str) -> None:
        """Remove a prefix that is in the set."""
        self._all.remove(prefix)
        if prefix in self._new:
            self._new.remove(prefix)
        else:
            self._gone.add(prefix)
        length = len(prefix)
        self._counts[length] -= 1
        if not self._counts[length]:
            del self._counts[length]
            self._lengths.remove(length)

    def of(self, name: str) -> list[str]:
        """The prefixes of a name, in any order."""
        lengths = self._lengths
        if not lengths:
            return []
        if len(lengths) <= FEW and lengths[-1] <= LONG:
            return self._looked_up(name, lengths)
        return self._searched(name)

    def _looked_up(self, name: str, lengths: Sequence[int]) -> list[str]:
        found = []
        known, end = self._all, len(name)
        for length in lengths:
            if length > end:
                break
            prefix = name[:length]
            if prefix in known:
                found.append(prefix)
        return found

    def _searched(self, name: str) -> list[str]:
        self._put_in_order()
        order, lengths = self._order, self._lengths
        found = []
        at = bisect_right(order, name)
        steps = 0
        while at:
            before = order[at - 1]
            if name.startswith(before):
                if before not in self._gone:
                    found.append(before)
                at -= 1
                continue
            shared = _shared(before, name)
            left = bisect_right(lengths, shared)
            steps += 1
            if left <= FEW or steps > _STEPS_MAX:
                return found + self._looked_up(name, lengths[:left])
            at = bisect_right(order, name[:shared], 0, at)
        return found

    def _put_in_order(self) -> None:
        order = self._order
        if len(self._new) <= _PLACED_MAX:
            for prefix in self._new:
                insort(order, prefix)
        else:
            # Two sorted runs, which Python's sort only merges.
            order += sorted(self._new)
            order.sort()
        self._new.clear()
        if len(self._gone) > len(order) // 2:
            self._order = [prefix for prefix in order if prefix not in self._gone]
            self._gone.clear()


class CountedPrefixes:
    """Prefixes that may each be added several times; a few take little memory."""

    __slots__ = ("_counts", "_many")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._many: Prefixes | None = None

    def change(self, prefix: str, *, is_there: bool) -> None:
        """Add a prefix, or remove one that was added."""
        counts = self._counts
        before = counts.get(prefix, 0)
        after = counts[prefix] = before + 1 if is_there else before - 1
        if not after:
            del counts[prefix]
        if self._many is None:
            if len(counts) > FEW:
                self._many = Prefixes(counts)
        elif not before:
            self._many.add(prefix)
        elif not after:
            self._many.remove(prefix)

    def of(self, name: str) -> list[str]:
        """The prefixes of a name, in any order, each once."""
        if self._many is not None:
            return self._many.of(name)
        return [prefix for prefix in self._counts if name.startswith(prefix)]


def _shared(left: str, right: str) -> int:
    """The number of characters that two texts have in common at their start."""
    end = min(len(left), len(right))
    low, step = 0, 8
    # Mostly few: look ahead in growing steps until they differ, then search back.
    while low + step < end and left.startswith(right[low : low + step], low):
        low += step
        step *= 2
    high = min(end, low + step)
    while low < high:
        middle = (low + high + 1) // 2
        if left.startswith(right[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low

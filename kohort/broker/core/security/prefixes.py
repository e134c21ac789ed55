"""A set of prefixes that is asked which of them a name begins with.

Where prefixes have few lengths, the begin of the name of each length is looked up. Where they have
many, they are searched in their order: what stands right before a name there shares with it the
longest prefix there is, so each step finds one or leaves out all that are longer than what is
shared (the walk of Kafka's `StandardAuthorizerData`).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

FEW: Final = 12
"""Lengths that are sooner looked up than searched for, and prefixes that are sooner tried in turn
than either."""
LONG: Final = 300
"""From here on to look a text up, which reads all of it, costs more than to search for it."""
_STEPS_MAX: Final = 8
"""A search that takes more is sooner done by looking all lengths up: prefixes can be chosen so that
each step leaves out one."""
_PLACED_MAX: Final = 64
"""Up to so many new prefixes are put in their places one by one; more are sorted in."""


class Prefixes:
    """Texts that names may begin with, none of them empty."""

    __slots__ = ("_all", "_counts", "_gone", "_lengths", "_new", "_order")

    def __init__(self, prefixes: Iterable[str] = ()) -> None:
        self._all: set[str] = set()
        self._counts: Counter[int] = Counter()
        """How many there are of each length."""
        self._lengths: list[int] = []
        """The lengths that occur, ascending."""
        # All in their order, but for those in `_new`, and with those in `_gone`: to take one out of
        # a hundred thousand costs much, and what is left in does not mislead a search.
        self._order: list[str] = []
        self._new: set[str] = set()
        self._gone: set[str] = set()
        for prefix in prefixes:
            self.add(prefix)

    def add(self, prefix: str) -> None:
        """Take in one that is not there."""
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
        """Forget one that is there."""
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
            # Two runs, which a sort of Python's only merges.
            order += sorted(self._new)
            order.sort()
        self._new.clear()
        if len(self._gone) > len(order) // 2:
            self._order = [prefix for prefix in order if prefix not in self._gone]
            self._gone.clear()


class CountedPrefixes:
    """Prefixes of which each may be added several times; they take little room while few."""

    __slots__ = ("_counts", "_many")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._many: Prefixes | None = None

    def change(self, prefix: str, *, is_there: bool) -> None:
        """Take one in, or forget one that was."""
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
    """How many characters two texts have in common at their begin."""
    end = min(len(left), len(right))
    low, step = 0, 8
    # Mostly few: further and further ahead until they differ, and back from there.
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

"""Maps prefixes to numbers, and finds all prefixes of a name.

If the prefixes have few different lengths, the start of the name of each length is looked up. If
they have many, the sorted prefixes are searched: of all entries, the one right before a name shares
the longest start with it, so each step finds a prefix or excludes all longer than the shared
start (the walk of Kafka's `StandardAuthorizerData`).
"""

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

FEW: Final = 12
"""Up to this many prefixes, trying each in turn is faster than everything else."""
LENGTHS: Final = 32
"""Up to this many lengths, look-ups are faster than a search."""
LONG: Final = 300
"""The length of a text from which on a look-up, which reads all of it, costs more than a search."""
_LOOKS_MAX: Final = 8
"""Maximum steps of a search, after which all lengths are looked up: prefixes can be chosen so that
each step excludes only one."""
_PLACED_MAX: Final = 64
"""Up to this many new prefixes are inserted one by one; more are sorted in."""


class Prefixes:
    """Maps nonempty prefixes to nonzero numbers: bits, or a count."""

    __slots__ = ("_order", "_values")

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._order: _Order | None = None
        """Created only for many prefixes: most principals have few, and it takes memory."""

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._values.items())

    def __getitem__(self, prefix: str) -> int:
        """Return the number of a prefix; 0 if it is missing."""
        return self._values.get(prefix, 0)

    def __setitem__(self, prefix: str, value: int) -> None:
        """Replace its number; 0 removes it."""
        values, order = self._values, self._order
        is_new = prefix not in values
        if value:
            values[prefix] = value
        elif not is_new:
            del values[prefix]
        if order is None:
            if len(values) > FEW:
                self._order = _Order(values)
        elif not value:
            if not is_new:
                order.remove(prefix)
        elif is_new:
            order.add(prefix)

    def united(self, name: str, enough: int) -> int:
        """Return the bitwise OR of the numbers of all prefixes of a name; 0 if it has none. Stops
        at a number with one of the bits in `enough`.
        """
        united, order = 0, self._order
        if order is None:
            for prefix, value in self._values.items():
                if name.startswith(prefix):
                    united |= value
            return united
        get = self._values.get
        lengths = order.lengths_for(name)
        if lengths is None:
            for prefix in order.search(name, self._values):
                united |= get(prefix, 0)
            return united
        for length in lengths:
            # Inlined from `_looked_up`: every decision that is not cached does this.
            bits = get(name[:length])
            if bits is not None:
                united |= bits
                if bits & enough:
                    return united
        return united

    def matching(self, name: str) -> list[str]:
        """The prefixes of a name, in any order, each once."""
        order = self._order
        if order is None:
            return [prefix for prefix in self._values if name.startswith(prefix)]
        lengths = order.lengths_for(name)
        if lengths is None:
            return order.search(name, self._values)
        return _looked_up(name, lengths, self._values)


class _Order:
    """The lengths of many prefixes, and the prefixes in sorted order for searches."""

    __slots__ = ("_counts", "_gone", "_lengths", "_new", "_sorted")

    def __init__(self, prefixes: Iterable[str]) -> None:
        self._counts: Counter[int] = Counter()
        self._lengths: list[int] = []
        # The sorted prefixes, not including `_new` but still including `_gone`: removing one of a
        # hundred thousand is expensive, and searches ignore those in `_gone`.
        self._sorted: list[str] = []
        self._new: set[str] = set()
        self._gone: set[str] = set()
        for prefix in prefixes:
            self.add(prefix)

    def add(self, prefix: str) -> None:
        if prefix in self._gone:
            self._gone.remove(prefix)
        else:
            self._new.add(prefix)
        length = len(prefix)
        self._counts[length] += 1
        if self._counts[length] == 1:
            insort(self._lengths, length)

    def remove(self, prefix: str) -> None:
        if prefix in self._new:
            self._new.remove(prefix)
        else:
            self._gone.add(prefix)
        length = len(prefix)
        self._counts[length] -= 1
        if not self._counts[length]:
            del self._counts[length]
            self._lengths.remove(length)

    def lengths_for(self, name: str) -> Sequence[int] | None:
        """The lengths to look up; None if a search is faster."""
        lengths, end = self._lengths, len(name)
        if not lengths or (lengths[-1] <= end and len(lengths) <= LENGTHS and lengths[-1] <= LONG):
            return lengths
        if end <= LONG:
            left = bisect_right(lengths, end)
            if left <= LENGTHS:
                return lengths[:left]
        return None

    def search(self, name: str, known: Mapping[str, int]) -> list[str]:
        self._put_in_order()
        order, lengths = self._sorted, self._lengths
        prefixes = []
        at = bisect_right(order, name)
        looks = 0
        while at:
            before = order[at - 1]
            if name.startswith(before):
                if before not in self._gone:
                    prefixes.append(before)
                at -= 1
                continue
            shared = _shared(before, name)
            left = bisect_right(lengths, shared)
            looks += 1
            if not left:
                return prefixes
            if (left <= LENGTHS and lengths[left - 1] <= LONG) or looks > _LOOKS_MAX:
                return prefixes + _looked_up(name, lengths[:left], known)
            at = bisect_right(order, name[:shared], 0, at)
        return prefixes

    def _put_in_order(self) -> None:
        order = self._sorted
        if len(self._new) <= _PLACED_MAX:
            for prefix in self._new:
                insort(order, prefix)
        else:
            # Two sorted runs, which Python's sort only merges.
            order += sorted(self._new)
            order.sort()
        self._new.clear()
        if len(self._gone) > len(order) // 2:
            self._sorted = [prefix for prefix in order if prefix not in self._gone]
            self._gone.clear()


def _looked_up(name: str, lengths: Iterable[int], known: Mapping[str, int]) -> list[str]:
    return [prefix for length in lengths if (prefix := name[:length]) in known]


def _shared(left: str, right: str) -> int:
    """The number of characters that two texts have in common at their start."""
    end = min(len(left), len(right))
    low, stride = 0, 8
    # Usually few characters: look ahead in growing strides until they differ, then search back.
    while low + stride < end and left.startswith(right[low : low + stride], low):
        low += stride
        stride *= 2
    high = min(end, low + stride)
    while low < high:
        middle = (low + high + 1) // 2
        if left.startswith(right[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low

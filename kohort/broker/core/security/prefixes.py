"""Maps prefixes to numbers, and finds all prefixes of a name: the start of the name of each length
that a prefix has is looked up.
"""

from bisect import bisect_left
from collections.abc import Iterator


class Prefixes:
    """Maps nonempty prefixes to nonzero numbers: bits, or a count."""

    __slots__ = ("_lengths", "_values")

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._lengths: list[int] = []
        """The lengths of all prefixes since it was last empty, ascending."""

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._values.items())

    def __getitem__(self, prefix: str) -> int:
        """Return the number of a prefix; 0 if it is missing."""
        return self._values.get(prefix, 0)

    def __setitem__(self, prefix: str, value: int) -> None:
        """Replace its number; 0 removes it."""
        if not value:
            self._values.pop(prefix, None)
            if not self._values:
                self._lengths.clear()
            return
        self._values[prefix] = value
        place = bisect_left(self._lengths, len(prefix))
        if self._lengths[place : place + 1] != [len(prefix)]:
            self._lengths.insert(place, len(prefix))

    def united(self, name: str, enough: int) -> int:
        """Return the bitwise OR of the numbers of all prefixes of a name; 0 if it has none. Stops
        at a number with one of the bits in `enough`.
        """
        united, get, end = 0, self._values.get, len(name)
        for length in self._lengths:
            if length > end:
                break
            bits = get(name[:length])
            if bits is not None:
                united |= bits
                if bits & enough:
                    break
        return united

    def matching(self, name: str) -> list[str]:
        """The prefixes of a name, the shortest first."""
        ends = self._lengths[: bisect_left(self._lengths, len(name) + 1)]
        return [prefix for end in ends if (prefix := name[:end]) in self._values]

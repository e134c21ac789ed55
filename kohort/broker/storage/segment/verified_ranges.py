"""The bytes of a segment that have been verified by reading them.

Batches whose CRC was checked once since the start are served without another check; so are those
that this process appended, which the segment knows by itself. Everything else is verified when it
is first read. Adjacent ranges are merged, so a consumer that reads through a segment leaves one
range; RANGES_MAX bounds what scattered reads leave.
"""

from __future__ import annotations

from bisect import bisect_right

RANGES_MAX = 64


class VerifiedRanges:
    """Half-open byte ranges, disjoint and ascending."""

    __slots__ = ("_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def copy(self) -> VerifiedRanges:
        """Return an independent copy."""
        twin = VerifiedRanges()
        twin._starts, twin._stops = self._starts.copy(), self._stops.copy()
        return twin

    def add_all(self, others: VerifiedRanges) -> None:
        """Add the ranges of another object for the same file."""
        for start, stop in zip(others._starts, others._stops, strict=True):
            if not self.covers(start, stop):
                self.add(start, stop)

    def covers(self, start: int, stop: int) -> bool:
        """Whether every byte from start up to (not including) stop is verified."""
        number = bisect_right(self._starts, start) - 1
        return start >= stop or (number >= 0 and stop <= self._stops[number])

    def add(self, start: int, stop: int) -> None:
        """Add a range; the shortest one is dropped if there are too many."""
        starts, stops = self._starts, self._stops
        if stops and stops[-1] == start:  # A reader that goes on.
            stops[-1] = stop
            return
        first = bisect_right(stops, start - 1)
        last = bisect_right(starts, stop)
        if first < last:
            start = min(start, starts[first])
            stop = max(stop, stops[last - 1])
        starts[first:last] = [start]
        stops[first:last] = [stop]
        if len(starts) > RANGES_MAX:
            shortest = min(range(len(starts)), key=lambda number: stops[number] - starts[number])
            del starts[shortest], stops[shortest]

    def cut(self, size: int) -> None:
        """Drop everything at or after `size`, where the file was truncated."""
        while self._starts and self._starts[-1] >= size:
            del self._starts[-1], self._stops[-1]
        if self._stops:
            self._stops[-1] = min(self._stops[-1], size)

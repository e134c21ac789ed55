"""Basic meters: a histogram, a recent maximum and a recent rate."""

from bisect import bisect_left
from collections.abc import Sequence


class HistogramTally:
    """Counts observations in fixed buckets; an observation takes 0.2 microseconds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        """Upper bounds of the buckets, inclusive and ascending."""
        self.counts = [0] * (len(bounds) + 1)
        """Counts per bucket, not cumulative; the last one has no bound."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, other: "HistogramTally") -> None:
        """Add the counts of `other`, which has the same bounds."""
        self.counts = [
            ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)
        ]
        self.total += other.total


class RecentMaximum:
    """The maximum of the last one to two periods. Reading the maximum does not reset it, so it is
    the same for every scraper.
    """

    __slots__ = ("_current", "_period_ends", "_period_s", "_previous")

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._period_ends = 0.0
        self._previous = 0.0
        self._current = 0.0

    def observe(self, value: float, now_s: float) -> None:
        """Observe a value; `now_s` is the time on the same monotonic clock as in `value_at`."""
        if now_s >= self._period_ends:
            self._advance(now_s)
        self._current = max(self._current, value)

    def value_at(self, now_s: float) -> float:
        """Return the maximum; 0.0 if there was no observation."""
        if now_s >= self._period_ends:
            self._advance(now_s)
        return max(self._current, self._previous)

    def _advance(self, now_s: float) -> None:
        is_next = now_s < self._period_ends + self._period_s
        self._previous = self._current if is_next else 0.0
        self._current = 0.0
        self._period_ends = now_s + self._period_s


class RecentRate:
    """Growth rate of a counter in the last one to two periods, like Kafka's own rates.

    The rate is computed on request, so counting costs nothing more. If requests are further apart
    than a period, the rate is the mean over a longer time.
    """

    __slots__ = ("_current", "_period_s", "_previous")

    def __init__(self, period_s: float, count: int, now_s: float) -> None:
        self._period_s = period_s
        self._previous = self._current = (now_s, count)

    def rate_at(self, count: int, now_s: float) -> float:
        """Return the rate per second; `count` is the counter's current value."""
        if now_s - self._current[0] >= self._period_s:
            self._previous, self._current = self._current, (now_s, count)
        began_s, began_count = self._previous
        return (count - began_count) / (now_s - began_s) if now_s > began_s else 0.0

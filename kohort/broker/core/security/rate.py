"""Measures recent use, and how long a client must be throttled (KIP-124, KIP-219).

Kafka's arithmetic, to the millisecond: samples of one window each; the first use after a sample is
over begins the next one. The rate is the sum of the samples divided by the time since the oldest of
them began, which counts as at least all windows but one.
"""

from typing import Final

WINDOWS: Final = 11
"""The default of `quota.window.num`."""
WINDOW_MS: Final = 1_000
"""The default of `quota.window.size.seconds`."""
THROTTLE_MAX_MS: Final = (1 << 31) - 1
"""The maximum throttle time in a response."""

_START, _LAST, _SUM = range(3)


class Rate:
    """The recent use of one account. Times are monotonic milliseconds."""

    __slots__ = ("_samples", "_windows", "least_ms", "total", "window_ms")

    def __init__(self, windows: int = WINDOWS, window_ms: int = WINDOW_MS) -> None:
        self._windows = windows
        self.window_ms = window_ms
        self.least_ms = (windows - 1) * window_ms
        """The shortest time that a rate is measured over."""
        self._samples: list[list[int]] = []
        """Samples (begin, last use, sum), oldest first; at most one more than there are windows."""
        self.total = 0
        """The sum of all stored samples."""

    @property
    def sample_end_ms(self) -> int:
        """When the first use begins another sample; there must have been a use."""
        return self._samples[-1][_START] + self.window_ms

    def record(self, amount: int, now_ms: int) -> None:
        """Record a use; a negative amount reverts the last record."""
        samples = self._samples
        if not samples or now_ms - samples[-1][_START] >= self.window_ms:
            self._forget(now_ms)
            samples.append([now_ms, now_ms, 0])
        current = samples[-1]
        current[_LAST] = now_ms
        current[_SUM] += amount
        self.total += amount

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the time until the rate is at most `limit` per second; 0 if it already is."""
        self._forget(now_ms)
        samples = self._samples
        if not samples:
            return 0
        elapsed_ms = now_ms - samples[0][_START]
        missing = self._windows - 1 - elapsed_ms // self.window_ms
        over_ms = elapsed_ms + max(0, missing) * self.window_ms
        # (rate - limit) / limit * window, where the rate is total / window.
        return max(0, round(min(self.total * 1_000 / limit - over_ms, THROTTLE_MAX_MS)))

    def _forget(self, now_ms: int) -> None:
        kept_ms = self._windows * self.window_ms
        samples = self._samples
        while samples and now_ms - samples[0][_LAST] >= kept_ms:
            self.total -= samples.pop(0)[_SUM]

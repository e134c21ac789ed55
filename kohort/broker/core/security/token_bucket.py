"""A token bucket for the changes a client may make; tokens are saved while it makes none (KIP-599).

Kafka's arithmetic: so many tokens a second, never more than all windows hold. A change may take
more tokens than there are: the debt has to be earned before the next change.
"""

from __future__ import annotations


class TokenBucket:
    """The tokens of one account. Times are monotonic milliseconds."""

    __slots__ = ("_saved_ms", "_seen_ms", "_tokens")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._saved_ms = windows * window_ms
        """The longest time for which tokens are saved."""
        self._seen_ms: int | None = None
        self._tokens = 0.0

    def take(self, amount: int, limit: float, now_ms: int) -> None:
        """Take `amount` tokens; the balance may become negative. The bucket gains `limit` tokens a
        second.
        """
        self._refill(limit, now_ms)
        self._tokens -= amount

    def debt_ms(self, limit: float, now_ms: int) -> int:
        """Return the time until the balance is no longer negative; 0 if it is not."""
        self._refill(limit, now_ms)
        return max(0, round(-self._tokens / limit * 1_000))

    def _refill(self, limit: float, now_ms: int) -> None:
        most = limit * self._saved_ms / 1_000
        if self._seen_ms is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + limit * (now_ms - self._seen_ms) / 1_000)
        self._seen_ms = now_ms

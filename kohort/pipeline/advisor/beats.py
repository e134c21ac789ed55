"""When a member's heartbeats are sent.

A heartbeat is sent when its interval is over and the client's thread looks, which the Java client
does every 100 ms, and so do those that follow it. So the beat drifts: soon after a rebalance all
members beat together, an hour later at moments that cannot be known. They are drawn by lot here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from random import Random
from typing import Final

LOOK_MS: Final = 100
_LATE_MS: Final = LOOK_MS // 2
"""On average."""
_SPREAD_MS: Final = LOOK_MS / sqrt(12)
"""Standard deviation of one of them."""


@dataclass(slots=True)
class Beats:
    """Heartbeats of one member, from the answer to its join on."""

    random: Random
    interval_ms: int
    origin_ms: int = 0

    def last_before(self, now_ms: int) -> int:
        """The last one up to `now_ms`, or the origin."""
        since_ms = now_ms - self.origin_ms
        if since_ms < self.interval_ms:
            return self.origin_ms
        return now_ms - self._phase(since_ms)

    def next_after(self, now_ms: int) -> int:
        """The first one behind `now_ms`."""
        since_ms = now_ms - self.origin_ms
        if since_ms < self.interval_ms:
            return self.origin_ms + self.interval_ms + self.random.randrange(LOOK_MS)
        return now_ms + max(self.interval_ms + _LATE_MS - self._phase(since_ms), 1)

    def _phase(self, since_ms: int) -> int:
        """How long ago the last one was."""
        period_ms = self.interval_ms + _LATE_MS
        count = since_ms // period_ms
        drift_ms = self.random.gauss(0.0, _SPREAD_MS * sqrt(count))
        return int(since_ms - drift_ms) % period_ms

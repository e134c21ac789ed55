"""Times at which a simulated member sends heartbeats.

The Java client sends a heartbeat when its interval has passed and its thread polls, every 100 ms.
So heartbeat times drift: soon after a rebalance all members send at the same time, an hour later at
unknown times, which are drawn at random here. librdkafka uses a timer instead, and its heartbeats
stay synchronized much longer. The drift is estimated from the times at which members were notified
of a rebalance soon after another one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import cos, fsum, log, pi, sin, sqrt
from random import Random
from statistics import fmean, median
from typing import Final

LOOK_MS: Final = 100
"""Poll interval of the Java client's heartbeat thread."""
LOOK_LEAST_MS: Final = 2
SAMPLES_LEAST: Final = 2
"""Number of rebalances, or of first heartbeats, needed to estimate the drift from the history."""
HEARTBEATS_MOST: Final = 50
"""Number of heartbeats after which they may have drifted over the whole interval."""


@dataclass(slots=True)
class HeartbeatTimes:
    """Heartbeat times of one member, counted from the response to its join."""

    random: Random
    interval_ms: int
    look_ms: int = LOOK_MS
    """The client's poll interval: heartbeats are late by half of it on average."""
    origin_ms: int = 0

    def last_before(self, now_ms: int) -> int:
        """Return the time of the last heartbeat up to `now_ms`, or the origin."""
        since_ms = now_ms - self.origin_ms
        if since_ms < self.interval_ms:
            return self.origin_ms
        return now_ms - self._phase(since_ms)

    def next_after(self, now_ms: int) -> int:
        since_ms = now_ms - self.origin_ms
        if since_ms < self.interval_ms:
            return self.origin_ms + self.interval_ms + self.random.randrange(self.look_ms)
        return now_ms + max(self.interval_ms + self.look_ms // 2 - self._phase(since_ms), 1)

    def _phase(self, since_ms: int) -> int:
        period_ms = self.interval_ms + self.look_ms // 2
        count = since_ms // period_ms
        drift_ms = self.random.gauss(0.0, self.look_ms * sqrt(count / 12))
        return int(since_ms - drift_ms) % period_ms


def look_ms(
    seen: Iterable[tuple[int, Sequence[int]]], interval_ms: int, first: Iterable[int] = ()
) -> int:
    """Estimate the clients' poll interval from the drift of their heartbeats.

    Clients either poll every 100 ms, or have timers with much smaller delays. A few members suffice
    to distinguish these two, but not 60 from 100 ms.

    Args:
        seen: for each rebalance that followed another one: the time since that one, and the times
            at
            which members were notified by their heartbeats, in ms.
        first: delays of the first heartbeats after a join, in ms; used if `seen` has too few.
    """
    widths_ms = []
    for since_ms, notice_ms in seen:
        beats = since_ms // interval_ms
        if 1 <= beats <= HEARTBEATS_MOST and len(notice_ms) > 1:
            # A uniform distribution has a standard deviation of its width / sqrt(12).
            widths_ms.append(
                _spread_ms(notice_ms, interval_ms) * sqrt(12 / beats) * _bias(len(notice_ms))
            )
    late = list(first)
    if len(widths_ms) >= SAMPLES_LEAST:
        look = median(widths_ms)
    elif len(late) >= SAMPLES_LEAST:
        # The mean delay is half a poll interval.
        look = 2 * fmean(late)
    else:
        return LOOK_MS
    return LOOK_MS if look > LOOK_MS / 2 else max(round(look), LOOK_LEAST_MS)


def _bias(count: int) -> float:
    """Return the factor from the median spread of a sample of `count` times to the true spread."""
    degrees = count - 1
    # The median of a chi-squared distribution, by Wilson and Hilferty.
    middle = degrees * (1 - 2 / (9 * degrees)) ** 3
    return sqrt(count / middle)


def _spread_ms(moments: Sequence[int], interval_ms: int) -> float:
    """Circular standard deviation of times modulo the interval."""
    angles = [2 * pi * at_ms / interval_ms for at_ms in moments]
    mean = abs(fsum(cos(angle) for angle in angles) + 1j * fsum(sin(angle) for angle in angles))
    strength = min(max(mean / len(moments), 1e-9), 1.0)
    return sqrt(-2 * log(strength)) * interval_ms / (2 * pi)

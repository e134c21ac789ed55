"""When a member's heartbeats are sent.

A heartbeat is sent when its interval is over and the client's thread looks, which the Java client
does every 100 ms. So the beat drifts: soon after a rebalance all members beat together, an hour
later at moments that cannot be known. They are drawn by lot here. librdkafka has a timer instead,
whose beats stay together for much longer: how much they drift is taken from the history, where
members were told of a rebalance soon after another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import cos, fsum, log, pi, sin, sqrt
from random import Random
from statistics import fmean, median
from typing import Final

LOOK_MS: Final = 100
"""How often the Java client looks."""
LOOK_LEAST_MS: Final = 2
SEEN_LEAST: Final = 2
"""Rebalances, or first heartbeats, that have to tell how beats drift, for it to be taken from the
history."""
BEATS_MOST: Final = 50
"""Number of beats after which they may have drifted over the whole interval."""


@dataclass(slots=True)
class Beats:
    """Heartbeats of one member, from the answer to its join on."""

    random: Random
    interval_ms: int
    look_ms: int = LOOK_MS
    """How often the client looks: a beat is late by a half of that on average."""
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
            return self.origin_ms + self.interval_ms + self.random.randrange(self.look_ms)
        return now_ms + max(self.interval_ms + self.look_ms // 2 - self._phase(since_ms), 1)

    def _phase(self, since_ms: int) -> int:
        """How long ago the last one was."""
        period_ms = self.interval_ms + self.look_ms // 2
        count = since_ms // period_ms
        drift_ms = self.random.gauss(0.0, self.look_ms * sqrt(count / 12))
        return int(since_ms - drift_ms) % period_ms


def look_ms(
    seen: Iterable[tuple[int, Sequence[int]]], interval_ms: int, first: Iterable[int] = ()
) -> int:
    """How often clients look, by how far their beats have drifted apart.

    Clients look every 100 ms, or have timers that are late by much less: a few members tell the two
    apart, but not 60 from 100.

    Args:
        seen: for rebalances that came after another one: how long after, and when members were told
            of it, all in ms. Those are told that beat.
        first: how late first heartbeats after a join were, in ms, where `seen` has too little.
    """
    found = []
    for since_ms, told in seen:
        beats = since_ms // interval_ms
        if 1 <= beats <= BEATS_MOST and len(told) > 1:
            # A uniform distribution has a standard deviation of its width / sqrt(12).
            found.append(_spread_ms(told, interval_ms) * sqrt(12 / beats) * _bias(len(told)))
    late = list(first)
    if len(found) >= SEEN_LEAST:
        look = median(found)
    elif len(late) >= SEEN_LEAST:
        # A member that looks at such intervals is late by half of one, on average.
        look = 2 * fmean(late)
    else:
        return LOOK_MS
    return LOOK_MS if look > LOOK_MS / 2 else max(round(look), LOOK_LEAST_MS)


def _bias(count: int) -> float:
    """What makes the spread of so few moments, in the middle, that of all that could have been."""
    degrees = count - 1
    # The median of a chi-squared distribution, by Wilson and Hilferty.
    middle = degrees * (1 - 2 / (9 * degrees)) ** 3
    return sqrt(count / middle)


def _spread_ms(told: Sequence[int], interval_ms: int) -> float:
    """Standard deviation of moments of an interval that starts again at its end."""
    angles = [2 * pi * moment / interval_ms for moment in told]
    mean = abs(fsum(cos(one) for one in angles) + 1j * fsum(sin(one) for one in angles))
    strength = min(max(mean / len(told), 1e-9), 1.0)
    return sqrt(-2 * log(strength)) * interval_ms / (2 * pi)

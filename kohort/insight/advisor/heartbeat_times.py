"""Times at which a simulated member sends heartbeats, which depend on its client library.

The Java client restarts its timer when its join is answered. Its thread polls every 100 ms, and
sends a heartbeat if the interval has passed. Therefore all members send at the same time soon after
a rebalance, and an hour later at unknown times, which are drawn at random here. aiokafka restarts
its timer too, but its heartbeats stay synchronized much longer.

librdkafka's timer runs on while a member joins. It sends its first heartbeat right after the first
assignment. From then on each member has times of its own, except that members whose heartbeats fell
due during a rebalance send them when they get their assignment, which synchronizes them.

If the history does not name a member's library, whether its timer runs on and its poll interval are
estimated from the times of notifications soon after another rebalance.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import cos, fsum, log, pi, sin, sqrt
from random import Random
from statistics import fmean, median
from typing import Final

from kohort.insight.advisor.client_software import JAVA, LIBRDKAFKA

LOOK_MS: Final = 100
"""Poll interval of the Java client's heartbeat thread."""
LOOK_LEAST_MS: Final = 2
SAMPLES_LEAST: Final = 2
"""Minimum number of samples (rebalances or heartbeats) for an estimate from the history."""
HEARTBEATS_MOST: Final = 50
"""Number of heartbeats after which their times may have drifted across the whole interval."""
LIBRDKAFKA_LOOK_MS: Final = 20
"""Poll interval assumed for librdkafka: its thread wakes up when a timer fires, but may be busy."""
OWN_TIME_LEAST: Final = 0.1
"""A member's timer is assumed to continue during joins if its heartbeats differ by more than this
share of the interval from those of a timer that every join restarts."""


@dataclass(frozen=True, slots=True)
class HeartbeatTimer:
    look_ms: int = LOOK_MS
    """The library's poll interval: heartbeats are late by half of it on average."""
    runs_on: bool = False
    """Whether the heartbeat timer continues during a join, instead of being restarted."""


JAVA_TIMER: Final = HeartbeatTimer()
TIMERS: Final = {
    JAVA: JAVA_TIMER,
    LIBRDKAFKA: HeartbeatTimer(LIBRDKAFKA_LOOK_MS, runs_on=True),
}
"""Heartbeat timers by client library; the timers of other libraries are unknown."""


@dataclass(slots=True)
class HeartbeatTimes:
    """A member's heartbeat times, computed from its last known heartbeat or timer restart."""

    random: Random
    interval_ms: int
    timer: HeartbeatTimer = JAVA_TIMER
    origin_ms: int | None = None
    """Time of the last known heartbeat or timer restart; None before the timer's start."""

    def on_join_sent(self, now_ms: int) -> None:
        """Record that the member joins: it sends no heartbeats until it has its assignment."""
        if self.timer.runs_on and self.origin_ms is not None:
            self.origin_ms = self.last_before(now_ms)

    def on_join_answered(self, now_ms: int) -> None:
        if not self.timer.runs_on:
            self.origin_ms = now_ms

    def on_assigned(self, now_ms: int) -> bool:
        """Record that the member has its assignment; return whether a heartbeat fell due during
        the rebalance and is therefore sent at once.
        """
        if not self.timer.runs_on:
            return False
        is_due = self.origin_ms is None or now_ms - self.origin_ms > self.interval_ms
        if is_due:
            self.origin_ms = now_ms
        return is_due

    def move(self, moved_ms: int) -> None:
        """Send the following heartbeats `moved_ms` earlier."""
        if self.origin_ms is not None:
            self.origin_ms -= moved_ms

    def last_before(self, now_ms: int) -> int:
        """Return the time of the last heartbeat up to `now_ms`; before the first, `origin_ms`."""
        if self.origin_ms is None:
            return now_ms
        since_ms = now_ms - self.origin_ms
        if since_ms < self.interval_ms:
            return self.origin_ms
        return now_ms - self._phase(since_ms)

    def next_after(self, now_ms: int) -> int:
        if self.origin_ms is None:
            return now_ms + self.interval_ms
        since_ms, look_ms = now_ms - self.origin_ms, self.timer.look_ms
        if since_ms < self.interval_ms:
            return self.origin_ms + self.interval_ms + self.random.randrange(look_ms)
        return now_ms + max(self.interval_ms + look_ms // 2 - self._phase(since_ms), 1)

    def _phase(self, since_ms: int) -> int:
        look_ms = self.timer.look_ms
        period_ms = self.interval_ms + look_ms // 2
        count = since_ms // period_ms
        drift_ms = self.random.gauss(0.0, look_ms * sqrt(count / 12))
        return int(since_ms - drift_ms) % period_ms


def look_ms(
    seen: Iterable[tuple[int, Sequence[int]]], interval_ms: int, first: Iterable[int] = ()
) -> int:
    """Estimate the clients' poll interval from the drift of their heartbeats.

    Clients either poll every 100 ms, or have timers with much smaller delays. Samples of a few
    members distinguish these two cases, but not 60 from 100 ms.

    Args:
        seen: for each rebalance but the first: the time since the previous rebalance, and the times
            at which members were notified by their heartbeats, in ms.
        first: delays of the first heartbeats after a join, in ms; used if `seen` is too short.
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


def runs_on(notified: Iterable[tuple[int, int]], interval_ms: int) -> bool | None:
    """Estimate whether a member's heartbeat timer continues during joins; None if there are too
    few samples.

    Args:
        notified: for each notification of a rebalance except a member's first: the ms since its
            previous notification, and since the response to its previous join.
    """
    since_notified, since_joined = [], []
    for notified_ms, joined_ms in notified:
        if interval_ms <= joined_ms <= HEARTBEATS_MOST * interval_ms:
            since_notified.append(late_by(notified_ms, interval_ms))
            since_joined.append(
                min(
                    late_by(joined_ms, interval_ms),
                    late_by(joined_ms, interval_ms + LOOK_MS // 2),
                )
            )
    if len(since_joined) < SAMPLES_LEAST:
        return None
    joined_off_ms = median(since_joined)
    return joined_off_ms > OWN_TIME_LEAST * interval_ms and median(since_notified) < joined_off_ms


def look_of_timer(notified: Iterable[tuple[int, int]], interval_ms: int) -> int:
    """Estimate the poll interval of librdkafka's timer: twice the mean delay of a heartbeat.
    `notified` is as in `runs_on`.
    """
    late_ms = [
        phase_ms / beats
        for since_ms, _ in notified
        for beats, phase_ms in [divmod(since_ms, interval_ms)]
        # A larger phase means that the member also sent a heartbeat when it got its assignment,
        # which restarted its timer.
        if 1 <= beats <= HEARTBEATS_MOST and phase_ms <= beats * LOOK_MS / 2
    ]
    if len(late_ms) < SAMPLES_LEAST:
        return LIBRDKAFKA_LOOK_MS
    return max(round(2 * fmean(late_ms)), LOOK_LEAST_MS)


def late_by(since_ms: int, interval_ms: int) -> int:
    """Return how far a duration is from the nearest multiple of the interval."""
    phase_ms = since_ms % interval_ms
    return min(phase_ms, interval_ms - phase_ms)


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

"""Maps values to positions on a plot, with ticks at round values."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kohort.insight.report.text import DAY_MS, MINUTE_MS, SECOND_MS

Tick = tuple[float, str]
"""A position and its text."""

_INTERVALS_MS: Final = tuple(
    SECOND_MS * seconds
    for seconds in (
        *(1, 2, 5, 10, 15, 30),
        *(60, 120, 300, 600, 900, 1_800),
        *(3_600, 7_200, 10_800, 21_600, 43_200),
        *(86_400, 172_800, 345_600, 604_800, 1_209_600, 2_419_200),
    )
)


@dataclass(frozen=True, slots=True)
class Times:
    from_ms: int
    until_ms: int
    left: float
    right: float

    @classmethod
    def around(cls, from_ms: int, until_ms: int, left: float, right: float) -> "Times":
        """Return an axis with a small margin, so that marks at its ends are visible."""
        room_ms = max((until_ms - from_ms) // 50, 20)
        return cls(from_ms - room_ms, until_ms + room_ms, left, right)

    def place(self, at_ms: int) -> float:
        share = (at_ms - self.from_ms) / max(self.until_ms - self.from_ms, 1)
        return self.left + min(max(share, 0.0), 1.0) * (self.right - self.left)

    def ticks(self, most: int) -> list[Tick]:
        """Make at most `most` ticks, at whole seconds, minutes, hours or days in UTC."""
        span_ms = self.until_ms - self.from_ms
        interval_ms = next(
            (interval for interval in _INTERVALS_MS if span_ms <= interval * most), None
        )
        if interval_ms is None:
            interval_ms = -(-span_ms // most // DAY_MS) * DAY_MS
        first_ms = -(-self.from_ms // interval_ms) * interval_ms
        moments = range(first_ms, self.until_ms + 1, interval_ms)
        return [(self.place(at_ms), _named(at_ms, interval_ms)) for at_ms in moments]


def _named(at_ms: int, interval_ms: int) -> str:
    at = datetime.fromtimestamp(max(at_ms, 0) / SECOND_MS, UTC)
    if at_ms % DAY_MS == 0:
        return f"{at.day} {at:%b}"
    return f"{at:%H:%M}" if interval_ms >= MINUTE_MS else f"{at:%H:%M:%S}"


@dataclass(frozen=True, slots=True)
class Values:
    """A linear axis from 0."""

    highest: float
    start: float
    end: float

    def place(self, value: float) -> float:
        return self.start + value / self.highest * (self.end - self.start)

    def ticks(self, most: int) -> list[Tick]:
        interval = nice_interval(self.highest, most)
        count = int(self.highest / interval + 1e-9)
        values = [interval * place for place in range(count + 1)]
        return [(self.place(value), f"{value:,.10g}") for value in values]


def nice_interval(highest: float, most: int) -> float:
    """Return 1, 2 or 5 times a power of ten, at least 1: `most` intervals reach `highest`."""
    least = highest / max(most, 1)
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return max(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least), 1.0)

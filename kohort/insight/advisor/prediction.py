"""What is to be expected under one setting: several replays with chance of their own, and their
middle. What heartbeats decide by lot in the replay is decided by lot in life.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median_low, stdev
from typing import Final

from kohort.insight.advisor.outcome import ReplayOutcome
from kohort.insight.advisor.replay import Replay
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import Trace

REPLAYS_LEAST: Final = 5
REPLAYS_MOST: Final = 20
NOTHING_MS: Final = 1_000
"""How well a shorter stopped time is known does not matter."""
CLOSE: Final = 0.03
"""The standard error of the mean, as a share of it, at which no more replays are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(ReplayOutcome):
    """The outcome that is to be expected under one setting: the middle of those of the replays."""

    setting: Setting
    stopped_spread_ms: int = 0
    """How far from `stopped_ms` one life may be by chance alone: twice the standard deviation of
    the replays, so that one of twenty is further off.
    """
    stopped_by_seed: tuple[int, ...] = ()
    """`stopped_ms` of each replay. Seeds count from 0, so predictions are compared by pairs."""
    rebalances_by_seed: tuple[int, ...] = ()
    unread_by_seed: tuple[int, ...] = ()
    quicker: str | None = None
    """The slot that was taken to be as quick as the others; else all are as they were recorded."""

    @property
    def notice_ms(self) -> int:
        """The mean time until a crash is noticed: it comes between two heartbeats."""
        return self.setting.session_timeout_ms - self.setting.heartbeat_interval_ms // 2


def predict(trace: Trace, setting: Setting) -> Prediction:
    """Predict the outcome of a setting: the same for the same arguments, wherever it is made."""
    outcomes: list[ReplayOutcome] = []
    while not _is_enough(outcomes):
        outcomes.append(Replay(trace, setting, seed=len(outcomes)).run())

    def mean(values: list[int]) -> int:
        return round(fmean(values))

    return Prediction(
        setting=setting,
        rebalances=median_low([one.rebalances for one in outcomes]),
        stopped_ms=mean([one.stopped_ms for one in outcomes]),
        stopped_longest_ms=mean([one.stopped_longest_ms for one in outcomes]),
        stopped_by_slot=_by_slot(outcomes),
        unread_ms=mean([one.unread_ms for one in outcomes]),
        unread_longest_ms=mean([one.unread_longest_ms for one in outcomes]),
        deaths=median_low([one.deaths for one in outcomes]),
        unnoticed_ms=mean([one.unnoticed_ms for one in outcomes]),
        unnoticed_longest_ms=mean([one.unnoticed_longest_ms for one in outcomes]),
        guessed=median_low([one.guessed for one in outcomes]),
        stopped_spread_ms=_spread([one.stopped_ms for one in outcomes]),
        stopped_by_seed=tuple(one.stopped_ms for one in outcomes),
        rebalances_by_seed=tuple(one.rebalances for one in outcomes),
        unread_by_seed=tuple(one.unread_ms for one in outcomes),
    )


def gain_by_pairs(
    before: tuple[int, ...], after: tuple[int, ...], *, share: float, least: float
) -> float:
    """How much less `after` has than `before`, seed for seed and in the mean; 0 if it is no more
    than `share` of it, than `least`, or than what chance would have it.
    """
    gains = [a - b for a, b in zip(before, after, strict=False)]
    if not gains:
        return 0.0
    gain = fmean(gains)
    return gain if gain >= max(share * fmean(before), least, 2 * _error(gains)) else 0.0


def _error(values: list[int]) -> float:
    """Standard error of the mean of some values."""
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0


def _is_enough(outcomes: list[ReplayOutcome]) -> bool:
    count = len(outcomes)
    if not REPLAYS_LEAST <= count < REPLAYS_MOST:
        return count >= REPLAYS_MOST
    stopped = [one.stopped_ms for one in outcomes]
    return stdev(stopped) <= CLOSE * sqrt(count) * max(fmean(stopped), NOTHING_MS)


def _spread(values: list[int]) -> int:
    return round(2 * stdev(values))


def _by_slot(outcomes: list[ReplayOutcome]) -> tuple[int, ...]:
    columns = zip(*(one.stopped_by_slot for one in outcomes), strict=True)
    return tuple(round(fmean(column)) for column in columns)

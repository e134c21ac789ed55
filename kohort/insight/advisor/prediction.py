"""Predicts the outcome of a setting: the mean of several replays with different random seeds.

Heartbeat times are random in the replay, as in reality.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import sqrt
from statistics import fmean, median_low, stdev
from typing import Any, Final

from kohort.insight.advisor.classic_replay import ClassicReplay
from kohort.insight.advisor.consumer_replay import ConsumerReplay
from kohort.insight.advisor.outcome import ReplayOutcome
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import Trace

REPLAYS_LEAST: Final = 5
REPLAYS_MOST: Final = 20
NOTHING_MS: Final = 1_000
"""Below this stopped time, the precision of the mean does not matter."""
CLOSE: Final = 0.03
"""Replays stop when the standard error is below this share of the mean."""

_COUNTS: Final = frozenset({"rebalances", "deaths", "guessed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(ReplayOutcome):
    """The expected outcome of one setting: median counts and mean times of the replays."""

    setting: Setting
    stopped_spread_ms: int = 0
    """How far a single run may be from `stopped_ms` by chance; one run in twenty is farther."""
    stopped_by_seed: tuple[int, ...] = ()
    """`stopped_ms` of each replay, by seed from 0: predictions are compared seed by seed."""
    rebalances_by_seed: tuple[int, ...] = ()
    unread_by_seed: tuple[int, ...] = ()
    quicker: str | None = None
    """Name of the slowest member, if it was replayed as quick as the others; None: all members were
    replayed with their recorded delays."""

    @property
    def rebalances_spread(self) -> int:
        return spread(self.rebalances_by_seed)

    @property
    def unread_spread_ms(self) -> int:
        return spread(self.unread_by_seed)

    @property
    def notice_ms(self) -> int:
        """The mean crash detection time: the session timeout runs from the last heartbeat, on
        average half an interval before the crash.
        """
        return self.setting.session_timeout_ms - self.setting.heartbeat_interval_ms // 2

    @property
    def convergence_mean_ms(self) -> int:
        """The mean time from the cause of a rebalance until the group is stable."""
        return round(self.convergence_ms / max(self.rebalances, 1))


def predict(trace: Trace, setting: Setting) -> Prediction:
    """Predict the outcome of a setting; deterministic for the same arguments."""
    kind = ConsumerReplay if setting.consumer else ClassicReplay
    outcomes: list[ReplayOutcome] = []
    while not _is_enough(outcomes):
        outcomes.append(kind(trace, setting, seed=len(outcomes)).run())

    expected = {field.name: _expected(outcomes, field.name) for field in fields(ReplayOutcome)}
    return Prediction(
        **expected,
        setting=setting,
        stopped_spread_ms=spread([outcome.stopped_ms for outcome in outcomes]),
        stopped_by_seed=tuple(outcome.stopped_ms for outcome in outcomes),
        rebalances_by_seed=tuple(outcome.rebalances for outcome in outcomes),
        unread_by_seed=tuple(outcome.unread_ms for outcome in outcomes),
    )


def gain_by_pairs(
    before: tuple[int, ...], after: tuple[int, ...], *, share: float, least: float
) -> float:
    """Return the mean difference of `before` and `after` over the seeds; 0 if it is below twice
    its standard error, below `least`, or below `share` of the mean of `before`.
    """
    gains = [a - b for a, b in zip(before, after, strict=False)]
    if not gains:
        return 0.0
    gain = fmean(gains)
    return gain if gain >= max(share * fmean(before), least, 2 * _error(gains)) else 0.0


def _error(values: list[int]) -> float:
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0


def _is_enough(outcomes: list[ReplayOutcome]) -> bool:
    count = len(outcomes)
    if not REPLAYS_LEAST <= count < REPLAYS_MOST:
        return count >= REPLAYS_MOST
    stopped = [outcome.stopped_ms for outcome in outcomes]
    return stdev(stopped) <= CLOSE * sqrt(count) * max(fmean(stopped), NOTHING_MS)


def spread(values: Sequence[int]) -> int:
    """Return half the width of the 95 % prediction interval around the mean of `values`."""
    count = len(values)
    return round(_quantile(count) * stdev(values) * sqrt(1 + 1 / count)) if count > 1 else 0


def _quantile(count: int) -> float:
    """Return the 97.5 % quantile of Student's t-distribution for `count` values, by the
    Cornish-Fisher expansion. It exceeds 1.96, because small samples underestimate the spread.
    """
    z, degrees = 1.96, max(count - 1, 2)
    first = (z**3 + z) / (4 * degrees)
    return z + first + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def _expected(outcomes: list[ReplayOutcome], name: str) -> Any:  # noqa: ANN401 - of any field.
    values = [getattr(outcome, name) for outcome in outcomes]
    if name in _COUNTS:
        return median_low(values)
    if name == "stopped_by_slot":
        return tuple(round(fmean(column)) for column in zip(*values, strict=True))
    return round(fmean(values))

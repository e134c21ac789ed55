"""What is to be expected under one setting: several replays with chance of their own, and their
middle. What heartbeats decide by lot in the replay is decided by lot in life.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median_low
from typing import Final

from pipeline.advisor.outcome import Outcome
from pipeline.advisor.replay import Replay
from pipeline.advisor.setting import Setting
from pipeline.advisor.trace import Trace

SEEDS: Final = (0, 1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of one group under one setting. Times in milliseconds."""

    setting: Setting
    rebalances: int
    stopped_ms: int
    """All members together."""
    stopped_longest_ms: int
    stopped_by_slot: tuple[int, ...]
    """By the trace's slots."""
    unread_ms: int
    """All partitions together: nobody read them."""
    unread_longest_ms: int
    deaths: int
    unnoticed_ms: int
    """From the death of processes until the group went on without them, all together."""
    unnoticed_longest_ms: int

    @property
    def notice_ms(self) -> int:
        """Until a crash is noticed, in the middle: it comes between two heartbeats."""
        return self.setting.session_timeout_ms - self.setting.heartbeat_interval_ms // 2


def predict(trace: Trace, setting: Setting, seeds: tuple[int, ...] = SEEDS) -> Prediction:
    """The same for the same arguments, wherever it is worked out."""
    outcomes = [Replay(trace, setting, seed=seed).run() for seed in seeds]

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
    )


def _by_slot(outcomes: list[Outcome]) -> tuple[int, ...]:
    columns = zip(*(one.stopped_by_slot for one in outcomes), strict=True)
    return tuple(round(fmean(column)) for column in columns)

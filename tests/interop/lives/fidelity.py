"""What the advisor predicts of lives that were lived, held against how they were lived."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from kohort.pipeline.advisor.advice import doubt
from kohort.pipeline.advisor.prediction import Prediction, predict
from kohort.pipeline.advisor.reading import read_trace
from kohort.pipeline.advisor.setting import Setting
from kohort.pipeline.advisor.trace import Uncertainty
from tests.interop.lives.life import HEARTBEAT_MS, Life, Way, seen

CLOSE: Final = 0.10
"""The largest error that is close, as a share of the stopped time."""
CHANCE_MS: Final = 1_000
"""What is less than that is chance, to the advisor too."""
ALIKE: Final = 0.25
ALIKE_MS: Final = 2_000
"""How far lives under one setting may be apart. Further apart, it was not the same life twice: the
machine had no time for its processes, and nothing can be said of them.
"""
APART: Final = 1.25
"""Two ways whose lives differ by so much have an order."""


@dataclass(frozen=True)
class Cell:
    """One way of living, predicted from a life that was lived in one way."""

    recorded: Way
    tried: Way
    predicted: Prediction
    lived: tuple[tuple[int, int], ...]
    """Rebalances and stopped ms of each life under `tried`."""
    doubt: Uncertainty | None
    """Why the advisor would not rank it."""
    is_steady: bool
    """Both ways were lived alike each time."""

    @property
    def lived_ms(self) -> float:
        return fmean(stopped_ms for _, stopped_ms in self.lived)

    @property
    def is_counted(self) -> bool:
        """Within one rebalance of a life."""
        return any(abs(self.predicted.rebalances - count) <= 1 for count, _ in self.lived)

    @property
    def error(self) -> float:
        return (self.predicted.stopped_ms - self.lived_ms) / self.lived_ms

    @property
    def is_within(self) -> bool:
        """Within a tenth of the mean of the lives."""
        return abs(self.error) <= CLOSE

    @property
    def is_close(self) -> bool:
        """The same, or within what is chance."""
        return self.is_within or abs(self.predicted.stopped_ms - self.lived_ms) <= CHANCE_MS

    def __str__(self) -> str:
        one = self.predicted
        lived = "; ".join(f"{count}, {ms / 1000:.1f} s" for count, ms in self.lived)
        return (
            f"{self.recorded!s:>24} -> {self.tried!s:<24} {one.rebalances:>3}, "
            f"{one.stopped_ms / 1000:5.1f} s ± {one.stopped_spread_ms / 1000:3.1f}   lived {lived}"
            f"   {self.error:+4.0%}{'' if self.is_counted else '  COUNT'}"
            f"{'' if self.doubt is None else f'  not ranked ({self.doubt.name})'}"
            f"{'' if self.is_steady else '  not the same life twice'}"
        )


def cells(lives: Sequence[Life]) -> Iterator[Cell]:
    """Each life as a recording, and each way that was lived as what is tried."""
    by_way: dict[Way, list[Life]] = {}
    for life in lives:
        by_way.setdefault(life.way, []).append(life)
    steady = {way for way, others in by_way.items() if _are_alike(others)}
    for life in lives:
        trace = read_trace(life.group, life.records)
        assert trace is not None
        for way, others in by_way.items():
            predicted = predict(trace, _setting(trace.recorded, way))
            yield Cell(
                recorded=life.way,
                tried=way,
                predicted=predicted,
                lived=tuple(seen(other.records) for other in others),
                doubt=None if way == life.way else doubt(trace, predicted),
                is_steady={way, life.way} <= steady,
            )


def _are_alike(lives: Sequence[Life]) -> bool:
    outcomes = [seen(life.records) for life in lives]
    counts = [count for count, _ in outcomes]
    stopped = [stopped_ms for _, stopped_ms in outcomes]
    is_close = max(stopped) - min(stopped) <= max(ALIKE * max(stopped), ALIKE_MS)
    return is_close and max(counts) - min(counts) <= 1


def _setting(recorded: Setting, way: Way) -> Setting:
    return replace(
        recorded,
        static=way.static,
        cooperative=way.cooperative,
        session_timeout_ms=way.session_timeout_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )


def disorder(found: Sequence[Cell]) -> list[str]:
    """Pairs of ways that were predicted in another order than they were lived, by recording."""
    by_recording: Mapping[Way, list[Cell]] = {}
    by_recording = {way: [one for one in found if one.recorded == way] for way in _ways(found)}
    wrong = []
    for recorded, of_recording in by_recording.items():
        ranked = [one for one in of_recording if one.doubt is None and one.is_steady]
        for one, other in itertools.permutations(ranked, 2):
            is_better = one.lived_ms * APART + CHANCE_MS < other.lived_ms
            if is_better and one.predicted.stopped_ms >= other.predicted.stopped_ms:
                wrong.append(f"from {recorded}: {one.tried} before {other.tried}")
    return wrong


def _ways(found: Sequence[Cell]) -> list[Way]:
    return list(dict.fromkeys(one.recorded for one in found))


def table(library: str, found: Sequence[Cell]) -> str:
    """All cells, and how many of them came true."""
    ranked = [one for one in found if one.doubt is None and one.is_steady]

    def summed(name: str, chosen: Sequence[Cell]) -> str:
        counted = sum(one.is_counted for one in chosen)
        within = sum(one.is_counted and one.is_within for one in chosen)
        close = sum(one.is_counted and one.is_close for one in chosen)
        return (
            f"{name}: {len(chosen)} cells; count within 1 in {counted}; and stopped time within "
            f"10 % in {within}, within 10 % or 1 s in {close}"
        )

    rows = [f"{library}: what was recorded -> what was tried, predicted, and lived"]
    rows += [str(one) for one in found]
    rows += [summed("ranked, of lives that agree with themselves", ranked), summed("all", found)]
    return "\n  ".join(rows)

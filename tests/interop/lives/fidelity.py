"""What the advisor predicts of lives that were lived, held against how they were lived."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from kohort.insight.advisor.advice import Advice, advise, doubt
from kohort.insight.advisor.computation import with_quick_slot
from kohort.insight.advisor.prediction import Prediction, predict
from kohort.insight.advisor.reading import read_trace
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import Trace, Uncertainty
from tests.interop.lives.life import QUICK_S, Life, Way, seen

WITHIN: Final = 0.10
"""The largest error of a prediction that is told to have come true, as a share of the stopped
time."""
COUNTED_LEAST: Final = 0.9
TRUE_LEAST: Final = 0.8
ADVISED_LEAST: Final = 0.9
"""Minimum shares: of predictions with the right count, of those with the right stopped time, and of
recordings whose check allows advice."""
CHANCE_MS: Final = 1_000
"""Settings whose stopped times differ by less are not ordered."""
ALIKE: Final = 0.25
ALIKE_MS: Final = 2_000
ALIKE_COUNT: Final = 0.1
"""How far two runs under one setting may differ. If they differ more, the machine was overloaded
and the runs are not judged.
"""
APART: Final = 1.25
"""Two settings whose runs differ by this factor are ordered."""


@dataclass(frozen=True)
class Cell:
    """A setting, predicted from a run under another one."""

    recorded: Way
    tried: Way
    predicted: Prediction
    lived: tuple[tuple[int, int], ...]
    """Rebalances and stopped ms of each run under `tried`."""
    doubt: Uncertainty | None
    """Why the advisor does not rank it."""
    is_steady: bool
    """Whether the runs under either setting were alike."""

    @property
    def lived_mean(self) -> tuple[float, float]:
        """Mean rebalances and stopped ms of the runs."""
        return fmean(count for count, _ in self.lived), fmean(ms for _, ms in self.lived)

    @property
    def lived_ms(self) -> float:
        return self.lived_mean[1]

    @property
    def is_counted(self) -> bool:
        """Whether the count is within one rebalance of a run's."""
        return any(abs(self.predicted.rebalances - count) <= 1 for count, _ in self.lived)

    @property
    def error(self) -> float:
        return (self.predicted.stopped_ms - self.lived_ms) / self.lived_ms

    @property
    def is_within(self) -> bool:
        """Whether the stopped time is within a tenth of the runs' mean, or within the spread."""
        off_ms = abs(self.predicted.stopped_ms - self.lived_ms)
        return abs(self.error) <= WITHIN or off_ms <= self.predicted.stopped_spread_ms

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


@dataclass(frozen=True)
class Recording:
    """A life, what is predicted of it under each way that was lived, and what is advised."""

    way: Way
    cells: tuple[Cell, ...]
    advice: Advice
    """A choice of the ways that were lived, which can be held against the lives."""

    @property
    def starred(self) -> Cell | None:
        best = self.advice.best
        return next((one for one in self.cells if one.predicted == best), None)

    @property
    def is_kept(self) -> bool:
        """Whether the recommended setting was better when it was run: less of one figure, more of
        neither.
        """
        if self.starred is None:
            return True
        after = self.starred.lived_mean
        before = next(one.lived_mean for one in self.cells if one.tried == self.way)
        return after != before and all(a <= b for a, b in zip(after, before, strict=True))

    def __str__(self) -> str:
        if self.starred is None:
            why = f" ({self.advice.check})" if self.advice.is_off else ""
            return f"{self.way!s:>24}    no star{why}"
        kept = "" if self.is_kept else "  NOT BETTER WHEN LIVED"
        return f"{self.way!s:>24} *  {self.starred.tried}{kept}"


def recordings(lives: Sequence[Life]) -> Iterator[Recording]:
    """Yield each run as a recording, with predictions for all settings that were run."""
    by_way: dict[Way, list[Life]] = {}
    for life in lives:
        by_way.setdefault(life.way, []).append(life)
    steady = {way for way, others in by_way.items() if _are_alike(others)}
    for life in lives:
        trace = read_trace(life.group, life.records)
        assert trace is not None
        cells = []
        for way, others in by_way.items():
            predicted = _predict(trace, life.way, way)
            if predicted is None:
                continue
            cell = Cell(
                recorded=life.way,
                tried=way,
                predicted=predicted,
                lived=tuple(seen(other.records) for other in others),
                doubt=doubt(trace, predicted),
                is_steady={way, life.way} <= steady,
            )
            cells.append(cell)
        yield Recording(life.way, tuple(cells), advise(trace, (one.predicted for one in cells)))


def _predict(trace: Trace, lived: Way, way: Way) -> Prediction | None:
    """Return the advisor's prediction for another setting; None if it makes none."""
    if lived.consumer and not way.consumer:
        return None
    setting = trace.recorded if replace(way, slow_s=lived.slow_s) == lived else None
    if way.slow_s == lived.slow_s:
        return predict(trace, setting or _setting(trace.recorded, way))
    if setting is None or way.slow_s != QUICK_S:
        return None
    quick = with_quick_slot(trace)
    assert quick is not None
    name, quick_trace = quick
    return replace(predict(quick_trace, setting), quicker=name)


def _are_alike(lives: Sequence[Life]) -> bool:
    outcomes = [seen(life.records) for life in lives]
    counts = [count for count, _ in outcomes]
    stopped = [stopped_ms for _, stopped_ms in outcomes]
    is_close = max(stopped) - min(stopped) <= max(ALIKE * max(stopped), ALIKE_MS)
    return is_close and max(counts) - min(counts) <= max(ALIKE_COUNT * max(counts), 1)


def _setting(recorded: Setting, way: Way) -> Setting:
    return replace(
        recorded,
        static=way.static,
        cooperative=way.cooperative,
        consumer=way.consumer,
        session_timeout_ms=way.session_timeout_ms,
        heartbeat_interval_ms=way.heartbeat_interval_ms,
    )


def disorder(recording: Recording) -> list[str]:
    """Pairs of settings that were predicted in another order than they were lived."""
    ranked = [
        one
        for one in recording.cells
        if one.doubt is None and one.is_steady and one.predicted.quicker is None
    ]
    wrong = []
    for one, other in itertools.permutations(ranked, 2):
        is_better = one.lived_ms * APART + CHANCE_MS < other.lived_ms
        if is_better and one.predicted.stopped_ms >= other.predicted.stopped_ms:
            wrong.append(f"from {recording.way}: {one.tried} before {other.tried}")
    return wrong


class TooBusyError(Exception):
    """The machine was too busy for the same life to be lived twice."""


def hold(found: Sequence[Recording]) -> None:
    """Hold what was predicted and advised against what was lived.

    Raises:
        TooBusyError: the lives do not agree with themselves.
        AssertionError: they do not agree with the advisor.
    """
    _hold_predictions(_ranked(found))
    off = [str(recording) for recording in found if recording.advice.is_off]
    assert len(off) <= (1 - ADVISED_LEAST) * len(found), off
    assert [wrong for recording in found for wrong in disorder(recording)] == []
    assert any(recording.starred for recording in found)
    assert [str(recording) for recording in found if not recording.is_kept] == []


def _ranked(found: Sequence[Recording]) -> list[Cell]:
    """Return the ranked predictions of settings whose runs were alike. Raises TooBusyError."""
    cells = [one for recording in found for one in recording.cells]
    steady = [one for one in cells if one.is_steady]
    if len(steady) < len(cells) / 2:
        raise TooBusyError("the machine was too busy for the same life to be lived twice")
    return [one for one in steady if one.doubt is None]


def _hold_predictions(cells: Sequence[Cell]) -> None:
    miscounted = [str(one) for one in cells if not one.is_counted]
    assert len(miscounted) <= (1 - COUNTED_LEAST) * len(cells), miscounted
    missed = [str(one) for one in cells if not one.is_within]
    assert len(missed) <= (1 - TRUE_LEAST) * len(cells), missed


def hold_consumers(found: Sequence[Recording]) -> None:
    """Hold what was predicted of consumer groups against how they were lived. From static members,
    the advisor may recommend a setting with less stopped time but more rebalances.

    Raises:
        TooBusyError, AssertionError: as by `hold`.
    """
    cells = [one for one in _ranked(found) if one.tried.consumer]
    assert len(cells) >= len(found)
    _hold_predictions(cells)
    of_dynamic = [recording for recording in found if not recording.way.static]
    assert any(recording.starred for recording in of_dynamic)
    assert [str(recording) for recording in of_dynamic if not recording.is_kept] == []


def table(library: str, found: Sequence[Recording]) -> str:
    """All cells, how many of them came true, and what has a star."""
    cells = [one for recording in found for one in recording.cells]
    ranked = [one for one in cells if one.doubt is None and one.is_steady]

    def summed(name: str, chosen: Sequence[Cell]) -> str:
        counted = sum(one.is_counted for one in chosen)
        within = sum(one.is_within for one in chosen)
        return (
            f"{name}: {len(chosen)} cells; count within 1 in {counted}, stopped time within 10 % "
            f"in {within}"
        )

    rows = [f"{library}: what was recorded -> what was tried, predicted, and lived"]
    rows += [str(one) for one in cells]
    rows += [summed("ranked, of lives that agree with themselves", ranked), summed("all", cells)]
    rows += [str(one) for one in found]
    return "\n  ".join(rows)

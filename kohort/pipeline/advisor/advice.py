"""Which settings are worth a thought, and which one is to be advised.

Four things are weighed: rebalances, stopped time, time that partitions have no reader, and how late
a crash is noticed. A setting is worth a thought if no other is at least as good in all of them and
better in one (the Pareto front). A setting whose outcome rests on something that the history does
not say is not weighed at all; nothing is advised where the replay of the settings of the time is
not the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log1p
from typing import Final, TypeAlias

from kohort.pipeline.advisor.prediction import Prediction, beats_by_pairs
from kohort.pipeline.advisor.setting import Setting
from kohort.pipeline.advisor.trace import Doubt, Trace
from kohort.pipeline.advisor.words import check, counted, words

STOPPED_STEP_MS: Final = 1_000
"""Differences in stopped time below it are chance."""
GAIN_LEAST: Final = 0.05
"""A setting must gain so much over its neighbours on the front to be told of."""
UNREAD_TOLD: Final = 0.1
"""Share of the time without a reader: a smaller difference is not told of."""
UNREAD_WEIGHT: Final = 0.75
"""Beside one of the count of rebalances and of stopped time: the history does not know how much
there is to read of a partition.
"""
UNREAD_MOST: Final = 2.0
"""What leaves partitions without a reader for so many times as long is not taken for fewer
rebalances."""
UNREAD_SLACK_MS: Final = 5_000
"""For each partition, so that a few seconds of a quiet history are not many times nothing."""
UNREAD_OF_BEST: Final = 1.25
"""The same of what is advised."""
LATER_MOST_MS: Final = 60_000
"""Nor is what notices a crash so much later than now."""
CHECK_MOST: Final = 0.2
"""How far the replay of the settings of the time may be off for anything to be advised."""
CHECK_REBALANCES: Final = 1
TOLD_MAX: Final = 6

_Point: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for one group."""

    trace: Trace
    recorded: Prediction
    """What the replay makes of the settings of the time."""
    front: tuple[Prediction, ...]
    """From the quickest to notice a crash to the slowest."""
    best: Prediction | None
    """The one that gains most, all in all; None if none gains anything, or `is_off`."""
    check: str
    """How well the replay of the settings of the time fits the history."""
    is_off: bool
    """It does not fit well enough."""
    unranked: tuple[str, ...]
    """Settings that were not weighed, and why: a line for each reason."""
    quicker: Prediction | None
    """What would come of it if the member that others waited for most were as quick as they."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """What the history does not say, in words."""
        return self.trace.unknown

    def lines(self) -> list[str]:
        """For people."""
        said = [words(self.recorded, one) for one in self.front]
        if not said:
            said = ["nothing that was tried would have been better than what there is"]
        if self.quicker is not None:
            said.append(words(self.recorded, self.quicker))
        notes = [*self.unranked, *(f"not known: {text}" for text in self.unknown)]
        return [*said, self.check, *notes]


def advise(trace: Trace, predictions: Iterable[Prediction]) -> Advice:
    """Weigh what was predicted for a group; what it was recorded under must be among it."""
    listed = list(predictions)
    recorded = next(one for one in listed if one.setting == trace.recorded and not one.quicker)
    quicker = next((one for one in listed if one.quicker), None)
    settings = [one for one in listed if not one.quicker]
    doubted = [(one, doubt(trace, one.setting)) for one in settings]
    ranked = _worth_a_delay([one for one, why in doubted if why is None])
    slack_ms = UNREAD_SLACK_MS * trace.partition_count
    most_ms = round(UNREAD_MOST * recorded.unread_ms) + slack_ms
    of_best_ms = round(UNREAD_OF_BEST * recorded.unread_ms) + slack_ms // 2
    takers = [one for one in ranked if one is recorded or _is_taken(one, recorded, most_ms)]
    front = _told(pareto_front(takers, trace.recorded), recorded)
    is_off = _is_off(trace, recorded)
    gains = [
        one
        for one in front
        if _score(one, recorded) < _score(recorded, recorded)
        and _is_taken(one, recorded, of_best_ms)
    ]
    best = min(gains, key=lambda one: _score(one, recorded), default=None)
    return Advice(
        trace=trace,
        recorded=recorded,
        front=tuple(front),
        best=None if is_off else best,
        check=_checked(trace, recorded, is_off=is_off),
        is_off=is_off,
        unranked=tuple(_unranked(why for _, why in doubted if why is not None)),
        quicker=quicker if quicker and _gains_on(quicker, recorded) else None,
    )


def doubt(trace: Trace, one: Setting) -> Doubt | None:
    """What is not known and decides what this setting comes to; None if nothing does."""
    recorded = trace.recorded
    if one == recorded:
        return None
    has_left_static = recorded.static is True and one.static is not True
    is_shorter = one.session_timeout_ms < recorded.session_timeout_ms
    is_longer = one.session_timeout_ms > recorded.session_timeout_ms
    changes_mode = one.cooperative != recorded.cooperative
    applies = {
        Doubt.ABSENCES: is_shorter and one.static is not False,
        Doubt.CRASHES: has_left_static,
        Doubt.PAUSES: is_longer and one.static is False,
        Doubt.MODE: changes_mode,
        Doubt.REVOCATIONS: changes_mode and recorded.cooperative,
        Doubt.JOINS: changes_mode,
        Doubt.SILENCES: is_shorter,
    }
    doubts = (*trace.doubts, Doubt.SILENCES)
    return next((found for found in doubts if applies[found]), None)


def _unranked(doubts: Iterable[Doubt]) -> list[str]:
    return [
        f"not ranked: {counted(count, 'setting')}, since {why.value}"
        for why, count in Counter(doubts).items()
    ]


def _worth_a_delay(predictions: list[Prediction]) -> list[Prediction]:
    """Without those with another initial delay that do not beat the same without it."""
    by_setting = {one.setting: one for one in predictions}
    delay_ms = predictions[0].setting.initial_rebalance_delay_ms
    chosen = []
    for one in predictions:
        same = by_setting.get(replace(one.setting, initial_rebalance_delay_ms=delay_ms))
        if same is None or same is one or beats_by_pairs(one, same):
            chosen.append(one)
    return chosen


def _is_taken(one: Prediction, recorded: Prediction, unread_most_ms: int) -> bool:
    """Would anybody pay this price?"""
    is_read = one.unread_ms <= unread_most_ms
    return is_read and one.notice_ms - recorded.notice_ms <= LATER_MOST_MS


def _is_off(trace: Trace, recorded: Prediction) -> bool:
    """Is the replay of the settings of the time another life than that of the history?"""
    count = trace.rebalances
    is_off = abs(recorded.rebalances - count) > max(CHECK_MOST * count, CHECK_REBALANCES)
    if trace.stopped_ms is None:
        return is_off
    least_ms = max(CHECK_MOST * trace.stopped_ms, STOPPED_STEP_MS, recorded.stopped_spread_ms)
    return is_off or abs(recorded.stopped_ms - trace.stopped_ms) > least_ms


def _checked(trace: Trace, recorded: Prediction, *, is_off: bool) -> str:
    text = check(trace, recorded)
    return f"{text}; too far off for anything to be advised" if is_off else text


def pareto_front(predictions: Sequence[Prediction], recorded: Setting) -> list[Prediction]:
    """The predictions that no other one beats, quickest to notice a crash first.

    Of several that come to the same, the one that changes least.
    """
    best: dict[_Point, Prediction] = {}
    for one in predictions:
        point = _point(one)
        other = best.get(point)
        if other is None or _effort(one, recorded) < _effort(other, recorded):
            best[point] = one
    points = sorted(best)
    return [best[point] for point in points if not any(_beats(other, point) for other in points)]


def _effort(one: Prediction, recorded: Setting) -> tuple[int, str]:
    return one.setting.differences(recorded), str(one.setting)


def _point(one: Prediction) -> _Point:
    return one.notice_ms, one.rebalances, _step(one.stopped_ms), _step(one.unread_ms)


def _step(duration_ms: int) -> int:
    """The same for durations that are the same but for chance."""
    return round(log1p(duration_ms / STOPPED_STEP_MS) / log1p(GAIN_LEAST))


def _beats(one: _Point, other: _Point) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _told(front: list[Prediction], recorded: Prediction) -> list[Prediction]:
    """Without what is recorded, what gains nothing, and what hardly differs from its neighbour."""
    chosen: list[Prediction] = []
    for one in front:
        if one.setting == recorded.setting or not _gains_on(one, recorded):
            continue
        if chosen and not _gains_on(one, chosen[-1]):
            continue
        chosen.append(one)
    if len(chosen) <= TOLD_MAX:
        return chosen
    ranked = sorted(chosen, key=lambda one: _score(one, recorded))[:TOLD_MAX]
    return [one for one in chosen if one in ranked]


def _gains_on(one: Prediction, other: Prediction) -> bool:
    fewer = one.rebalances <= other.rebalances * (1 - GAIN_LEAST) - 0.5
    # What chance may give or take is no gain.
    least_ms = max(other.stopped_ms * GAIN_LEAST + STOPPED_STEP_MS, one.stopped_spread_ms)
    shorter = one.stopped_ms <= other.stopped_ms - least_ms
    is_read_more = one.unread_ms <= other.unread_ms * (1 - UNREAD_TOLD) - STOPPED_STEP_MS
    return fewer or shorter or is_read_more


def _score(one: Prediction, recorded: Prediction) -> float:
    """Shares of what there was; less is better. A late notice counts little of itself: what it
    costs is in the time that partitions have no reader.
    """
    return (
        one.rebalances / max(recorded.rebalances, 1)
        + one.stopped_ms / max(recorded.stopped_ms, STOPPED_STEP_MS)
        + UNREAD_WEIGHT * one.unread_ms / max(recorded.unread_ms, STOPPED_STEP_MS)
        + 0.1 * one.notice_ms / recorded.notice_ms
    )

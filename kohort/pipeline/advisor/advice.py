"""Which settings are worth a thought, in plain words.

Four things are weighed: rebalances, stopped time, time that partitions have no reader, and how late
a crash is noticed. A setting is worth a thought if no other is at least as good in all of them and
better in one (the Pareto front).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log1p
from typing import Final, TypeAlias

from kohort.pipeline.advisor.prediction import Prediction
from kohort.pipeline.advisor.setting import Setting
from kohort.pipeline.advisor.trace import Trace

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
TOLD_MAX: Final = 6
SPREAD_TOLD: Final = 0.1
"""Share of the stopped time by which chance has to move it for the advice to say so."""

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
    """The one that gains most, all in all; None if none gains anything."""
    check: str
    """How well the replay of the settings of the time fits the history."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """What the history does not say, in words."""
        return self.trace.unknown

    def lines(self) -> list[str]:
        """For people."""
        said = [words(self.recorded, one) for one in self.front]
        if not said:
            said = ["nothing that was tried would have been better than what there is"]
        return [*said, self.check, *(f"not known: {text}" for text in self.unknown)]


def advise(trace: Trace, predictions: Iterable[Prediction]) -> Advice:
    """Weigh what was predicted for a group; what it was recorded under must be among it."""
    listed = list(predictions)
    recorded = next(one for one in listed if one.setting == trace.recorded)
    front = _told(pareto_front(listed, trace.recorded), recorded)
    gains = [one for one in front if _score(one, recorded) < _score(recorded, recorded)]
    return Advice(
        trace=trace,
        recorded=recorded,
        front=tuple(front),
        best=min(gains, key=lambda one: _score(one, recorded), default=None),
        check=_check(trace, recorded),
    )


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


# Words.


def words(recorded: Prediction, one: Prediction) -> str:
    """What a setting would change, and what it would cost."""
    text = (
        f"{changes(recorded.setting, one.setting)}: "
        f"{recorded.rebalances} -> {_counted(one.rebalances)}, "
        f"{seconds(recorded.stopped_ms)} -> {seconds(one.stopped_ms)} s stopped{_by_chance(one)}"
    )
    return "; ".join([text, _notice(recorded, one), *_unread(recorded, one)])


def _notice(recorded: Prediction, one: Prediction) -> str:
    later_ms = one.notice_ms - recorded.notice_ms
    if abs(later_ms) < STOPPED_STEP_MS:
        return "a crash is noticed as soon as now"
    text = f"a crash is noticed {seconds(abs(later_ms))} s "
    if later_ms > 0:
        return f"{text}later"
    if one.setting.session_timeout_ms >= recorded.setting.session_timeout_ms:
        return f"{text}sooner"
    return (
        f"{text}sooner, and a pause of {seconds(one.setting.session_timeout_ms)} s is taken for one"
    )


def _unread(recorded: Prediction, one: Prediction) -> list[str]:
    """The price of whatever keeps partitions where they are while they are not read."""
    least_ms = max(recorded.unread_ms * UNREAD_TOLD, STOPPED_STEP_MS)
    if abs(one.unread_ms - recorded.unread_ms) <= least_ms:
        return []
    before, after = seconds(recorded.unread_ms), seconds(one.unread_ms)
    return [f"partitions without a reader for {before} -> {after} s, all together"]


def is_by_chance(one: Prediction) -> bool:
    """May one life be so far from what is predicted, by chance alone, that it has to be said?"""
    return one.stopped_spread_ms > max(SPREAD_TOLD * one.stopped_ms, STOPPED_STEP_MS)


def _by_chance(one: Prediction) -> str:
    return f", give or take {seconds(one.stopped_spread_ms)} s" if is_by_chance(one) else ""


def changes(recorded: Setting, one: Setting) -> str:
    """What has to be set."""
    first: list[str] = []
    if one.static != recorded.static:
        first.append({True: "static", False: "dynamic", None: "mixed"}[one.static] + " membership")
    if one.cooperative != recorded.cooperative:
        first.append("a cooperative assignor" if one.cooperative else "an eager assignor")
    if one.states_reasons != recorded.states_reasons:
        first.append("clients that state JoinReason" if one.states_reasons else "stock clients")
    values: list[str] = []
    if one.session_timeout_ms != recorded.session_timeout_ms:
        values.append(f"a {seconds(one.session_timeout_ms)} s session")
    if one.heartbeat_interval_ms != recorded.heartbeat_interval_ms:
        values.append(f"heartbeats every {seconds(one.heartbeat_interval_ms)} s")
    if one.rebalance_timeout_ms != recorded.rebalance_timeout_ms:
        values.append(f"max.poll.interval.ms of {seconds(one.rebalance_timeout_ms)} s")
    if one.initial_rebalance_delay_ms != recorded.initial_rebalance_delay_ms:
        values.append(f"an initial delay of {seconds(one.initial_rebalance_delay_ms)} s")
    if first and values:
        return f"{_listed(first)} with {_listed(values)}"
    return _listed(first or values) or "no change"


def _listed(texts: list[str]) -> str:
    return ", ".join(texts[:-1]) + (" and " if len(texts) > 1 else "") + texts[-1] if texts else ""


def seconds(duration_ms: int) -> str:
    """The duration in seconds, as people say it."""
    value = duration_ms / 1000
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")


def _counted(rebalances: int) -> str:
    return f"{rebalances} rebalance" + ("" if rebalances == 1 else "s")


def _check(trace: Trace, recorded: Prediction) -> str:
    text = (
        f"check: with the settings of the time the replay has {_counted(recorded.rebalances)}, "
        f"the history {trace.rebalances}"
    )
    if trace.stopped_ms is not None:
        text += (
            f"; {seconds(recorded.stopped_ms)} s stopped, the history {seconds(trace.stopped_ms)} s"
        )
    return text

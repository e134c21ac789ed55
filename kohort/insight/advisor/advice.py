"""Which settings are worth a thought, and which one is to be advised.

Four things are weighed: rebalances, stopped time, time that partitions have no reader, and how late
a crash is noticed. A setting is worth a thought if no other is at least as good in all of them and
better in one (the Pareto front). A setting whose outcome rests on something that the history does
not say is not weighed at all; nothing is advised where the replay of the settings of the time is
not the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import log1p
from typing import Final, TypeAlias

from kohort.insight.advisor.prediction import Prediction
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import Trace, Uncertainty
from kohort.insight.advisor.weighing import (
    CHANCE_MS,
    GAIN_LEAST,
    UNREAD_TOLD,
    earns_its_parts,
    score,
)
from kohort.insight.advisor.words import TOO_FAR, check, counted, nothing_better, words

UNREAD_MOST: Final = 2.0
"""How many times as long as now a setting of the front may leave partitions without a reader."""
UNREAD_SLACK_MS: Final = 5_000
"""Time without a reader that is allowed for each partition, so that a few seconds of a quiet
history do not count as a large multiple of nothing."""
UNREAD_OF_BEST: Final = 1.25
"""The same for `best`."""
LATER_MOST_MS: Final = 60_000
"""How much later than now a crash may be noticed under a setting of the front."""
CHECK_MOST: Final = 0.2
"""How far the replay of the settings of the time may be off for anything to be advised."""
SHOWN_MS: Final = 100
"""The check line shows tenths of a second: what is not seen in it is not off."""
GUESSED_MOST: Final = 0.1
"""Share of the rebalances: where more of them wait for a member of which it is not known how long
it takes to join, their stopped time is not known either."""
TOLD_MAX: Final = 6

_Point: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for one group."""

    trace: Trace
    recorded: Prediction
    """What the replay makes of the settings of the time."""
    front: tuple[Prediction, ...]
    """The settings worth considering, from the quickest to notice a crash to the slowest."""
    best: Prediction | None
    """The one that gains most, all in all; None if none gains anything, or `is_off`."""
    check: str
    """How well the replay of the settings of the time fits the history."""
    is_off: bool
    """Whether that replay does not fit the history well enough."""
    unranked: tuple[str, ...]
    """Settings that were not weighed, and why: a line for each reason."""
    quicker: Prediction | None
    """What would come of it if the member that others waited for most were as quick as they."""
    both: Prediction | None = None
    """The same under the settings of `best`; None without either."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """What the history does not say, in words."""
        return self.trace.unknown

    @property
    def nothing(self) -> str:
        """What is said where the front is empty."""
        return nothing_better(self.unranked)

    def lines(self) -> list[str]:
        """The advice as lines for people to read."""
        said = [words(self.recorded, one) for one in self.front]
        if not said:
            said = [self.nothing]
        if self.quicker is not None:
            said.append(words(self.recorded, self.quicker))
        notes = [*self.unranked, *(f"not known: {text}" for text in self.unknown)]
        return [*said, self.check, *notes]


def advise(trace: Trace, predictions: Iterable[Prediction]) -> Advice:
    """Weigh what was predicted for a group; what it was recorded under must be among it."""
    listed = list(predictions)
    settings = {one.setting: one for one in listed if not one.quicker}
    recorded = settings[trace.recorded]
    quick = {one.setting: one for one in listed if one.quicker}
    quicker = quick.get(trace.recorded)
    if quicker is not None and not _gains_on(quicker, recorded):
        quicker = None
    doubted = [(one, doubt(trace, one)) for one in settings.values()]
    known = [one for one, why in doubted if why is None]
    front, best = _weighed(trace, known, settings)
    is_off = _is_off(trace, recorded)
    best = None if best is None or is_off else settings[best.setting]
    return Advice(
        trace=trace,
        recorded=recorded,
        front=tuple(settings[one.setting] for one in front),
        best=best,
        check=_checked(trace, recorded, is_off=is_off),
        is_off=is_off,
        unranked=tuple(_unranked(why for _, why in doubted if why is not None)),
        quicker=quicker,
        both=None if best is None or quicker is None else quick.get(best.setting),
    )


def _weighed(
    trace: Trace, known: list[Prediction], settings: dict[Setting, Prediction]
) -> tuple[list[Prediction], Prediction | None]:
    """The front and the best of it, of those of which all is known that they rest on."""
    if Uncertainty.JOINS in trace.doubts:
        # All stopped times are those of members that take as long as by default: they weigh
        # nothing.
        known = [_without_stops(one) for one in known]
        settings = {one: _without_stops(tried) for one, tried in settings.items()}
    recorded = settings[trace.recorded]
    slack_ms = UNREAD_SLACK_MS * max(trace.partition_count, 1)
    ranked = [one for one in known if earns_its_parts(one, trace.recorded, settings, slack_ms)]

    def all_in_all(one: Prediction) -> float:
        return score(one, recorded, slack_ms)

    most_ms = round(UNREAD_MOST * recorded.unread_ms) + slack_ms
    of_best_ms = round(UNREAD_OF_BEST * recorded.unread_ms) + slack_ms // 2
    takers = [
        one for one in ranked if one.setting == trace.recorded or _is_taken(one, recorded, most_ms)
    ]
    front = _told(pareto_front(takers, trace.recorded), recorded, all_in_all)
    gains = [
        one
        for one in front
        if all_in_all(one) < all_in_all(recorded) and _is_taken(one, recorded, of_best_ms)
    ]
    return front, min(gains, key=all_in_all, default=None)


def _without_stops(one: Prediction) -> Prediction:
    none = (0,) * len(one.stopped_by_seed)
    return replace(one, stopped_ms=0, stopped_by_seed=none, stopped_spread_ms=0)


def doubt(trace: Trace, prediction: Prediction) -> Uncertainty | None:
    """What is not known and decides what this setting comes to; None if nothing does."""
    recorded, one = trace.recorded, prediction.setting
    if one == recorded:
        return None
    has_left_static = recorded.static is True and one.static is not True
    becomes_static = one.static is True and recorded.static is not True
    is_shorter = one.session_timeout_ms < recorded.session_timeout_ms
    is_longer = one.session_timeout_ms > recorded.session_timeout_ms
    changes_mode = one.cooperative != recorded.cooperative
    is_guessed = prediction.guessed > GUESSED_MOST * prediction.rebalances
    applies = {
        Uncertainty.SESSION: is_shorter or is_longer or becomes_static,
        Uncertainty.HEARTBEAT: one.heartbeat_interval_ms != recorded.heartbeat_interval_ms,
        Uncertainty.TIMEOUT: one.rebalance_timeout_ms != recorded.rebalance_timeout_ms,
        Uncertainty.DELAY: one.initial_rebalance_delay_ms != recorded.initial_rebalance_delay_ms,
        Uncertainty.ABSENCES: is_shorter and one.static is not False,
        Uncertainty.CRASHES: has_left_static,
        Uncertainty.PAUSES: is_longer and one.static is False,
        Uncertainty.MODE: changes_mode,
        Uncertainty.REVOCATIONS: changes_mode and recorded.cooperative,
        Uncertainty.JOINS: changes_mode,
        Uncertainty.UNTOLD: is_guessed,
        Uncertainty.UNGIVEN: is_guessed and changes_mode,
        Uncertainty.SILENCES: is_shorter,
    }
    doubts = (*trace.doubts, Uncertainty.SILENCES)
    return next((found for found in doubts if applies[found]), None)


def _unranked(doubts: Iterable[Uncertainty]) -> list[str]:
    return [
        f"not ranked: {counted(count, 'setting')}, since {why.value}"
        for why, count in Counter(doubts).items()
    ]


def _is_taken(one: Prediction, recorded: Prediction, unread_most_ms: int) -> bool:
    """Whether the price of a setting is acceptable."""
    is_read = one.unread_ms <= unread_most_ms
    return is_read and one.notice_ms - recorded.notice_ms <= LATER_MOST_MS


def _is_off(trace: Trace, recorded: Prediction) -> bool:
    """Whether the replay under the recorded settings differs too much from the history.

    Small counts and chance are not allowed for: if the replay has two of three rebalances, its
    predictions for other settings may be just as far off, and one rebalance less is all that could
    be gained.
    """
    is_off = abs(recorded.rebalances - trace.rebalances) > CHECK_MOST * trace.rebalances
    if trace.stopped_ms is None:
        return is_off
    off_ms = abs(recorded.stopped_ms - trace.stopped_ms)
    return is_off or off_ms > max(CHECK_MOST * trace.stopped_ms, SHOWN_MS)


def _checked(trace: Trace, recorded: Prediction, *, is_off: bool) -> str:
    text = check(trace, recorded)
    return f"{text}; {TOO_FAR}" if is_off else text


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
    return one.notice_ms, one.rebalances, _level(one.stopped_ms), _level(one.unread_ms)


def _level(duration_ms: int) -> int:
    """The level of a duration; durations that differ by chance alone have the same one."""
    return round(log1p(duration_ms / CHANCE_MS) / log1p(GAIN_LEAST))


def _beats(one: _Point, other: _Point) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _told(
    front: list[Prediction], recorded: Prediction, all_in_all: Callable[[Prediction], float]
) -> list[Prediction]:
    """The predictions that are shown: not the recorded setting, none that gains nothing, and none
    that hardly differs from the one before it.
    """
    chosen: list[Prediction] = []
    for one in front:
        if one.setting == recorded.setting or not _gains_on(one, recorded):
            continue
        if chosen and not _gains_on(one, chosen[-1]):
            continue
        chosen.append(one)
    if len(chosen) <= TOLD_MAX:
        return chosen
    ranked = sorted(chosen, key=all_in_all)[:TOLD_MAX]
    return [one for one in chosen if one in ranked]


def _gains_on(one: Prediction, other: Prediction) -> bool:
    fewer = one.rebalances <= other.rebalances * (1 - GAIN_LEAST) - 0.5
    # What chance may give or take is no gain.
    least_ms = max(other.stopped_ms * GAIN_LEAST + CHANCE_MS, one.stopped_spread_ms)
    shorter = one.stopped_ms <= other.stopped_ms - least_ms
    is_read_more = one.unread_ms <= other.unread_ms * (1 - UNREAD_TOLD) - CHANCE_MS
    return fewer or shorter or is_read_more

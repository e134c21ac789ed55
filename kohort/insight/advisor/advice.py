"""Selects the settings worth considering, and recommends one.

Compares four quantities: rebalances, stopped time, time during which partitions have no reader, and
the delay until a crash is detected. A setting is worth considering if no other one is at least as
good in all four and better in one (the Pareto front). Settings whose outcome depends on facts
missing from the history are not ranked. Nothing is recommended if the replay under the recorded
settings does not match the history.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import hypot, log1p
from typing import Final, TypeAlias

from kohort.formats.text import counted
from kohort.insight.advisor.client_software import impossible
from kohort.insight.advisor.prediction import Prediction
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.text import TOO_FAR, changes, check, nothing_better
from kohort.insight.advisor.trace import Trace, Uncertainty
from kohort.insight.advisor.weighing import (
    CHANCE_MS,
    GAIN_LEAST,
    UNREAD_SHOWN,
    is_improved_by_every_part,
    score,
)

UNREAD_MOST: Final = 2.0
"""A setting is kept off the Pareto front if its unread time (partitions without a reader) exceeds
this multiple of the recorded setting's, plus UNREAD_SLACK_MS for each partition."""
UNREAD_SLACK_MS: Final = 5_000
"""Added to the limits of unread time, because a quiet history has almost none, and a few seconds
would be a large multiple of it."""
UNREAD_OF_BEST: Final = 1.25
"""No setting is recommended if its unread time exceeds this multiple of the recorded setting's,
plus half of UNREAD_SLACK_MS for each partition."""
LATER_MOST_MS: Final = 60_000
"""A setting is kept off the Pareto front if it detects a crash later than the recorded setting by
more than this."""
COUNT_OFF_MOST: Final = 0.2
STOPPED_OFF_MOST: Final = 0.1
"""Nothing is recommended if the stopped time in the replay under the recorded settings differs from
the history by more than this share, and by more than chance."""
RECOMMENDED_FROM: Final = 5
"""No setting is recommended for a history with fewer rebalances than this."""
START_MS: Final = 60_000
"""No setting is recommended for a history that is shorter than this, and in which an empty group
gets its first members."""
SHOWN_MS: Final = 100
"""Smaller deviations from the history are ignored, because `check` shows tenths of a second."""
GUESSED_MOST: Final = 0.1
"""If more than this share of the replayed rebalances have an estimated delay, the stopped time
counts as unknown."""
SHOWN_MAX: Final = 6

_Point: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Advice:
    trace: Trace
    recorded: Prediction
    predictions: tuple[Prediction, ...]
    """All predictions, that for the recorded setting first; some have `quicker` set."""
    front: tuple[Prediction, ...]
    """The settings worth considering, fastest crash detection first."""
    best: Prediction | None
    """The recommended setting; None if no setting is an improvement, the replay differs too much
    from the history (`is_off`), or the history is too short."""
    check: str
    """Text that compares the replay under the recorded settings with the history."""
    is_off: bool
    """Whether the replay under the recorded settings differs too much from the history."""
    unranked: tuple[str, ...]
    """One line for each reason why settings were not tried or not ranked."""
    quicker: Prediction | None
    """Prediction for the recorded setting if the slowest member were as fast as the others."""
    both: Prediction | None = None
    """Like `quicker`, for the recommended setting; None if `quicker` or `best` is None."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """Sentences about facts that the history does not contain."""
        return self.trace.unknown

    @property
    def is_short(self) -> bool:
        """Whether the history has too few rebalances to recommend anything."""
        return self.trace.rebalances < RECOMMENDED_FROM

    @property
    def verdict(self) -> str:
        """The recommendation, or the reason for none."""
        if self.best is not None:
            return f"Recommended: {changes(self.recorded.setting, self.best.setting)}."
        if self.is_short:
            why = f"it takes at least {RECOMMENDED_FROM} rebalances"
        elif self.is_off:
            why = "the replay differs too much from the history"
        elif not self.front:
            why = self.nothing
        else:
            why = "no setting gains more than chance does, at an acceptable cost"
        return f"No recommendation: {why}."

    @property
    def nothing(self) -> str:
        """The text shown if the Pareto front is empty."""
        return nothing_better(self.unranked)


def advise(trace: Trace, predictions: Iterable[Prediction]) -> Advice:
    """Compare the predictions for a group; they must include the recorded setting."""
    listed = list(predictions)
    settings = {prediction.setting: prediction for prediction in listed if not prediction.quicker}
    recorded = settings[trace.recorded]
    quick = {prediction.setting: prediction for prediction in listed if prediction.quicker}
    quicker = quick.get(trace.recorded)
    if quicker is not None and not _gains_on(quicker, recorded):
        quicker = None
    doubted = [(prediction, doubt(trace, prediction)) for prediction in settings.values()]
    known = [prediction for prediction, why in doubted if why is None]
    front, best = _weighed(trace, known, settings)
    is_off = _is_off(trace, recorded)
    is_start = trace.initial_rebalances > 0 and trace.end_ms - trace.begin_ms < START_MS
    if is_off or is_start or trace.rebalances < RECOMMENDED_FROM:
        best = None
    return Advice(
        trace=trace,
        recorded=recorded,
        predictions=tuple(listed),
        front=tuple(settings[prediction.setting] for prediction in front),
        best=None if best is None else settings[best.setting],
        check=_checked(trace, recorded, is_off=is_off),
        is_off=is_off,
        unranked=(
            *impossible(trace.software, trace.recorded),
            *_unranked(why for _, why in doubted if why is not None),
        ),
        quicker=quicker,
        both=None if best is None or quicker is None else quick.get(best.setting),
    )


def _weighed(
    trace: Trace, known: list[Prediction], settings: dict[Setting, Prediction]
) -> tuple[list[Prediction], Prediction | None]:
    """Return the Pareto front and its best setting; `known` are predictions without a `doubt`."""
    if Uncertainty.JOINS in trace.doubts:
        # Ignore the stopped times: the history has no join times, so all assume the default.
        known = [_without_stops(prediction) for prediction in known]
        settings = {prediction: _without_stops(tried) for prediction, tried in settings.items()}
    recorded = settings[trace.recorded]
    slack_ms = UNREAD_SLACK_MS * max(trace.partition_count, 1)
    ranked = [
        prediction
        for prediction in known
        if is_improved_by_every_part(prediction, trace.recorded, settings, slack_ms)
    ]

    def cost(prediction: Prediction) -> float:
        return score(prediction, recorded, slack_ms)

    most_ms = round(UNREAD_MOST * recorded.unread_ms) + slack_ms
    of_best_ms = round(UNREAD_OF_BEST * recorded.unread_ms) + slack_ms // 2
    acceptable = [
        prediction
        for prediction in ranked
        if prediction.setting == trace.recorded or _is_acceptable(prediction, recorded, most_ms)
    ]
    front = _select_shown(pareto_front(acceptable, trace.recorded), recorded, cost)
    front = _with_protocol(front, acceptable, recorded, cost)
    gains = [
        prediction
        for prediction in front
        if cost(prediction) < cost(recorded)
        and _is_acceptable(prediction, recorded, of_best_ms)
        and _exceeds_chance(prediction, recorded)
    ]
    return front, min(gains, key=cost, default=None)


def _without_stops(prediction: Prediction) -> Prediction:
    none = (0,) * len(prediction.stopped_by_seed)
    return replace(prediction, stopped_ms=0, stopped_by_seed=none, stopped_spread_ms=0)


def doubt(trace: Trace, prediction: Prediction) -> Uncertainty | None:
    """Return the unknown fact on which this setting's outcome depends; None if there is no such
    fact.
    """
    recorded, setting = trace.recorded, prediction.setting
    if setting == recorded:
        return None
    has_left_static = recorded.static is True and setting.static is not True
    becomes_static = setting.static is True and recorded.static is not True
    is_shorter = setting.session_timeout_ms < recorded.session_timeout_ms
    is_longer = setting.session_timeout_ms > recorded.session_timeout_ms
    changes_protocol = setting.consumer != recorded.consumer
    changes_mode = setting.cooperative != recorded.cooperative or changes_protocol
    is_guessed = prediction.guessed > GUESSED_MOST * prediction.rebalances
    applies = {
        Uncertainty.SESSION: is_shorter or is_longer or becomes_static,
        Uncertainty.HEARTBEAT: setting.heartbeat_interval_ms != recorded.heartbeat_interval_ms
        and not changes_protocol,
        Uncertainty.TIMEOUT: setting.rebalance_timeout_ms != recorded.rebalance_timeout_ms,
        Uncertainty.DELAY: setting.initial_rebalance_delay_ms
        != recorded.initial_rebalance_delay_ms,
        Uncertainty.FATES: is_shorter
        or is_longer
        or becomes_static
        or has_left_static
        or changes_protocol,
        Uncertainty.ABSENCES: is_shorter and setting.static is not False,
        Uncertainty.CRASHES: has_left_static,
        # A change of the protocol is ranked, although it lengthens the session: pauses are replayed
        # as restarts, which at worst overestimates the rebalances under the new protocol.
        Uncertainty.PAUSES: is_longer and setting.static is False and not changes_protocol,
        Uncertainty.MODE: changes_mode,
        Uncertainty.REVOCATIONS: changes_mode and recorded.cooperative,
        Uncertainty.JOINS: changes_mode,
        Uncertainty.SOME_JOINS: is_guessed,
        Uncertainty.SOME_REVOCATIONS: is_guessed and changes_mode,
        Uncertainty.SILENCES: is_shorter,
    }
    doubts = (*trace.doubts, Uncertainty.SILENCES)
    return next((uncertainty for uncertainty in doubts if applies[uncertainty]), None)


def _unranked(doubts: Iterable[Uncertainty]) -> list[str]:
    return [
        f"not ranked: {counted(count, 'setting')}, since {why.value}"
        for why, count in Counter(doubts).items()
    ]


def _is_acceptable(prediction: Prediction, recorded: Prediction, unread_most_ms: int) -> bool:
    """Whether neither the time without a reader nor the later crash detection exceeds its limit."""
    is_read = prediction.unread_ms <= unread_most_ms
    return is_read and prediction.notice_ms - recorded.notice_ms <= LATER_MOST_MS


def _is_off(trace: Trace, recorded: Prediction) -> bool:
    """Whether the replay under the recorded settings differs from the history by more than the
    tolerance (COUNT_OFF_MOST, STOPPED_OFF_MOST), and by more than replays vary by chance.

    A history with few rebalances gets no extra tolerance: if the replay has two of three
    rebalances, its predictions for other settings may be just as far off.
    """
    off = abs(recorded.rebalances - trace.rebalances)
    is_off = off > max(COUNT_OFF_MOST * trace.rebalances, recorded.rebalances_spread)
    if trace.stopped_ms is None:
        return is_off
    off_ms = abs(recorded.stopped_ms - trace.stopped_ms)
    most_ms = max(STOPPED_OFF_MOST * trace.stopped_ms, recorded.stopped_spread_ms, SHOWN_MS)
    return is_off or off_ms > most_ms


def _checked(trace: Trace, recorded: Prediction, *, is_off: bool) -> str:
    text = check(trace, recorded)
    return f"{text}; {TOO_FAR}" if is_off else text


def pareto_front(predictions: Sequence[Prediction], recorded: Setting) -> list[Prediction]:
    """Return the predictions that no other one dominates, fastest crash detection first.

    Of several predictions with equal results, only the one that changes fewest settings is
    returned.
    """
    best: dict[_Point, Prediction] = {}
    for prediction in predictions:
        point = _point(prediction)
        other = best.get(point)
        if other is None or _effort(prediction, recorded) < _effort(other, recorded):
            best[point] = prediction
    points = sorted(best)
    return [
        best[point] for point in points if not any(_dominates(other, point) for other in points)
    ]


def _effort(prediction: Prediction, recorded: Setting) -> tuple[int, str]:
    return prediction.setting.differences(recorded), str(prediction.setting)


def _point(prediction: Prediction) -> _Point:
    return (
        prediction.notice_ms,
        prediction.rebalances,
        _level(prediction.stopped_ms),
        _level(prediction.unread_ms),
    )


def _level(duration_ms: int) -> int:
    """Quantize a duration, so that durations that differ by chance alone compare as equal."""
    return round(log1p(duration_ms / CHANCE_MS) / log1p(GAIN_LEAST))


def _dominates(point: _Point, other: _Point) -> bool:
    return point != other and all(a <= b for a, b in zip(point, other, strict=True))


def _select_shown(
    front: list[Prediction], recorded: Prediction, cost: Callable[[Prediction], float]
) -> list[Prediction]:
    """Select the predictions to show: each must improve on the recorded setting, and on the
    prediction selected before it. At most `SHOWN_MAX` are shown.
    """
    chosen: list[Prediction] = []
    for prediction in front:
        if prediction.setting == recorded.setting or not _gains_on(prediction, recorded):
            continue
        if chosen and not _gains_on(prediction, chosen[-1]):
            continue
        chosen.append(prediction)
    if len(chosen) <= SHOWN_MAX:
        return chosen
    ranked = sorted(chosen, key=cost)[:SHOWN_MAX]
    return [prediction for prediction in chosen if prediction in ranked]


def _with_protocol(
    front: list[Prediction],
    acceptable: Iterable[Prediction],
    recorded: Prediction,
    cost: Callable[[Prediction], float],
) -> list[Prediction]:
    """Add the best setting that changes the protocol but not static membership, if it is an
    improvement: users can change the protocol before every client has an instance id.
    """
    alone = [
        prediction
        for prediction in acceptable
        if prediction.setting.consumer != recorded.setting.consumer
        and prediction.setting.static == recorded.setting.static
        and _gains_on(prediction, recorded)
    ]
    best = min(alone, key=cost, default=None)
    if best is None or best in front:
        return front
    return sorted([*front, best], key=_point)


def _exceeds_chance(prediction: Prediction, recorded: Prediction) -> bool:
    """Whether rebalances, stopped or unread time are lower than recorded by more than chance."""
    return any(
        getattr(recorded, name) - getattr(prediction, name)
        > hypot(getattr(recorded, spread), getattr(prediction, spread))
        for name, spread in (
            ("rebalances", "rebalances_spread"),
            ("stopped_ms", "stopped_spread_ms"),
            ("unread_ms", "unread_spread_ms"),
        )
    )


def _gains_on(prediction: Prediction, other: Prediction) -> bool:
    fewer = prediction.rebalances <= other.rebalances * (1 - GAIN_LEAST) - 0.5
    # A difference within the range of chance is no gain.
    least_ms = max(other.stopped_ms * GAIN_LEAST + CHANCE_MS, prediction.stopped_spread_ms)
    shorter = prediction.stopped_ms <= other.stopped_ms - least_ms
    is_read_more = prediction.unread_ms <= other.unread_ms * (1 - UNREAD_SHOWN) - CHANCE_MS
    return fewer or shorter or is_read_more

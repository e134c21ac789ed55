"""Predictions in plain words: what a setting changes, what it gains, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kohort.insight.advisor.prediction import Prediction
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import Trace

TOLD_FROM_MS: Final = 1_000
"""Differences below it are not told of."""
UNREAD_TOLD: Final = 0.1
"""Share of the time without a reader: a smaller difference is not told of."""
TOO_FAR: Final = "too far off for anything to be advised"
"""The end of the check where the replay does not fit the history."""
SPREAD_TOLD: Final = 0.1
"""Share of the stopped time by which chance has to move it for the advice to say so."""


def words(recorded: Prediction, one: Prediction) -> str:
    """What a setting would change, and what it would cost."""
    text = (
        f"{choice(recorded, one)}: "
        f"{recorded.rebalances} -> {counted(one.rebalances, 'rebalance')}, "
        f"{seconds(recorded.stopped_ms)} -> {seconds(one.stopped_ms)} s stopped{_by_chance(one)}"
    )
    return "; ".join([text, _notice(recorded, one), *_unread(recorded, one)])


def _notice(recorded: Prediction, one: Prediction) -> str:
    later_ms = one.notice_ms - recorded.notice_ms
    if abs(later_ms) < TOLD_FROM_MS:
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
    least_ms = max(recorded.unread_ms * UNREAD_TOLD, TOLD_FROM_MS)
    if abs(one.unread_ms - recorded.unread_ms) <= least_ms:
        return []
    before, after = seconds(recorded.unread_ms), seconds(one.unread_ms)
    return [f"partitions without a reader for {before} -> {after} s, all together"]


def is_by_chance(one: Prediction) -> bool:
    """Whether a single run may differ from the prediction, by chance alone, so much that the
    advice has to say so.
    """
    return one.stopped_spread_ms > max(SPREAD_TOLD * one.stopped_ms, TOLD_FROM_MS)


def _by_chance(one: Prediction) -> str:
    return f", give or take {seconds(one.stopped_spread_ms)} s" if is_by_chance(one) else ""


def choice(recorded: Prediction, one: Prediction) -> str:
    """What would have to be otherwise."""
    if one.quicker is not None:
        quicker = f"{one.quicker} as quick as the others"
        if one.setting == recorded.setting:
            return quicker
        return f"{changes(recorded.setting, one.setting)}, and {quicker}"
    return changes(recorded.setting, one.setting)


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


def nothing_better(unranked: Sequence[str]) -> str:
    """What is said where no setting is told of, be it that some could not be ranked or not."""
    tried = "could be ranked" if unranked else "was tried"
    return f"nothing that {tried} would have been better than what there is"


def counted(count: int, noun: str) -> str:
    """1 rebalance, 2 rebalances."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def check(trace: Trace, recorded: Prediction) -> str:
    replayed = counted(recorded.rebalances, "rebalance")
    text = (
        f"check: with the settings of the time the replay has {replayed}, "
        f"the history {trace.rebalances}"
    )
    if trace.stopped_ms is not None:
        text += (
            f"; {seconds(recorded.stopped_ms)} s stopped, the history {seconds(trace.stopped_ms)} s"
        )
    return text

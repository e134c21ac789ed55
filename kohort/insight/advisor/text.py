"""Describes predictions: the changed settings, their benefits and their costs."""

from collections.abc import Sequence
from typing import Final

from kohort.formats.text import counted
from kohort.insight.advisor.prediction import Prediction
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import Trace

SHOWN_FROM_MS: Final = 1_000
"""Smaller differences between two times are not mentioned."""
UNREAD_SHOWN: Final = 0.1
"""The time that partitions have no reader is mentioned if it changes by more than this share."""
TOO_FAR: Final = "too far off to recommend anything"
"""Appended to the text of `check` if the replay does not match the history."""
SPREAD_SHOWN: Final = 0.1
"""Random variation is mentioned if it exceeds this share of the stopped time."""


def describe(recorded: Prediction, prediction: Prediction) -> str:
    text = (
        f"{choice(recorded, prediction)}: "
        f"{recorded.rebalances} -> {counted(prediction.rebalances, 'rebalance')}, "
        f"{_stopped(recorded, prediction)}{_by_chance(prediction)}"
    )
    if prediction.setting.consumer != recorded.setting.consumer:
        before, after = recorded.convergence_mean_ms, prediction.convergence_mean_ms
        text += f", stable {seconds(before)} -> {seconds(after)} s after a cause"
    return "; ".join([text, _notice(recorded, prediction), *_unread(recorded, prediction)])


def _stopped(recorded: Prediction, prediction: Prediction) -> str:
    text = f"{seconds(recorded.stopped_ms)} -> {seconds(prediction.stopped_ms)} s"
    if prediction.setting.consumer:
        return f"partitions stood still {text}"
    return f"{text} stopped"


def _notice(recorded: Prediction, prediction: Prediction) -> str:
    later_ms = prediction.notice_ms - recorded.notice_ms
    if abs(later_ms) < SHOWN_FROM_MS:
        return "a crash is noticed as soon as now"
    text = f"a crash is noticed {seconds(abs(later_ms))} s "
    if later_ms > 0:
        return f"{text}later"
    if prediction.setting.session_timeout_ms >= recorded.setting.session_timeout_ms:
        return f"{text}sooner"
    session = seconds(prediction.setting.session_timeout_ms)
    return f"{text}sooner, and a pause of {session} s counts as one"


def _unread(recorded: Prediction, prediction: Prediction) -> list[str]:
    """Return a text on the change of unread time; empty if the change is too small to mention."""
    least_ms = max(recorded.unread_ms * UNREAD_SHOWN, SHOWN_FROM_MS)
    if abs(prediction.unread_ms - recorded.unread_ms) <= least_ms:
        return []
    before, after = seconds(recorded.unread_ms), seconds(prediction.unread_ms)
    return [f"partitions without a reader for {before} -> {after} s, all together"]


def is_by_chance(prediction: Prediction) -> bool:
    """Whether the stopped time varies so much by chance that the text shows a ± range."""
    return prediction.stopped_spread_ms > max(SPREAD_SHOWN * prediction.stopped_ms, SHOWN_FROM_MS)


def _by_chance(prediction: Prediction) -> str:
    return f" ± {seconds(prediction.stopped_spread_ms)} s" if is_by_chance(prediction) else ""


def choice(recorded: Prediction, prediction: Prediction) -> str:
    """Return a text on how the prediction's settings differ from the recorded ones."""
    if prediction.quicker is not None:
        quicker = f"{prediction.quicker} as quick as the others"
        if prediction.setting == recorded.setting:
            return quicker
        return f"{changes(recorded.setting, prediction.setting)}, and {quicker}"
    return changes(recorded.setting, prediction.setting)


def changes(recorded: Setting, setting: Setting) -> str:
    first: list[str] = []
    if setting.static != recorded.static:
        first.append(
            {True: "static", False: "dynamic", None: "mixed"}[setting.static] + " membership"
        )
    if setting.cooperative != recorded.cooperative:
        first.append("a cooperative assignor" if setting.cooperative else "an eager assignor")
    if setting.states_reasons != recorded.states_reasons:
        first.append("clients that state JoinReason" if setting.states_reasons else "stock clients")
    if setting.consumer != recorded.consumer:
        first.append("the consumer protocol" if setting.consumer else "the classic protocol")
    values: list[str] = []
    if setting.session_timeout_ms != recorded.session_timeout_ms:
        values.append(f"a {seconds(setting.session_timeout_ms)} s session")
    if setting.heartbeat_interval_ms != recorded.heartbeat_interval_ms:
        values.append(f"heartbeats every {seconds(setting.heartbeat_interval_ms)} s")
    if setting.rebalance_timeout_ms != recorded.rebalance_timeout_ms:
        values.append(f"max.poll.interval.ms of {seconds(setting.rebalance_timeout_ms)} s")
    if setting.initial_rebalance_delay_ms != recorded.initial_rebalance_delay_ms:
        values.append(f"an initial delay of {seconds(setting.initial_rebalance_delay_ms)} s")
    if setting.assignment_interval_ms != recorded.assignment_interval_ms:
        values.append(f"an assignment interval of {seconds(setting.assignment_interval_ms)} s")
    if first and values:
        return f"{_listed(first)} with {_listed(values)}"
    return _listed(first or values) or "no change"


def _listed(texts: list[str]) -> str:
    return ", ".join(texts[:-1]) + (" and " if len(texts) > 1 else "") + texts[-1] if texts else ""


def seconds(duration_ms: int) -> str:
    """Format a duration in seconds, with one decimal below 10 s."""
    value = duration_ms / 1000
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")


def nothing_better(unranked: Sequence[str]) -> str:
    """Return the text shown if no setting is recommended."""
    tried = "could be ranked" if unranked else "was tried"
    return f"nothing that {tried} would have been better than the recorded settings"


def check(trace: Trace, recorded: Prediction) -> str:
    replayed = counted(recorded.rebalances, "rebalance")
    text = (
        f"check: under the recorded settings the replay has {replayed}, "
        f"the history {trace.rebalances}"
    )
    if trace.stopped_ms is not None:
        text += (
            f"; {seconds(recorded.stopped_ms)} s stopped, the history {seconds(trace.stopped_ms)} s"
        )
    return text

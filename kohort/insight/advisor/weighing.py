"""Scores the gain and cost of a setting, and checks that each of its changes contributes.

A setting that changes several things is compared with its ablations: the same setting without one
of the changes, replayed with the same seeds. If an ablation is as good, that change is useless.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Final

from kohort.insight.advisor.prediction import CLOSE, Prediction, gain_by_pairs
from kohort.insight.advisor.setting import Setting

CHANCE_MS: Final = 1_000
"""Smaller differences in stopped time, or in time without a reader, are attributed to chance."""
GAIN_LEAST: Final = 0.05
"""Saving a smaller share of the rebalances, or of the stopped time, does not count as a gain."""
UNREAD_SHOWN: Final = 0.1
"""Smaller relative changes of the time without a reader are ignored."""
UNREAD_WEIGHT: Final = 0.75
"""Weight of the time for which partitions have no reader; rebalances and stopped time weigh 1. It
is lower because the history does not show how many records a partition receives."""
_SESSION: Final = ("session_timeout_ms", "heartbeat_interval_ms")
"""Settings that are chosen together, and count as one change."""


def score(prediction: Prediction, other: Prediction, slack_ms: int) -> float:
    """Return the cost of `prediction` relative to `other`; lower is better.

    The detection delay has a small weight, because its cost already shows in the time for which
    partitions have no reader. Up to `slack_ms`, that time makes little difference.
    """
    return (
        prediction.rebalances / max(other.rebalances, 1)
        + prediction.stopped_ms / max(other.stopped_ms, CHANCE_MS)
        + UNREAD_WEIGHT * (prediction.unread_ms + slack_ms) / (other.unread_ms + slack_ms)
        + 0.1 * prediction.notice_ms / other.notice_ms
    )


def is_improved_by_every_part(
    prediction: Prediction,
    recorded: Setting,
    by_setting: Mapping[Setting, Prediction],
    slack_ms: int,
) -> bool:
    """Whether the setting improves on all its replayed ablations: each change contributes."""
    candidates = (by_setting.get(setting) for setting in ablations(prediction.setting, recorded))
    return all(
        ablation is None or improves_on(prediction, ablation, slack_ms) for ablation in candidates
    )


def ablations(setting: Setting, recorded: Setting) -> Iterator[Setting]:
    """Yield, for each change of `setting` from `recorded`, the setting without that change."""
    names = [field.name for field in fields(Setting) if field.name not in (*_SESSION, "consumer")]
    # The session settings are undone with the protocol: each protocol has its own.
    protocol = () if setting.consumer == recorded.consumer else ("consumer",)
    for part in ((*_SESSION, *protocol), *((name,) for name in names)):
        ablation = replace(setting, **{name: getattr(recorded, name) for name in part})
        if ablation != setting:
            yield ablation


def improves_on(prediction: Prediction, ablation: Prediction, slack_ms: int) -> bool:
    """Whether a setting is better than its ablation, the same setting without one of its changes.

    A gain with the same seeds must exceed chance and outweigh its cost: fewer rebalances may
    be worth some time without a reader, but 1 % less of one figure is not worth 50 % more of
    another.
    """
    gains = (
        gain_by_pairs(
            ablation.rebalances_by_seed, prediction.rebalances_by_seed, share=GAIN_LEAST, least=0.5
        ),
        gain_by_pairs(
            ablation.stopped_by_seed, prediction.stopped_by_seed, share=CLOSE, least=CHANCE_MS
        ),
        gain_by_pairs(
            ablation.unread_by_seed, prediction.unread_by_seed, share=UNREAD_SHOWN, least=CHANCE_MS
        ),
    )
    return any(gains) and score(prediction, ablation, slack_ms) < score(
        ablation, ablation, slack_ms
    )

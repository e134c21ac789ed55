"""What a setting gains and what it costs, all in all, and whether each part of it is worth having.

A choice that changes several things is compared with the same choice without each of them, its
twins, on the same seeds: what does not beat its twin carries something along that is of no use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Final

from kohort.insight.advisor.prediction import CLOSE, Prediction, gain_by_pairs
from kohort.insight.advisor.setting import Setting

CHANCE_MS: Final = 1_000
"""Differences in stopped time below it are chance."""
GAIN_LEAST: Final = 0.05
"""The smallest gain: one choice has at least this share fewer rebalances, or of stopped time less,
than the other."""
UNREAD_TOLD: Final = 0.1
"""Share of the time without a reader: a smaller difference is not told of."""
UNREAD_WEIGHT: Final = 0.75
"""The weight of unread time, where rebalances and stopped time have 1: the history does not know
how much there is to read of a partition."""
_SESSION: Final = ("session_timeout_ms", "heartbeat_interval_ms")
"""Settings that are chosen together, and count as one part of a setting."""


def score(one: Prediction, other: Prediction, slack_ms: int) -> float:
    """Shares of what there is with `other`; less is better. A late notice counts little of itself:
    what it costs is in the time that partitions have no reader, of which `slack_ms` more or less is
    no matter.
    """
    return (
        one.rebalances / max(other.rebalances, 1)
        + one.stopped_ms / max(other.stopped_ms, CHANCE_MS)
        + UNREAD_WEIGHT * (one.unread_ms + slack_ms) / (other.unread_ms + slack_ms)
        + 0.1 * one.notice_ms / other.notice_ms
    )


def earns_its_parts(
    one: Prediction, recorded: Setting, by_setting: Mapping[Setting, Prediction], slack_ms: int
) -> bool:
    """Whether each of its parts improves it, as far as that was tried."""
    twins = (by_setting.get(setting) for setting in twins_of(one.setting, recorded))
    return all(twin is None or beats(one, twin, slack_ms) for twin in twins)


def twins_of(one: Setting, recorded: Setting) -> Iterator[Setting]:
    """The same with one part of it as it was recorded, for each part that is not so."""
    names = [field.name for field in fields(Setting) if field.name not in _SESSION]
    for part in (_SESSION, *((name,) for name in names)):
        twin = replace(one, **{name: getattr(recorded, name) for name in part})
        if twin != one:
            yield twin


def beats(one: Prediction, twin: Prediction, slack_ms: int) -> bool:
    """Whether its gain, beyond chance on the same seeds, outweighs its cost.

    Fewer rebalances for somewhat more time without a reader, for example, may be a good choice.
    Equal results with another setting are not, nor is one percent less of one thing for fifty
    percent more of the others.
    """
    gains = (
        gain_by_pairs(twin.rebalances_by_seed, one.rebalances_by_seed, share=GAIN_LEAST, least=0.5),
        gain_by_pairs(twin.stopped_by_seed, one.stopped_by_seed, share=CLOSE, least=CHANCE_MS),
        gain_by_pairs(twin.unread_by_seed, one.unread_by_seed, share=UNREAD_TOLD, least=CHANCE_MS),
    )
    return any(gains) and score(one, twin, slack_ms) < score(twin, twin, slack_ms)

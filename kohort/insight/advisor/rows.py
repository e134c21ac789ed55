"""Rows of the table `advice`, one per prediction."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, TypeAlias

from kohort.insight.advisor.advice import Advice
from kohort.insight.advisor.client_software import libraries_of
from kohort.insight.advisor.computation import compute_advice
from kohort.insight.advisor.prediction import Prediction
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.text import describe

Row: TypeAlias = dict[str, Any]

SETTING: Final = tuple(field.name for field in fields(Setting))
"""The columns that identify a row's setting."""

_FIGURES: Final = (
    *("rebalances", "stopped_ms", "stopped_spread_ms", "stopped_longest_ms", "convergence_ms"),
    *("unread_ms", "unread_longest_ms", "deaths", "unnoticed_ms", "unnoticed_longest_ms"),
    "notice_ms",
)


def advice_row(advice: Advice, prediction: Prediction, ordinal: int) -> Row:
    """Return a row without the columns of the group; times in ms. Row 0 is the recorded setting."""
    trace = advice.trace
    return {
        **{name: getattr(prediction, name) for name in _FIGURES},
        **prediction.setting.as_dict(),
        "ordinal": ordinal,
        "is_recorded": ordinal == 0,
        "is_on_front": prediction in {*advice.front, advice.quicker, advice.both},
        "is_best": prediction == advice.best,
        "quicker_member": prediction.quicker,
        "stopped_by_member": [
            {"member": slot.name, "stopped_ms": stopped_ms}
            for slot, stopped_ms in zip(trace.slots, prediction.stopped_by_slot, strict=True)
        ],
        "text": describe(advice.recorded, prediction) if ordinal else advice.check,
        "partition_count": trace.partition_count,
        "history_rebalances": trace.rebalances,
        "history_stopped_ms": trace.stopped_ms,
        "first_at": trace.begin_ms,
        "last_at": trace.end_ms,
        "unknown": list(trace.unknown),
        "unranked": list(advice.unranked),
        "libraries": list(libraries_of(trace.software)),
    }


def compute_rows(
    group: str, texts: Sequence[str], days: int, known: Mapping[str, Any]
) -> tuple[list[Row], str | None]:
    """Return a row for each setting tried; without advice, one empty row, and the reason.
    `texts` are the group's events as JSON; `days` and `known` are as in `compute_advice`.
    """
    try:
        records = [json.loads(text) for text in texts]
        advice = compute_advice(group, records, days=days, known=known)
    except ValueError as error:
        return [{}], str(error)
    if advice is None:
        return [{}], "no rebalance in the history"
    last = {"last_sequence": max(int(record.get("sequence") or 0) for record in records)}
    predictions = enumerate(advice.predictions)
    return [advice_row(advice, tried, ordinal) | last for ordinal, tried in predictions], None

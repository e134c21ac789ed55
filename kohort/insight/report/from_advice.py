"""The advice on one group as rows of the table `advice`, as the page shows them."""

from __future__ import annotations

from kohort.insight.advisor.advice import Advice
from kohort.insight.advisor.prediction import Prediction
from kohort.insight.advisor.words import words
from kohort.insight.report.contents import Row


def advice_rows(advice: Advice | None) -> list[Row]:
    """Rows of the recorded settings and of those worth considering; none without advice."""
    if advice is None:
        return []
    chosen = [one for one in advice.front if one.setting != advice.recorded.setting]
    if advice.quicker is not None:
        chosen.append(advice.quicker)
    if advice.both is not None:
        chosen.append(advice.both)
    return [_row(advice, one, place) for place, one in enumerate((advice.recorded, *chosen))]


def _row(advice: Advice, one: Prediction, ordinal: int) -> Row:
    return {
        **one.setting.as_dict(),
        "ordinal": ordinal,
        "is_recorded": ordinal == 0,
        "is_on_front": ordinal > 0,
        "is_best": ordinal > 0 and one == advice.best,
        "rebalances": one.rebalances,
        "stopped_ms": one.stopped_ms,
        "stopped_spread_ms": one.stopped_spread_ms,
        "unread_ms": one.unread_ms,
        "notice_ms": one.notice_ms,
        "text": words(advice.recorded, one) if ordinal else advice.check,
        "unknown": list(advice.unknown),
        "unranked": list(advice.unranked),
        "quicker_member": one.quicker,
    }

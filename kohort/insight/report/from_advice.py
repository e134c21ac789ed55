"""Converts the advice on one group to rows of the table `advice`, for the page."""

from kohort.insight.advisor.advice import Advice
from kohort.insight.advisor.prediction import Prediction
from kohort.insight.advisor.text import describe
from kohort.insight.report.contents import Row


def advice_rows(advice: Advice | None) -> list[Row]:
    """Return rows of the recorded setting and those worth considering; empty without advice."""
    if advice is None:
        return []
    chosen = [
        prediction for prediction in advice.front if prediction.setting != advice.recorded.setting
    ]
    if advice.quicker is not None:
        chosen.append(advice.quicker)
    if advice.both is not None:
        chosen.append(advice.both)
    return [
        _row(advice, prediction, place)
        for place, prediction in enumerate((advice.recorded, *chosen))
    ]


def _row(advice: Advice, prediction: Prediction, ordinal: int) -> Row:
    return {
        **prediction.setting.as_dict(),
        "ordinal": ordinal,
        "is_recorded": ordinal == 0,
        "is_on_front": ordinal > 0,
        "is_best": ordinal > 0 and prediction == advice.best,
        "rebalances": prediction.rebalances,
        "stopped_ms": prediction.stopped_ms,
        "stopped_spread_ms": prediction.stopped_spread_ms,
        "unread_ms": prediction.unread_ms,
        "notice_ms": prediction.notice_ms,
        "text": describe(advice.recorded, prediction) if ordinal else advice.check,
        "unknown": list(advice.unknown),
        "unranked": list(advice.unranked),
        "quicker_member": prediction.quicker,
    }

"""From the records of one group's history to the advice, in one go and in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kohort.pipeline.advisor.advice import Advice, advise
from kohort.pipeline.advisor.lives import Json
from kohort.pipeline.advisor.prediction import predict
from kohort.pipeline.advisor.reading import read_trace
from kohort.pipeline.advisor.setting import grid

DAY_MS: Final = 24 * 3600 * 1000


def work_out(
    group: str,
    records: Sequence[Json],
    *,
    days: int | None = None,
    known: Mapping[str, Any] | None = None,
) -> Advice | None:
    """The advice on a group; None if there is no rebalance among the records.

    Args:
        records: of this group, as the history's JSON.
        days: how far back from the newest record; None for all that there is.
        known: fields of `Setting` that the group is known to have run under.

    Raises:
        ValueError: they are not records of a history.
    """
    try:
        trace = read_trace(group, lately(records, days), known)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a history: {error!r}") from error
    if trace is None:
        return None
    return advise(trace, [predict(trace, setting) for setting in grid(trace)])


def lately(records: Sequence[Json], days: int | None) -> list[Json]:
    """The records of the last `days` before the newest one."""
    moments = [int(one.get("started_at_ms") or one.get("at_ms") or 0) for one in records]
    if days is None or not moments:
        return list(records)
    since_ms = max(moments) - days * DAY_MS
    return [one for one, at_ms in zip(records, moments, strict=True) if at_ms >= since_ms]

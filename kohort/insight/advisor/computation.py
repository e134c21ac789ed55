"""The whole way from the records of one group's history to the advice, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kohort.insight.advisor.advice import Advice, advise
from kohort.insight.advisor.grid import grid, other_delays
from kohort.insight.advisor.lives import Json
from kohort.insight.advisor.prediction import Prediction, predict
from kohort.insight.advisor.reading import read_trace
from kohort.insight.advisor.trace import Delays, Trace

DAY_MS: Final = 24 * 3600 * 1000


def compute_advice(
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
    predictions = [predict(trace, setting) for setting in grid(trace)]
    return advise(trace, predictions + beyond_the_grid(trace, predictions))


WAITED_LEAST: Final = 0.2
"""Share of all waits that has to be for one slot, for it to be worth a thought of its own."""


def beyond_the_grid(trace: Trace, predictions: Sequence[Prediction]) -> list[Prediction]:
    """What is tried once it is known what the grid comes to: other initial delays beside what there
    is and what is advised, and the slot that others waited for most as quick as they are, by
    itself and together with what is advised.
    """
    found: list[Prediction] = []
    if trace.initial_rebalances:
        told = advise(trace, predictions)
        for one in dict.fromkeys((told.recorded.setting, (told.best or told.recorded).setting)):
            found += [predict(trace, other) for other in other_delays(one)]
    slot = _slowest(trace)
    if slot is not None:
        slots = list(trace.slots)
        slots[slot] = replace(
            slots[slot],
            join=Delays(),
            again=Delays(),
            assign=Delays(),
            sync=Delays(),
            revoke=Delays(),
        )
        best = advise(trace, [*predictions, *found]).best
        for setting in (trace.recorded, *(() if best is None else (best.setting,))):
            quick = predict(replace(trace, slots=tuple(slots)), setting)
            found.append(replace(quick, quicker=trace.slots[slot].name))
    return found


def _slowest(trace: Trace) -> int | None:
    """The place of the slot that the others waited for most; None if it is no slower than they."""
    waited = trace.waited_by_slot
    slot = max(range(len(waited)), key=lambda place: waited[place], default=None)
    if slot is None or len(waited) < 2 or waited[slot] < WAITED_LEAST * sum(waited):
        return None
    return slot if waited[slot] else None


def lately(records: Sequence[Json], days: int | None) -> list[Json]:
    """The records of the last `days` before the newest one."""
    moments = [int(one.get("started_at_ms") or one.get("at_ms") or 0) for one in records]
    if days is None or not moments:
        return list(records)
    since_ms = max(moments) - days * DAY_MS
    return [one for one, at_ms in zip(records, moments, strict=True) if at_ms >= since_ms]

"""Computes advice from one group's history records, in this process."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kohort.insight.advisor.advice import Advice, advise
from kohort.insight.advisor.grid import grid, other_delays
from kohort.insight.advisor.member_lifetimes import Json
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
    """Return the advice for a group; None if its records contain no rebalance.

    Args:
        records: the group's records, as the history's JSON.
        days: use records up to this many days older than the newest one; None for all.
        known: values of `Setting` fields that are known to have been in force.

    Raises:
        ValueError: these are not history records.
    """
    try:
        trace = read_trace(group, recent_records(records, days), known)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a history: {error!r}") from error
    if trace is None:
        return None
    predictions = [predict(trace, setting) for setting in grid(trace)]
    return advise(trace, predictions + predict_beyond_grid(trace, predictions))


STARTS_LEAST: Final = 2
"""Other initial rebalance delays, which affect all groups of a broker, are only tried if the
history has at least this many first rebalances of an empty group."""
WAITED_LEAST: Final = 0.2
"""Settings are also predicted with the slowest member as fast as the others, if the group spent at
least this share of its waiting time on that member."""


def predict_beyond_grid(trace: Trace, predictions: Sequence[Prediction]) -> list[Prediction]:
    """Predict the outcomes of more settings, chosen from the results for the grid.

    These are other initial rebalance delays, for the recorded and the recommended setting; and
    these two settings with the slowest member as fast as the others.
    """
    added: list[Prediction] = []
    if trace.initial_rebalances >= STARTS_LEAST and not trace.recorded.consumer:
        advice = advise(trace, predictions)
        for setting in dict.fromkeys(
            (advice.recorded.setting, (advice.best or advice.recorded).setting)
        ):
            added += [predict(trace, other) for other in other_delays(setting)]
    quick = with_quick_slot(trace)
    if quick is not None:
        name, quick_trace = quick
        best = advise(trace, [*predictions, *added]).best
        for setting in (trace.recorded, *(() if best is None else (best.setting,))):
            added.append(replace(predict(quick_trace, setting), quicker=name))
    return added


def with_quick_slot(trace: Trace) -> tuple[str, Trace] | None:
    """Return the name of the member slot that the group waited for most, and the trace with default
    delays for that slot; None if no slot is clearly slowest.
    """
    index = _slowest(trace)
    if index is None:
        return None
    slots = list(trace.slots)
    slots[index] = replace(
        slots[index],
        join=Delays(),
        again=Delays(),
        assign=Delays(),
        sync=Delays(),
        revoke=Delays(),
    )
    return slots[index].name, replace(trace, slots=tuple(slots))


def _slowest(trace: Trace) -> int | None:
    """Return the index of the member slot that the group waited for most; None if it is the only
    slot, or if less than WAITED_LEAST of the waiting time was for this slot.
    """
    waited = trace.waited_by_slot
    slot = max(range(len(waited)), key=lambda place: waited[place], default=None)
    if slot is None or len(waited) < 2 or waited[slot] < WAITED_LEAST * sum(waited):
        return None
    return slot if waited[slot] else None


def recent_records(records: Sequence[Json], days: int | None) -> list[Json]:
    """Return the records of the `days` before the newest record; all if None."""
    moments = [int(record.get("started_at_ms") or record.get("at_ms") or 0) for record in records]
    if days is None or not moments:
        return list(records)
    since_ms = max(moments) - days * DAY_MS
    return [record for record, at_ms in zip(records, moments, strict=True) if at_ms >= since_ms]

"""Summarizes what happened to a group last, over several rebalances."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from kohort.formats.text import listed, shown
from kohort.groups.history.wording import ClockText, short_id
from kohort.groups.steps import at_once

Json: TypeAlias = dict[str, Any]


def last_act(group: str, records: Sequence[Json]) -> Json | None:
    """Return the act of the newest complete rebalance, None if there is none."""
    # Reads findings, which other commands do not need.
    from kohort.insight.analysis.group_acts import act_rows_steps  # noqa: PLC0415

    with suppress(ValueError):  # Whoever writes to a topic, or a file, chooses the records.
        acts = at_once(act_rows_steps(group, records))
        return max(acts, key=lambda act: int(act["last_sequence"]), default=None)
    return None


def summary_lines(group: str, act: Json | None, clock_text: ClockText) -> Iterator[str]:
    """Yield the summary, unless the act is a single rebalance, whose sentence says the same."""
    from kohort.insight.analysis.group_acts import act_text, sums_up  # noqa: PLC0415

    if act is None or act["started_at_ms"] is None or not sums_up(act):
        return
    names = listed([short_id(name) for name in act["processes"]], act["process_count"])
    at = clock_text(act["started_at_ms"])
    yield f"Group {shown(group)}, from {at}: {act_text(act, names)}."
    yield ""

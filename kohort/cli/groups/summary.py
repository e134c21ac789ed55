"""Summarizes a group's last act: an event such as a rolling restart, with all its rebalances."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from kohort.formats.text import listed, shown
from kohort.groups.history.wording import ClockText, short_id
from kohort.groups.steps import at_once

Json: TypeAlias = dict[str, Any]


def last_act(group: str, records: Sequence[Json]) -> Json | None:
    """Return the newest act (see the module) that the records show; None if they show none."""
    # Reads findings, which other commands do not need.
    from kohort.insight.analysis.group_acts import act_rows_steps  # noqa: PLC0415

    with suppress(ValueError):  # Records of topics and files may be malformed.
        acts = at_once(act_rows_steps(group, records))
        return max(acts, key=lambda act: int(act["last_sequence"]), default=None)
    return None


def summary_lines(group: str, act: Json | None, clock_text: ClockText) -> Iterator[str]:
    """Yield an act's summary (see the module); none if one rebalance's sentence says the same."""
    from kohort.insight.analysis.group_acts import act_text, sums_up  # noqa: PLC0415

    if act is None or act["started_at_ms"] is None or not sums_up(act):
        return
    names = listed([short_id(name) for name in act["processes"]], act["process_count"])
    at = clock_text(act["started_at_ms"])
    yield f"Group {shown(group)}, from {at}: {act_text(act, names)}."
    yield ""

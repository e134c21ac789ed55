"""Plots a group's history over time: cost, number and causes of rebalances."""

from collections import Counter
from typing import Final

from kohort.formats.text import counted
from kohort.insight.report.contents import GroupPage
from kohort.insight.report.markup import Markup
from kohort.insight.report.scales import Times, Values
from kohort.insight.report.svg import (
    LINE,
    WIDE,
    Drawing,
    box,
    figure,
    svg_text,
    time_axis,
    value_axis,
)
from kohort.insight.report.text import act, doubts, duration, family, moment, period

_LEFT: Final = 46
_TITLE: Final = 26
_STOPPED: Final = {
    False: "Seconds that members were stopped",
    True: "Seconds that partitions had no owner",
}
_PANEL: Final = {True: 84, False: 64}
_LANE: Final = 22
_MARK_LEAST: Final = 5.0
_BARS_LEAST: Final = 12
"""The plot has room for at least this many bars, so that a single bar does not fill it."""


def timeline(page: GroupPage) -> Markup:
    """Draw stopped time (or time without an owner) and rebalances as bars, and marks by cause."""
    return figure(lambda width: _draw(page, width), alt(page), _caption(page))


def alt(page: GroupPage) -> str:
    figures = page.figures
    text = (
        f"{counted(figures['rebalance_count'], 'rebalance')}, "
        f"{period(figures['first_at_ms'], figures['last_at_ms'])}, in steps of "
        f"{duration(page.bin_ms)}."
    )
    if page.by_time:
        worst = max(page.by_time, key=lambda row: row["stopped_total_ms"])
        if worst["stopped_total_ms"]:
            what = "Partitions had no owner" if page.is_consumer_group else "Members were stopped"
            text += (
                f" {what} longest, {duration(worst['stopped_total_ms'])} in "
                f"{counted(worst['rebalance_count'], 'rebalance')}, from {moment(worst['at_ms'])}."
            )
    return text


def _caption(page: GroupPage) -> str:
    figures = page.figures
    text = (
        f"{period(figures['first_at_ms'], figures['last_at_ms'])} UTC, a bar for each "
        f"{duration(page.bin_ms)}; below, a mark for each rebalance, taller if it cost more."
    )
    if page.marks.left_out:
        text += f" Marks are of the {len(page.marks.rows):,} costliest of {page.marks.total:,}."
    return text


def _draw(page: GroupPage, width: int) -> Drawing:
    is_wide = width == WIDE
    first_ms, last_ms = page.figures["first_at_ms"], page.figures["last_at_ms"]
    # Every bar has its full width, including the last one.
    end_ms = max([last_ms, *(row["at_ms"] + page.bin_ms for row in page.by_time)])
    start_ms = min([first_ms, *(row["at_ms"] for row in page.by_time)])
    end_ms = max(end_ms, start_ms + _BARS_LEAST * page.bin_ms)
    times = Times.around(start_ms, end_ms, _LEFT, width - 4)
    parts: list[Markup] = []
    top = 0.0
    for title, column, scale, style in (
        (_STOPPED[page.is_consumer_group], "stopped_total_ms", 1_000, "stopped"),
        ("Rebalances", "rebalance_count", 1, "count"),
    ):
        if not any(row[column] for row in page.by_time):
            # Omit an empty panel: a history from a log has no stopped times.
            continue
        values = [row[column] / scale for row in page.by_time]
        parts += _panel(page, times, values, top, title, style, _PANEL[is_wide])
        top += _TITLE + _PANEL[is_wide] + 14
    lanes = Counter(row["act"] for row in page.marks.rows)
    bottom = top + len(lanes) * (LINE + _LANE)
    # The axis comes first, so that it is drawn behind the marks.
    parts[:0] = time_axis(times.ticks(8 if is_wide else 4), 0, bottom, width)
    for place, (kind, count) in enumerate(lanes.most_common()):
        parts += _lane(page, times, kind, count, top + place * (LINE + _LANE), is_wide=is_wide)
    return Drawing(parts, bottom + LINE)


def _panel(
    page: GroupPage,
    times: Times,
    values: list[float],
    top: float,
    title: str,
    style: str,
    height: float,
) -> list[Markup]:
    bottom = top + _TITLE + height
    # A linear scale from 0, because readers compare bars by their length.
    scale = Values(max([*values, 1.0]) * 1.05, bottom, top + _TITLE)
    parts = [svg_text(0, top + 13, title, class_="title")]
    parts += value_axis(scale.ticks(3), times.left, times.right)
    for row, value in zip(page.by_time, values, strict=True):
        x = times.place(row["at_ms"])
        across = max(times.place(row["at_ms"] + page.bin_ms) - x - 1, 1.5)
        y = scale.place(value)
        if value:
            parts.append(box(x, min(y, bottom - 1), across, max(bottom - y, 1), style))
    return parts


def _lane(
    page: GroupPage, times: Times, kind: str, count: int, top: float, *, is_wide: bool
) -> list[Markup]:
    most = max((row["stopped_total_ms"] or 0 for row in page.marks.rows), default=0)
    base = top + LINE + _LANE - 4
    doubt = next((doubts(row) for row in page.causes if row["kind"] == kind), "")
    title = f"{act(kind)}: {counted(count, 'rebalance')}" + (
        f" ({doubt})" if doubt and is_wide else ""
    )
    parts = [svg_text(0, top + 13, title, class_="title")]
    for row in page.marks.rows:
        if row["act"] == kind:
            share = (row["stopped_total_ms"] or 0) / most if most else 0.5
            tall = _MARK_LEAST + share * (_LANE - 4 - _MARK_LEAST)
            x = times.place(row["started_at_ms"])
            # The mark is thinner if its cause is not certain.
            across = 2 if row.get("trigger_certainty") in {None, "certain"} else 1
            parts.append(box(x - 1, base - tall, across, tall, f"of-{family(kind)}"))
    return parts

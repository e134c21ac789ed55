"""Renders the history of a group as sentences, grouped by storms."""

from __future__ import annotations

from kohort.insight.counting import counted
from kohort.insight.report.contents import GroupPage, Row
from kohort.insight.report.markup import Markup, element, join
from kohort.insight.report.tables import folded
from kohort.insight.report.text import clock, duration, storms_of


def narrative(page: GroupPage) -> Markup:
    """Render the history in chronological order; only the most expensive storm is unfolded."""
    storms = sorted(page.storms.rows, key=lambda row: int(row["first_sequence"]))
    worst = max((row["stopped_total_ms"] for row in storms), default=0)
    rows = list(page.sentences.rows)
    parts: list[Markup] = []
    for storm in storms:
        before = [row for row in rows if row["sequence"] < storm["first_sequence"]]
        within = [
            row
            for row in rows
            if storm["first_sequence"] <= row["sequence"] <= storm["last_sequence"]
        ]
        rows = [row for row in rows if row["sequence"] > storm["last_sequence"]]
        parts += _single(before, is_open=False)
        is_worst = storm["stopped_total_ms"] == worst
        parts.append(folded(_summary(storm), _sentences(within), is_open=is_worst))
    parts += _single(rows, is_open=not storms)
    return join((_cut(page), *parts))


def _cut(page: GroupPage) -> Markup | None:
    left = page.sentences.left_out
    if not left:
        return None
    note = (
        f"The {len(page.sentences.rows):,} costliest of {page.sentences.total:,} rebalances are "
        f"listed; {left:,} are omitted."
    )
    return element("p", note, class_="muted")


def _single(rows: list[Row], *, is_open: bool) -> list[Markup]:
    """Render the rebalances between storms, folded if there are storms."""
    if not rows:
        return []
    stopped_ms = sum(row["stopped_total_ms"] or 0 for row in rows)
    summary = f"{clock(rows[0]['started_at_ms'])}: {counted(len(rows), 'single rebalance')}"
    summary += _stopped(stopped_ms)
    return [folded(summary, _sentences(rows), is_open=is_open)]


def _summary(storm: Row) -> str:
    took = "" if storm["duration_ms"] is None else f" in {duration(storm['duration_ms'])}"
    return (
        f"{clock(storm['started_at_ms'])}: {counted(storm['rebalance_count'], 'rebalance')}{took}"
        f"{_stopped(storm['stopped_total_ms'])}: {storms_of(storm['started_by'], 1)}"
    )


def _stopped(ms: int) -> str:
    """Format the stopped time; empty if it is zero or unknown, as in a log."""
    return f", {duration(ms)} stopped" if ms else ""


def _sentences(rows: list[Row]) -> Markup:
    if not rows:
        return element("p", "None of them is among the costliest.", class_="muted")
    return element("ol", [_sentence(row) for row in rows], class_="told")


def _sentence(row: Row) -> Markup:
    sentence = row["sentence"].replace(" -> ", " → ")
    return element("li", f"{sentence[:1].upper()}{sentence[1:]}.", value=row["sequence"])

"""The history of a group in words: storms, and in each a sentence for each rebalance."""

from __future__ import annotations

from kohort.insight.counting import counted
from kohort.insight.report.contents import GroupPage, Row
from kohort.insight.report.markup import Markup, element, join
from kohort.insight.report.tables import behind
from kohort.insight.report.words import clock, duration, storms_of


def narrative(page: GroupPage) -> Markup:
    """The history in chronological order; of the storms, only the most expensive is open."""
    storms = sorted(page.storms.rows, key=lambda row: int(row["first_sequence"]))
    worst = max((row["stopped_total_ms"] for row in storms), default=0)
    rows = list(page.told.rows)
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
        parts.append(behind(_summary(storm), _sentences(within), is_open=is_worst))
    parts += _single(rows, is_open=not storms)
    return join((_cut(page), *parts))


def _cut(page: GroupPage) -> Markup | None:
    left = page.told.left_out
    if not left:
        return None
    said = (
        f"The {len(page.told.rows):,} costliest of {page.told.total:,} rebalances are told; "
        f"{left:,} are left out here."
    )
    return element("p", said, class_="muted")


def _single(rows: list[Row], *, is_open: bool) -> list[Markup]:
    """The rebalances between storms, folded unless there is nothing else."""
    if not rows:
        return []
    stopped_ms = sum(row["stopped_total_ms"] or 0 for row in rows)
    summary = f"{clock(rows[0]['started_at_ms'])}: {counted(len(rows), 'single rebalance')}"
    summary += _stopped(stopped_ms)
    return [behind(summary, _sentences(rows), is_open=is_open)]


def _summary(storm: Row) -> str:
    took = "" if storm["duration_ms"] is None else f" in {duration(storm['duration_ms'])}"
    return (
        f"{clock(storm['started_at_ms'])}: {counted(storm['rebalance_count'], 'rebalance')}{took}"
        f"{_stopped(storm['stopped_total_ms'])}: {storms_of(storm['started_by'], 1)}"
    )


def _stopped(ms: int) -> str:
    """The stopped time in words; empty if it is not known, as in a log."""
    return f", {duration(ms)} stopped" if ms else ""


def _sentences(rows: list[Row]) -> Markup:
    if not rows:
        return element("p", "None of them is among the costliest.", class_="muted")
    return element("ol", [_sentence(row) for row in rows], class_="told")


def _sentence(row: Row) -> Markup:
    said = row["sentence"].replace(" -> ", " → ")
    return element("li", f"{said[:1].upper()}{said[1:]}.", value=row["sequence"])

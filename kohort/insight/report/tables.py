"""Tables that fit on a phone: there, each row is a block, and each value has its column's title."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from kohort.insight.report.contents import Listed, Row
from kohort.insight.report.markup import Child, Markup, element
from kohort.insight.report.text import NOTHING, act, cause, clock, column, doubts, name, seconds

Cells: TypeAlias = Sequence[Child]


def table(
    titles: Sequence[str], rows: Iterable[Cells], *, texts: int = 1, class_: str | None = None
) -> Markup:
    """Make a table: `texts` columns of text, then columns of numbers. The first column has row
    titles.
    """
    head = [
        element("th", title, scope="col", class_=None if place < texts else "number")
        for place, title in enumerate(titles)
    ]
    body = [element("tr", _cells(titles, row, texts)) for row in rows]
    return element(
        "table", element("thead", element("tr", head)), element("tbody", body), class_=class_
    )


def _cells(titles: Sequence[str], row: Cells, texts: int) -> Iterable[Markup]:
    for place, (title, value) in enumerate(zip(titles, row, strict=True)):
        if place == 0:
            yield element("th", value, scope="row")
        else:
            style = None if place < texts else "number"
            yield element("td", value, class_=style, data_label=title)


def folded(summary: str, *content: Child, is_open: bool = False) -> Markup:
    """Return content that is hidden until the reader opens it."""
    return element("details", element("summary", summary), content, open=is_open)


def listed(what: str, rows: Listed, shown: Markup) -> Markup:
    """Return a collapsed table, with the number of rows, and a note if not all are shown."""
    left = f" The first {len(rows.rows):,} of {rows.total:,} are shown." if rows.left_out else ""
    note = element("p", left, class_="muted") if left else None
    return folded(f"{what} ({rows.total:,})", note, shown)


def number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def by_columns(
    *columns: tuple[str, Sequence[Child]], texts: int = 1, class_: str | None = None
) -> Markup:
    """Make a table from titles and the cells below each."""
    titles, cells = zip(*columns, strict=True)
    return table(titles, zip(*cells, strict=True), texts=texts, class_=class_)


def _numbers(rows: Sequence[Row], name: str) -> list[str]:
    return [number(row[name]) for row in rows]


def _seconds(rows: Sequence[Row], name: str) -> list[str]:
    return [seconds(row[name]) for row in rows]


def _durations(rows: Sequence[Row], name: str) -> list[str]:
    return column(row[name] for row in rows)


def _partitions(rows: Sequence[Row]) -> list[str]:
    return [f"{name(row['topic'])}-{row['partition']}" for row in rows]


def slow_members(rows: Sequence[Row]) -> Markup:
    joined = [row if row["join_count"] else {**row, **_NEVER_JOINED} for row in rows]
    return by_columns(
        ("Member", [name(row["process"]) for row in rows]),
        ("Host", [name(row["host"] or NOTHING) for row in rows]),
        ("Waited for, times", _numbers(rows, "waited_for_count")),
        ("Waited for, s", _seconds(rows, "waited_for_total_ms")),
        ("Longest, s", _seconds(rows, "waited_for_longest_ms")),
        ("Joins after, usually", _durations(joined, "join_delay_p50_ms")),
        ("99 % within", _durations(joined, "join_delay_p99_ms")),
        ("Rebalance timeout", _durations(rows, "rebalance_timeout_ms")),
        ("Missed", _numbers(rows, "missed_count")),
        texts=2,
    )


_NEVER_JOINED: Final = dict.fromkeys(("join_delay_p50_ms", "join_delay_p99_ms"))


def heartbeat_gaps(rows: Sequence[Row]) -> Markup:
    timeouts = [row["session_timeout_ms"] or row["expired_timeout_ms"] for row in rows]
    return by_columns(
        ("Member", [name(row["process"]) for row in rows]),
        ("Notifications", _numbers(rows, "told_count")),
        ("After, usually", _durations(rows, "told_p50_ms")),
        ("99 % within", _durations(rows, "told_p99_ms")),
        ("Longest", _durations(rows, "told_longest_ms")),
        ("Sessions expired", _numbers(rows, "expired_count")),
        ("Session timeout", column(timeouts)),
    )


def unavailability(rows: Sequence[Row]) -> Markup:
    return by_columns(
        ("Partition", _partitions(rows)),
        ("Lost because", [cause(row["cause"]) for row in rows]),
        ("Times", _numbers(rows, "times")),
        ("Without a reader, s", _seconds(rows, "total_ms")),
        ("Longest, s", _seconds(rows, "longest_ms")),
        ("Ongoing", _numbers(rows, "open_count")),
        texts=2,
    )


def flapping(rows: Sequence[Row]) -> Markup:
    return by_columns(
        ("Partition", _partitions(rows)),
        ("Moves", _numbers(rows, "moves")),
        ("At most, close together", _numbers(rows, "moves_in_window")),
        ("Owners", _numbers(rows, "owner_count")),
        ("Returns", _numbers(rows, "returns")),
        ("Shortest time", _durations(rows, "shortest_ms")),
    )


def needless(rows: Sequence[Row]) -> Markup:
    causes = [f"{cause(row['trigger_kind'])}{_mark(row.get('trigger_certainty'))}" for row in rows]
    members = [row["trigger_client_id"] or row["trigger_member_id"] or NOTHING for row in rows]
    return by_columns(
        ("Started", [clock(row["started_at_ms"]) for row in rows]),
        ("Cause", causes),
        ("Caused by", list(map(name, members))),
        ("Stopped, s", _seconds(rows, "stopped_total_ms")),
        texts=3,
    )


def by_time(rows: Sequence[Row]) -> Markup:
    return by_columns(
        ("From", [clock(row["at_ms"]) for row in rows]),
        ("Rebalances", _numbers(rows, "rebalance_count")),
        ("Stopped, s", _seconds(rows, "stopped_total_ms")),
    )


def _mark(certainty: str | None) -> str:
    return f" ({certainty})" if certainty and certainty != "certain" else ""


def causes(rows: Sequence[Row]) -> Markup:
    return by_columns(
        ("Cause", [f"{act(row['kind'])}{_mark(doubts(row))}" for row in rows]),
        ("Times", _numbers(rows, "act_count")),
        ("Rebalances", _numbers(rows, "rebalance_count")),
        ("Second halves", _numbers(rows, "second_half_count")),
        ("Avoided", _numbers(rows, "avoided_count")),
        ("Moved nothing", _numbers(rows, "needless_count")),
        ("Stopped, s", _seconds(rows, "stopped_total_ms")),
        ("Longest stop, s", _seconds(rows, "stopped_longest_ms")),
    )

"""Tables that fit on a phone: there, each row is a block, and each value has its title."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from kohort.insight.report.contents import Listed, Row
from kohort.insight.report.markup import Child, Markup, element
from kohort.insight.report.text import NOTHING, act, cause, clock, column, doubts, name, seconds

Cells: TypeAlias = Sequence[Child]


def table(
    titles: Sequence[str], rows: Iterable[Cells], *, texts: int = 1, class_: str | None = None
) -> Markup:
    """Make a table: `texts` columns of text, then numbers. The first column has row titles."""
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
    """Return content that is folded until the reader opens it."""
    return element("details", element("summary", summary), content, open=is_open)


def listed(what: str, rows: Listed, shown: Markup) -> Markup:
    """Return a folded table, with the number of its rows and of the rows shown."""
    left = f" The first {len(rows.rows):,} of {rows.total:,} are shown." if rows.left_out else ""
    note = element("p", left, class_="muted") if left else None
    return folded(f"{what} ({rows.total:,})", note, shown)


def number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def slow_members(rows: Sequence[Row]) -> Markup:
    titles = (
        "Member",
        "Host",
        "Waited for, times",
        "Waited for, s",
        "Longest, s",
        "Joins after, usually",
        "99 % within",
        "Rebalance timeout",
        "Missed",
    )
    usual, most, timeouts = (
        column(
            row[title] if row["join_count"] or title == "rebalance_timeout_ms" else None
            for row in rows
        )
        for title in ("join_delay_p50_ms", "join_delay_p99_ms", "rebalance_timeout_ms")
    )
    return table(
        titles,
        (
            (
                name(row["process"]),
                name(row["host"] or NOTHING),
                number(row["waited_for_count"]),
                seconds(row["waited_for_total_ms"]),
                seconds(row["waited_for_longest_ms"]),
                usual[place],
                most[place],
                timeouts[place],
                number(row["missed_count"]),
            )
            for place, row in enumerate(rows)
        ),
        texts=2,
    )


def heartbeat_gaps(rows: Sequence[Row]) -> Markup:
    titles = (
        "Member",
        "Notifications",
        "After, usually",
        "99 % within",
        "Longest",
        "Sessions expired",
        "Session timeout",
    )
    usual, most, longest = (
        column(row[title] for row in rows)
        for title in ("told_p50_ms", "told_p99_ms", "told_longest_ms")
    )
    sessions = column(row["session_timeout_ms"] or row["expired_timeout_ms"] for row in rows)
    return table(
        titles,
        (
            (
                name(row["process"]),
                number(row["told_count"]),
                usual[place],
                most[place],
                longest[place],
                number(row["expired_count"]),
                sessions[place],
            )
            for place, row in enumerate(rows)
        ),
    )


def unavailability(rows: Sequence[Row]) -> Markup:
    titles = (
        "Partition",
        "Lost because",
        "Times",
        "Without a reader, s",
        "Longest, s",
        "Ongoing",
    )
    return table(
        titles,
        (
            (
                f"{name(row['topic'])}-{row['partition']}",
                cause(row["cause"]),
                number(row["times"]),
                seconds(row["total_ms"]),
                seconds(row["longest_ms"]),
                number(row["open_count"]),
            )
            for row in rows
        ),
        texts=2,
    )


def flapping(rows: Sequence[Row]) -> Markup:
    titles = ("Partition", "Moves", "At most, close together", "Owners", "Returns", "Shortest time")
    shortest = column(row["shortest_ms"] for row in rows)
    return table(
        titles,
        (
            (
                f"{name(row['topic'])}-{row['partition']}",
                number(row["moves"]),
                number(row["moves_in_window"]),
                number(row["owner_count"]),
                number(row["returns"]),
                shortest[place],
            )
            for place, row in enumerate(rows)
        ),
    )


def needless(rows: Sequence[Row]) -> Markup:
    return table(
        ("Started", "Cause", "Caused by", "Stopped, s"),
        (
            (
                clock(row["started_at_ms"]),
                f"{cause(row['trigger_kind'])}{_mark(row.get('trigger_certainty'))}",
                name(row["trigger_client_id"] or row["trigger_member_id"] or NOTHING),
                seconds(row["stopped_total_ms"]),
            )
            for row in rows
        ),
        texts=3,
    )


def by_time(rows: Sequence[Row]) -> Markup:
    return table(
        ("From", "Rebalances", "Stopped, s"),
        (
            (
                clock(row["at_ms"]),
                number(row["rebalance_count"]),
                seconds(row["stopped_total_ms"]),
            )
            for row in rows
        ),
    )


def _mark(certainty: str | None) -> str:
    return f" ({certainty})" if certainty and certainty != "certain" else ""


def causes(rows: Sequence[Row]) -> Markup:
    titles = (
        "Cause",
        "Times",
        "Rebalances",
        "Second halves",
        "Avoided",
        "Moved nothing",
        "Stopped, s",
        "Longest stop, s",
    )
    return table(
        titles,
        (
            (
                f"{act(row['kind'])}{_mark(doubts(row))}",
                number(row["act_count"]),
                number(row["rebalance_count"]),
                number(row["second_half_count"]),
                number(row["avoided_count"]),
                number(row["needless_count"]),
                seconds(row["stopped_total_ms"]),
                seconds(row["stopped_longest_ms"]),
            )
            for row in rows
        ),
    )

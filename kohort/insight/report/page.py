"""Renders the page: a single file without scripts or external resources."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Final

from kohort.formats.text import counted
from kohort.insight.report import tables
from kohort.insight.report.answer import FirstScreen, answer
from kohort.insight.report.choices import choices
from kohort.insight.report.contents import Contents, GroupPage, Row
from kohort.insight.report.first_screen import (
    act_line,
    change,
    first_screen,
    headline,
    in_short,
    mostly,
    slowest,
)
from kohort.insight.report.markup import Child, Markup, element, join
from kohort.insight.report.ownership import ownership, table_rows
from kohort.insight.report.tables import folded
from kohort.insight.report.text import column, name
from kohort.insight.report.timeline import timeline


def render(contents: Contents, source: str, made_at: datetime | None = None) -> str:
    """Render the page as HTML. Names of groups and members are always escaped."""
    answers = [answer(page) for page in contents.groups]
    title = _title(contents)
    made = (made_at or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(style())),
    )
    body = element(
        "body",
        element("h1", title),
        _overview(contents, answers) if _are_several(contents) else None,
        [
            _group(page, summary, place, is_alone=not _are_several(contents))
            for place, (page, summary) in enumerate(
                zip(contents.groups, answers, strict=True), start=1
            )
        ],
        element("footer", f"Made {made} UTC by Kohort from {source}. Times are UTC."),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def style() -> str:
    """Return the page's style sheet; the console has the same colours."""
    colors = files("kohort.groups.history").joinpath("colors.css").read_text(encoding="utf-8")
    return colors + files(__package__).joinpath(STYLE).read_text(encoding="utf-8")


def _are_several(contents: Contents) -> bool:
    return len(contents.groups) > 1 or bool(contents.others.total)


def _title(contents: Contents) -> str:
    if _are_several(contents):
        count = len(contents.groups) + contents.others.total
        return f"Why {counted(count, 'group')} rebalanced, and what to change"
    return f"Why {name(contents.groups[0].group)} rebalanced, and what to change"


def _overview(contents: Contents, answers: list[FirstScreen]) -> Markup:
    groups = list(zip(contents.groups, answers, strict=True))
    links = [
        element("a", name(page.group), href=f"#g{place}")
        for place, page in enumerate(contents.groups, start=1)
    ]
    shown = tables.by_columns(
        ("Group", links),
        ("Costliest cause", [mostly(*group) for group in groups]),
        ("Waited for", [slowest(*group) for group in groups]),
        ("What to change", [change(summary) for summary in answers]),
        *_totals([page.figures for page in contents.groups]),
        texts=4,
    )
    shown = join((element("p", "Times are UTC.", class_="muted"), shown))
    others = contents.others.rows
    if not others:
        return shown
    names = ("Group", [name(row["group"]) for row in others])
    more = tables.by_columns(names, *_totals(others))
    return join((shown, tables.listed("Groups with less stopped time", contents.others, more)))


def _totals(rows: Sequence[Row]) -> Iterator[tuple[str, list[str]]]:
    yield "Rebalances", [f"{row['rebalance_count']:,}" for row in rows]
    # A sum of 0 means that the history has no stopped times.
    yield "Stopped", column(row["stopped_total_ms"] or None for row in rows)


def _group(page: GroupPage, summary: FirstScreen, place: int, *, is_alone: bool) -> Markup:
    anchor = f"g{place}"
    advice = choices(page, summary)
    return element(
        "main" if is_alone else "article",
        None if is_alone else element("h2", name(page.group)),
        element("p", headline(page), class_="headline"),
        in_short(page, summary, anchor) if is_alone else None,
        first_screen(page, summary, anchor),
        element("h3", "Quality of the advice, and other settings", id=f"{anchor}-advice"),
        advice if advice is not None else element("p", "No advice was computed.", class_="muted"),
        element("h3", "When"),
        timeline(page),
        tables.folded("The bars as a table", tables.by_time(page.by_time)),
        element("h3", "Each rebalance, and why"),
        _narrative(page),
        _owners(page),
        element("h3", "Causes, members and partitions"),
        _details(page),
        id=anchor,
    )


def _owners(page: GroupPage) -> Child:
    shown = page.ownership
    if not shown.times:
        return None
    drawn = len({(row["topic"], row["partition"]) for row in shown.times})
    about = shown.about
    if shown.partitions > drawn:
        about += f" {drawn} of {shown.partitions:,} partitions are drawn."
    rows = table_rows(page)
    cut = f" (the first {_OWNED_ROWS_MAX} of {len(rows):,})" if len(rows) > _OWNED_ROWS_MAX else ""
    titles = ("Partition", "Owner", "From", "For", "Because")
    cells = [tuple(row.values()) for row in rows[:_OWNED_ROWS_MAX]]
    folded = tables.table(titles, cells, texts=len(titles))
    return [
        element("h3", "Who owned what"),
        element("p", about, class_="muted") if about else None,
        ownership(page),
        tables.folded(f"The owners as a table{cut}", folded),
    ]


def _details(page: GroupPage) -> Child:
    parts = [tables.folded("All causes", tables.causes(page.causes), is_open=len(page.causes) > 3)]
    for title, rows, shown in (
        ("Members that were waited for", page.slow_members, tables.slow_members),
        ("How quickly members are notified", page.heartbeat_gaps, tables.heartbeat_gaps),
        ("Partitions without a reader", page.unavailability, tables.unavailability),
        ("Partitions that changed owners often", page.flapping, tables.flapping),
        ("Rebalances that moved nothing", page.needless, tables.needless),
    ):
        if rows.total:
            parts.append(tables.listed(title, rows, shown(rows.rows)))
    return parts


def _narrative(page: GroupPage) -> Markup:
    """Render the acts, such as deployments, newest first, each with a sentence per rebalance. The
    newest act is unfolded.
    """
    sentences = {row["sequence"]: row for row in page.sentences.rows}
    parts: list[Markup] = []
    for place, row in enumerate(page.acts.rows):
        within = [sentences[number] for number in row["sequences"] if number in sentences]
        line = act_line(row)
        if within:
            parts.append(folded(line, _sentences(within), is_open=not place))
        else:
            parts.append(element("p", line, class_="act"))
    return join((_cut(page), *parts))


def _cut(page: GroupPage) -> Markup | None:
    left = page.sentences.left_out
    note = ""
    if left:
        note = (
            f"The {len(page.sentences.rows):,} costliest of {page.sentences.total:,} rebalances "
            f"are listed; {left:,} are omitted."
        )
    if page.acts.left_out:
        note += f" The newest {len(page.acts.rows):,} of {page.acts.total:,} causes are listed."
    if not note:
        return None
    return element("p", note, class_="muted")


def _sentences(rows: list[Row]) -> Markup:
    return element("ol", [_sentence(row) for row in rows], class_="told")


def _sentence(row: Row) -> Markup:
    sentence = row["sentence"].replace(" -> ", " → ")
    return element("li", f"{sentence[:1].upper()}{sentence[1:]}.", value=row["sequence"])


STYLE: Final = "page.css"
_OWNED_ROWS_MAX: Final = 100

"""The advice on a group: settings worth considering, as a table and as lines to paste."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from kohort.pipeline.advisor.config_lines import config_lines
from kohort.pipeline.advisor.setting import Setting
from kohort.pipeline.advisor.words import changes
from kohort.pipeline.report.answer import FirstScreen
from kohort.pipeline.report.contents import GroupPage, Row
from kohort.pipeline.report.markup import Markup, element, join, text
from kohort.pipeline.report.settings_plot import front
from kohort.pipeline.report.tables import Cells, behind, number, table
from kohort.pipeline.report.words import duration, name, seconds

TRIED_MAX: Final = 100
_FOR: Final = {
    "java": "Java (properties)",
    "librdkafka": "librdkafka: confluent-kafka, Go, .NET, Node.js",
    "aiokafka": "aiokafka (arguments)",
    "kohort": "Kohort's consumer (arguments)",
    "broker": "The brokers (server.properties)",
}
_TITLES: Final = (
    "Setting",
    "Rebalances",
    "Stopped, s",
    "Unread, s",
    "A crash is noticed after",
)


def setting_of(row: Row) -> Setting:
    """The setting of a row of `advice`."""
    names = [one.name for one in fields(Setting) if one.name in row]
    return Setting(**{one: row[one] for one in names})


def changed(recorded: Row, row: Row) -> str:
    """The change to make, in words, with a capital letter first."""
    if row.get("quicker_member"):
        return f"If {name(row['quicker_member'])} were as quick as the others"
    said = changes(setting_of(recorded), setting_of(row))
    return said[:1].upper() + said[1:]


def choices(page: GroupPage, found: FirstScreen) -> Markup | None:
    """The section; None without advice."""
    recorded = found.recorded
    if recorded is None:
        return None
    rows: list[Cells] = [_line("As it is", recorded)]
    rows += [
        _line(_named(place, recorded, row), row) for place, row in enumerate(found.choices, start=1)
    ]
    if found.quicker is not None:
        rows.append(_line(changed(recorded, found.quicker), found.quicker))
    check = recorded["text"]
    return join(
        (
            table(_TITLES, rows),
            element("p", f"{check[:1].upper()}{check[1:]}.", class_="muted"),
            *_pastes(found, recorded),
            _unknown(recorded),
            behind(
                f"All {len(page.advice):,} settings that were tried",
                front(list(page.advice), found),
                _tried(page, recorded),
            ),
        )
    )


def _named(place: int, recorded: Row, row: Row) -> Markup:
    said = text(changed(recorded, row))
    star = element("span", " ★ gains most", class_="star") if row["is_best"] else None
    return join((f"{place}. ", element("strong", said) if row["is_best"] else said, star))


def _line(title: Markup | str, row: Row) -> Cells:
    spread_ms = row.get("stopped_spread_ms") or 0
    # A spread of less than a tenth is not worth showing.
    by_chance = f" ± {seconds(spread_ms)}" if spread_ms > max(row["stopped_ms"] / 10, 1_000) else ""
    return (
        title,
        number(row["rebalances"]),
        seconds(row["stopped_ms"]) + by_chance,
        seconds(row["unread_ms"]),
        duration(row["notice_ms"]),
    )


def _pastes(found: FirstScreen, recorded: Row) -> list[Markup]:
    pasted = []
    for place, row in enumerate(found.choices, start=1):
        blocks = [
            element(
                "div",
                element("h4", _FOR.get(whom, whom)),
                element("pre", element("code", _lines(lines)), tabindex=0),
            )
            for whom, lines in config_lines(setting_of(recorded), setting_of(row)).items()
        ]
        summary = f"Lines to paste for {place}: {changed(recorded, row)}"
        pasted.append(
            behind(summary, element("div", blocks, class_="paste"), is_open=bool(row["is_best"]))
        )
    return pasted


def _lines(lines: tuple[str, ...]) -> Markup:
    return Markup("\n".join(map(text, lines)))


def _unknown(recorded: Row) -> Markup | None:
    unknown = [*(recorded.get("unranked") or ()), *(recorded.get("unknown") or ())]
    if not unknown:
        return None
    return behind(
        f"What the history does not say ({len(unknown)})",
        element("ul", [element("li", said) for said in unknown]),
    )


def _tried(page: GroupPage, recorded: Row) -> Markup:
    ranked = sorted(page.advice, key=lambda row: (row["stopped_ms"], row["rebalances"]))
    shown = ranked[:TRIED_MAX]
    left = len(ranked) - len(shown)
    note = (
        f"The {len(shown)} with the least stopped time; {left:,} more were tried." if left else ""
    )
    rows = [_line(changed(recorded, row), row) for row in shown]
    return join((element("p", note, class_="muted") if note else None, table(_TITLES, rows)))

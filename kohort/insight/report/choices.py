"""The advice on a group: settings worth considering, as a table and as lines to paste."""

from __future__ import annotations

import re
from typing import Final

from kohort.insight.advisor.config_lines import config_lines
from kohort.insight.advisor.words import changes
from kohort.insight.counting import counted
from kohort.insight.report.answer import FirstScreen, setting_of
from kohort.insight.report.contents import GroupPage, Row
from kohort.insight.report.markup import NBSP, Markup, element, join, text
from kohort.insight.report.settings_plot import front
from kohort.insight.report.tables import Cells, behind, number, table
from kohort.insight.report.words import duration, name, seconds

TRIED_MAX: Final = 100
_FOR: Final = {
    "java": "Java (properties)",
    "librdkafka": "librdkafka (Python, Go, .NET, Node.js)",
    "aiokafka": "aiokafka (arguments)",
    "kohort": "Kohort's consumer (arguments)",
    "broker": "The brokers (server.properties)",
}
_TITLES: Final = (
    "Setting",
    "Rebalances",
    "Stopped, s",
    "No reader, s",
    "A crash is noticed after",
)
_SHORT_TITLES: Final = (
    "Setting",
    "Rebalances, replayed",
    "Stopped",
    "No reader",
    "Crash noticed",
)


def changed(recorded: Row, row: Row) -> str:
    """The change to make, in words, with a capital letter first."""
    if row.get("quicker_member"):
        quicker = f"If {name(row['quicker_member'])} were as quick as the others"
        is_both = setting_of(row) != setting_of(recorded)
        return f"{quicker}, and ★" if is_both else quicker
    said = changes(setting_of(recorded), setting_of(row))
    return re.sub(r"(?<=\d) s\b", f"{NBSP}s", said[:1].upper() + said[1:])


def compared(found: FirstScreen) -> Markup:
    """What there is and the settings worth considering, a line for each, and what it would come to
    if the member that was waited for most were as quick as the others. Small enough for the first
    screen.
    """
    recorded = found.recorded
    assert recorded is not None
    now = element("small", _now(recorded), class_="now")
    rows: list[Cells] = [_short_line(join(("As it is: ", now)), recorded)]
    rows += [
        _short_line(_named(place, recorded, row), row)
        for place, row in enumerate(found.choices, start=1)
    ]
    if found.quicker is not None:
        rows.append(_short_line(changed(recorded, found.quicker), found.quicker))
    return table(_SHORT_TITLES, rows, class_="compared")


def _now(recorded: Row) -> str:
    """The settings that the group had, of which the table speaks."""
    setting, unknown = setting_of(recorded), " ".join(_not_said(recorded))
    said = ["static members"] if setting.static else []
    if "eager or cooperative" not in unknown:
        said.append("cooperative assignor" if setting.cooperative else "eager assignor")
    if "session.timeout.ms" not in unknown:
        said.append(f"{duration(setting.session_timeout_ms)} session")
    return ", ".join(said) or "as far as it is known"


def legend(page: GroupPage) -> Markup:
    """The meaning of the table's columns, and why its first line is not quite the history."""
    figures = page.figures
    history = counted(figures["rebalance_count"], "rebalance")
    if figures["stopped_total_ms"]:
        history += f", {duration(figures['stopped_total_ms'])} stopped"
    said = (
        "Stopped: all members added up. No reader: of all partitions, added up. "
        "Crash noticed: how long after it. "
        f"All lines are replays; what was recorded is {history}."
    )
    return element("p", said, class_="muted")


def to_paste(found: FirstScreen) -> tuple[str, Markup] | None:
    """The first lines to paste, after the library or program that they are for."""
    if found.best is None or found.recorded is None:
        return None
    blocks = _blocks(found, found.recorded, found.best)
    return blocks[0] if blocks else None


def to_set(found: FirstScreen) -> Markup | None:
    """The lines to paste for the setting that gains most, one client library open."""
    if found.best is None or found.recorded is None:
        return None
    blocks = _blocks(found, found.recorded, found.best)
    return element(
        "div",
        [
            behind(whom if place else f"Lines to paste for ★: {whom}", code, is_open=place == 0)
            for place, (whom, code) in enumerate(blocks)
        ],
        class_="to-set",
    )


def choices(page: GroupPage, found: FirstScreen) -> Markup | None:
    """The section with all that the table of the first screen has no room for; None without
    advice.
    """
    recorded = found.recorded
    if recorded is None:
        return None
    check = recorded["text"]
    return join(
        (
            element("p", f"{check[:1].upper()}{check[1:]}."),
            _unknown(recorded),
            *_pastes(found, recorded),
            behind(
                f"All {len(page.advice):,} settings that were tried",
                front(list(page.advice), found),
                _tried(page, recorded),
            )
            if len(page.advice) > 1
            else None,
        )
    )


def _named(place: int, recorded: Row, row: Row) -> Markup:
    """The setting by its number; a star is on the one that gains most."""
    said = text(changed(recorded, row))
    if not row["is_best"]:
        return join((f"{place}. ", said))
    star = element("span", "★", class_="star", title="gains most")
    return join((f"{place}. ", star, " ", said))


def _line(title: Markup | str, row: Row) -> Cells:
    by_chance = f" ± {seconds(row['stopped_spread_ms'])}" if _is_by_chance(row) else ""
    return (
        title,
        number(row["rebalances"]),
        seconds(row["stopped_ms"]) + by_chance,
        seconds(row["unread_ms"]),
        duration(row["notice_ms"]),
    )


def _short_line(title: Markup | str, row: Row) -> Cells:
    by_chance = f" ± {duration(row['stopped_spread_ms'])}" if _is_by_chance(row) else ""
    return (
        title,
        number(row["rebalances"]),
        duration(row["stopped_ms"]) + by_chance,
        duration(row["unread_ms"]),
        duration(row["notice_ms"]),
    )


def _is_by_chance(row: Row) -> bool:
    """A spread of less than a tenth is not worth showing."""
    return bool((row.get("stopped_spread_ms") or 0) > max(row["stopped_ms"] / 10, 1_000))


def _blocks(found: FirstScreen, recorded: Row, row: Row) -> list[tuple[str, Markup]]:
    """The lines to set for each client library and for the brokers."""
    return [
        (_FOR.get(whom, whom), element("pre", element("code", _lines(lines)), tabindex=0))
        for whom, lines in config_lines(
            setting_of(recorded), setting_of(row), found.assignor
        ).items()
    ]


def _pastes(found: FirstScreen, recorded: Row) -> list[Markup]:
    """Lines to paste for all but the one that gains most: its are on the first screen."""
    return [
        behind(
            f"Lines to paste for {place}: {changed(recorded, row)}",
            element(
                "div",
                [
                    element("div", element("h4", whom), code)
                    for whom, code in _blocks(found, recorded, row)
                ],
                class_="paste",
            ),
        )
        for place, row in enumerate(found.choices, start=1)
        if not row["is_best"]
    ]


def _lines(lines: tuple[str, ...]) -> Markup:
    """The lines as they are pasted. What goes on in a further row is indented, so that it does not
    look like a line of its own. A long line may break behind its `=`, between classes and before
    the last name of one, not within a word; neither the indent nor `wbr` is copied.
    """
    ends = [Markup("\n")] * (len(lines) - 1) + [Markup()]
    return join(
        element("span", _line_to_paste(line), end) for line, end in zip(lines, ends, strict=True)
    )


def _line_to_paste(line: str) -> Markup:
    option, equals, value = line.partition("=")
    if not equals:
        return text(line)
    may_break = element("wbr")
    parts: list[Markup | str] = [f"{option}="]
    for place, one in enumerate(value.split(",")):
        package, dot, last = one.rpartition(".")
        parts += [",", may_break] if place else [may_break]
        parts += [package, dot, may_break, last] if dot else [last]
    return join(parts)


def _unknown(recorded: Row) -> Markup | None:
    unknown = _not_said(recorded)
    if not unknown:
        return None
    return behind(
        f"What the history does not say ({len(unknown)})",
        element("ul", [element("li", said) for said in unknown]),
    )


def _not_said(recorded: Row) -> list[str]:
    return [*(recorded.get("unranked") or ()), *(recorded.get("unknown") or ())]


def _tried(page: GroupPage, recorded: Row) -> Markup:
    ranked = sorted(page.advice, key=lambda row: (row["stopped_ms"], row["rebalances"]))
    shown = ranked[:TRIED_MAX]
    left = len(ranked) - len(shown)
    note = (
        f"The {len(shown)} with the least stopped time; {left:,} more were tried." if left else ""
    )
    rows = [_line(changed(recorded, row), row) for row in shown]
    return join((element("p", note, class_="muted") if note else None, table(_TITLES, rows)))

"""Renders the advice on a group: a table of settings and configuration lines."""

import re
from operator import add
from typing import Final

from kohort.formats.text import counted
from kohort.insight.advisor.config_lines import config_lines
from kohort.insight.advisor.text import changes
from kohort.insight.report.answer import FirstScreen, setting_of
from kohort.insight.report.contents import GroupPage, Row
from kohort.insight.report.markup import NBSP, Markup, element, join, text
from kohort.insight.report.tables import by_columns, folded, number
from kohort.insight.report.text import column, duration, name, seconds, unit_of

TRIED_MAX: Final = 100
_FOR: Final = {
    "java": "Java (properties)",
    "librdkafka": "librdkafka (Python, Go, .NET, Node.js)",
    "aiokafka": "aiokafka (arguments)",
    "kohort": "Kohort's consumer (arguments)",
    "broker": "The brokers (server.properties)",
}


def changed(recorded: Row, row: Row) -> str:
    """Describe how a setting differs from the recorded one, with a capital first letter."""
    if row.get("quicker_member"):
        quicker = f"If {name(row['quicker_member'])} were as quick as the others"
        is_both = setting_of(row) != setting_of(recorded)
        return f"{quicker}, and ★" if is_both else quicker
    sentence = changes(setting_of(recorded), setting_of(row))
    return re.sub(r"(?<=\d) s\b", f"{NBSP}s", sentence[:1].upper() + sentence[1:])


def compared(summary: FirstScreen) -> Markup:
    """Render the table of the first screen: the recorded setting, the settings worth considering,
    and the result if the slowest member were as quick as the others.
    """
    recorded = summary.recorded
    assert recorded is not None
    now = element("small", _now(recorded), class_="now")
    titles = [join(("As recorded: ", now))]
    titles += [_named(place, recorded, row) for place, row in enumerate(summary.choices, start=1)]
    rows = [recorded, *summary.choices]
    if summary.quicker is not None:
        titles.append(text(changed(recorded, summary.quicker)))
        rows.append(summary.quicker)
    stopped = unit_of([row["stopped_ms"] for row in rows])
    return by_columns(
        ("Setting", titles),
        ("Rebalances, replayed", [number(row["rebalances"]) for row in rows]),
        ("Stopped", [stopped.text(row["stopped_ms"], _spread_ms(row)) for row in rows]),
        ("No reader", column(row["unread_ms"] for row in rows)),
        ("Crash noticed", column(row["notice_ms"] for row in rows)),
        class_="compared",
    )


def _now(recorded: Row) -> str:
    setting, unknown = setting_of(recorded), " ".join(_unknown_facts(recorded))
    parts = ["static members"] if setting.static else []
    if "eager or cooperative" not in unknown:
        parts.append("cooperative assignor" if setting.cooperative else "eager assignor")
    if "session.timeout.ms" not in unknown:
        parts.append(f"{duration(setting.session_timeout_ms)} session")
    return ", ".join(parts) or "unknown"


def legend(page: GroupPage) -> Markup:
    """Explain the table's columns, and why its first row differs from the history."""
    figures = page.figures
    history = counted(figures["rebalance_count"], "rebalance")
    if figures["stopped_total_ms"]:
        history += f", {duration(figures['stopped_total_ms'])} stopped"
    sentence = (
        "Stopped: sum over all members, each from its join to its assignment; while it gives up "
        "partitions before its join, only No reader counts. No reader: sum over all partitions. "
        "Crash noticed: the delay until detection. "
        f"All lines are replays; the history has {history}."
    )
    return element("p", sentence, class_="muted")


def to_paste(summary: FirstScreen) -> tuple[str, Markup] | None:
    """Return the first block of configuration lines for the best setting; None without one."""
    if summary.best is None or summary.recorded is None:
        return None
    blocks = _blocks(summary, summary.recorded, summary.best)
    return blocks[0] if blocks else None


def to_set(summary: FirstScreen) -> Markup | None:
    """Render the best setting's blocks of configuration lines; only the first is unfolded."""
    if summary.best is None or summary.recorded is None:
        return None
    blocks = _blocks(summary, summary.recorded, summary.best)
    return element(
        "div",
        [
            folded(target if place else f"Lines to paste for ★: {target}", code, is_open=place == 0)
            for place, (target, code) in enumerate(blocks)
        ],
        class_="to-set",
    )


def choices(page: GroupPage, summary: FirstScreen) -> Markup | None:
    """Render the section with the details of the advice; None without advice."""
    recorded = summary.recorded
    if recorded is None:
        return None
    check = recorded["text"]
    return join(
        (
            element("p", f"{check[:1].upper()}{check[1:]}."),
            _unknown(recorded),
            *_pastes(summary, recorded),
            folded(
                f"All {len(page.advice):,} settings that were tried",
                _tried(page, recorded),
            )
            if len(page.advice) > 1
            else None,
        )
    )


def _named(number: int, recorded: Row, row: Row) -> Markup:
    """Return the setting with its number, and a star if it is the best."""
    sentence = text(changed(recorded, row))
    if not row["is_best"]:
        return join((f"{number}. ", sentence))
    star = element("span", "★", class_="star", title="best setting")
    return join((f"{number}. ", star, " ", sentence))


def _spread_ms(row: Row) -> int:
    """Return the spread of the stopped time if it exceeds both a tenth of that time and one second;
    otherwise 0.
    """
    spread_ms: int = row.get("stopped_spread_ms") or 0
    return spread_ms if spread_ms > max(row["stopped_ms"] / 10, 1_000) else 0


def _blocks(summary: FirstScreen, recorded: Row, row: Row) -> list[tuple[str, Markup]]:
    """Return the configuration lines for each client library, and for the brokers."""
    return [
        (_FOR.get(target, target), element("pre", element("code", _lines(lines)), tabindex=0))
        for target, lines in config_lines(
            setting_of(recorded),
            setting_of(row),
            summary.assignor,
            recorded.get("libraries") or (),
        ).items()
    ]


def _pastes(summary: FirstScreen, recorded: Row) -> list[Markup]:
    """Render the configuration lines of each proposed setting except the best."""
    return [
        folded(
            f"Lines to paste for {place}: {changed(recorded, row)}",
            element(
                "div",
                [
                    element("div", element("h4", target), code)
                    for target, code in _blocks(summary, recorded, row)
                ],
                class_="paste",
            ),
        )
        for place, row in enumerate(summary.choices, start=1)
        if not row["is_best"]
    ]


def _lines(lines: tuple[str, ...]) -> Markup:
    """Render lines of configuration so that they can be copied exactly.

    Wrapped lines are indented to distinguish them from new ones. Long lines may wrap after `=`,
    between the Java classes of a list and before a class's simple name. Neither the indent nor the
    `wbr` elements are copied.
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
    for place, class_name in enumerate(value.split(",")):
        package, dot, last = class_name.rpartition(".")
        parts += [",", may_break] if place else [may_break]
        parts += [package, dot, may_break, last] if dot else [last]
    return join(parts)


def _unknown(recorded: Row) -> Markup | None:
    unknown = _unknown_facts(recorded)
    if not unknown:
        return None
    return folded(
        f"Facts missing from the history ({len(unknown)})",
        element("ul", [element("li", sentence) for sentence in unknown]),
    )


def _unknown_facts(recorded: Row) -> list[str]:
    return [*(recorded.get("unranked") or ()), *(recorded.get("unknown") or ())]


def _tried(page: GroupPage, recorded: Row) -> Markup:
    ranked = sorted(page.advice, key=lambda row: (row["stopped_ms"], row["rebalances"]))
    shown = ranked[:TRIED_MAX]
    left = len(ranked) - len(shown)
    note = (
        f"The {len(shown)} with the least stopped time; {left:,} more were tried." if left else ""
    )
    spreads = [f" ± {seconds(spread)}" if (spread := _spread_ms(row)) else "" for row in shown]
    stopped = [seconds(row["stopped_ms"]) for row in shown]
    tried = by_columns(
        ("Setting", [changed(recorded, row) for row in shown]),
        ("Rebalances", [number(row["rebalances"]) for row in shown]),
        ("Stopped, s", list(map(add, stopped, spreads))),
        ("No reader, s", [seconds(row["unread_ms"]) for row in shown]),
        ("A crash is noticed after", column(row["notice_ms"] for row in shown)),
    )
    return join((element("p", note, class_="muted") if note else None, tried))

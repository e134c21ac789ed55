"""The first screen of a group: causes, the members that others waited for, what to change."""

from __future__ import annotations

from typing import Final

from kohort.insight.advisor.weighing import GAIN_LEAST
from kohort.insight.advisor.words import TOO_FAR, nothing_better
from kohort.insight.counting import counted
from kohort.insight.report.answer import Cause, FirstScreen
from kohort.insight.report.choices import changed, compared, legend, to_paste, to_set
from kohort.insight.report.contents import GroupPage, Row
from kohort.insight.report.markup import NBSP, Child, Markup, element, join, text
from kohort.insight.report.words import (
    NOTHING,
    cause,
    days,
    duration,
    family,
    name,
    percent,
)

_SLOW_MS: Final = 1_000
_SLOW: Final = (
    "Before it joins, a member finishes its batch, gives up its partitions and commits: smaller "
    "batches (max.poll.records) and a quicker callback for revoked partitions help, whatever the "
    "settings."
)
_APART: Final = "neither needs the other; together they were not replayed."
_OFF: Final = "nothing is advised, as the replay does not fit the history"
_RESTART: Final = {"member_left", "member_added"}
_HALVES: Final = "; a restart is two: a member left, and one joined"


def headline(page: GroupPage) -> str:
    """The totals of the group, in a sentence."""
    figures = page.figures
    first_ms, last_ms = figures["first_at_ms"], figures["last_at_ms"]
    text = counted(figures["rebalance_count"], "rebalance")
    if last_ms > first_ms:
        text += f" in {duration(last_ms - first_ms)}"
    text += f", {days(first_ms, last_ms)}"
    if figures["stopped_total_ms"]:
        text += (
            f"; members stood still for {duration(figures['stopped_total_ms'])}, all added up, at "
            f"most {duration(figures['stopped_longest_ms'])} at a time"
        )
    else:
        text += "; for how long members stood still is not known, or they did not"
    if figures["avoided_count"]:
        text += f"; {counted(figures['avoided_count'], 'rebalance')} avoided"
    return f"{text}."


def in_short(page: GroupPage, found: FirstScreen, anchor: str) -> Markup:
    """The answers in a line each and the lines to paste, for small screens."""
    said = [("Why", mostly(page, found)), ("Waited for", slowest(page, found))]
    if found.recorded is not None:
        to_change = change(found)
        if found.best is not None:
            to_change = join((to_change, "; ", _noticed(found.recorded, found.best)))
        said.append(("To change", to_change))
    both = _both(found, "both")
    pasted = to_paste(found)
    others = element(
        "a", "Lines for other clients, and the other choices", href=f"#{anchor}-change"
    )
    return element(
        "div",
        [element("p", element("strong", f"{what}: "), words) for what, words in said],
        element("p", both) if both else None,
        [element("p", element("strong", f"{pasted[0]}:")), pasted[1]] if pasted else None,
        element("p", others) if pasted else None,
        class_="short",
    )


def mostly(page: GroupPage, found: FirstScreen) -> str:
    """The main cause, in a few words."""
    if not found.causes:
        return NOTHING
    if found.storms and page.started_by[0]["started_by"] == "deploy":
        storms = page.started_by[0]
        return (
            f"{counted(storms['storm_count'], 'deploy')}: {storms['rebalance_count']:,} of "
            f"{counted(page.figures['rebalance_count'], 'rebalance')}"
        )
    most = found.causes[0]
    said = (
        f"{cause(most.kind)}: {most.rebalances:,} of "
        f"{counted(page.figures['rebalance_count'], 'rebalance')}"
    )
    return f"{said}, {most.share} of the stopped time" if most.stopped_ms else said


def slowest(page: GroupPage, found: FirstScreen) -> Markup | str:
    """The member that the others waited for longest, in a few words."""
    if not found.waited:
        return NOTHING
    row, count = found.waited[0], page.figures["rebalance_count"]
    said = text(
        f"{name(row['process'])}, in {row['waited_for_count']:,} of {counted(count, 'rebalance')}"
    )
    gain = _price(found)
    if gain is None:
        return said
    return join((said, "; if it were as quick as the others, replayed: ", gain))


def change(found: FirstScreen) -> Markup | str:
    """The change that would have helped most, in a few words."""
    recorded, best = found.recorded, found.best
    if recorded is None:
        return NOTHING
    if best is None:
        if _is_off(recorded):
            return _OFF
        if not found.choices:
            return nothing_better(recorded.get("unranked") or ())
        return f"no choice is better in all; {counted(len(found.choices), 'setting')} to weigh"
    return join((f"{changed(recorded, best)}, replayed: ", _gains(recorded, best)))


def _gain(before_ms: int, after_ms: int) -> Markup:
    before, after = duration(before_ms), duration(after_ms)
    return join((f"{before}{NBSP}→{NBSP}", element("strong", f"{after} stopped")))


def _gains(recorded: Row, best: Row) -> Markup:
    """The change in stopped time and rebalances."""
    gain = _gain(recorded["stopped_ms"], best["stopped_ms"])
    fewer = f"{recorded['rebalances']:,} → {counted(best['rebalances'], 'rebalance')}"
    return join((gain, f", {fewer}"))


def _price(found: FirstScreen) -> Markup | None:
    """The gain if the slowest member were as quick as the others; None if it is not known."""
    recorded, quicker = found.recorded, found.quicker
    if recorded is None or quicker is None or _is_off(recorded):
        return None
    return _gain(recorded["stopped_ms"], quicker["stopped_ms"])


def _both(found: FirstScreen, both: str) -> Markup | None:
    """Whether to do both, make a member quicker and set what gains most; None without either."""
    recorded, best, together = found.recorded, found.best, found.both
    if recorded is None or best is None or _price(found) is None:
        return None
    if together is None:
        return text(f"Do {both}: {_APART}")
    gain = _gain(recorded["stopped_ms"], together["stopped_ms"])
    if together["stopped_ms"] > best["stopped_ms"] * (1 - GAIN_LEAST):
        return join(("A quicker member adds little to what is advised: together ", gain, "."))
    return join((f"Do {both}: together ", gain, "."))


def _is_off(recorded: Row) -> bool:
    """Whether the replay fits the history too badly for anything to be advised."""
    return str(recorded["text"]).endswith(TOO_FAR)


def first_screen(page: GroupPage, found: FirstScreen, anchor: str) -> Markup:
    """The two answers side by side, and what to change below, or all of them one below the other on
    narrow screens.
    """
    also = [element("li", said) for said in found.also]
    return element(
        "div",
        _answer("Why", _why(page, found)),
        _answer("Whom the others waited for", _waited(page, found)),
        _answer(
            "What to change",
            _change(page, found, anchor),
            class_="change",
            id_=f"{anchor}-change",
        ),
        _answer("Also seen", element("ul", also), class_="also") if also else None,
        class_="answers",
    )


def _answer(
    title: str, content: Child, class_: str | None = None, id_: str | None = None
) -> Markup:
    return element("section", element("h3", title), content, class_=class_, id=id_)


def _why(page: GroupPage, found: FirstScreen) -> Child:
    most_ms = max((one.stopped_ms for one in found.causes), default=0)
    items = [_cause(one, most_ms) for one in found.causes]
    storms = element("p", found.storms) if found.storms else None
    kinds = element("p", _kinds(page, found), class_="muted") if storms else None
    left = len([row for row in page.causes if row["rebalance_count"]]) - len(items)
    more = element("p", f"{counted(left, 'further cause')} below.", class_="muted")
    return [storms, kinds, element("ol", items, class_="causes"), more if left > 0 else None]


def _kinds(page: GroupPage, found: FirstScreen) -> str:
    """How the counts by cause, which follow, are to be read beside those of storms."""
    shown = {one.kind for one in found.causes}
    halves = _HALVES if shown >= _RESTART else ""
    return f"All {page.figures['rebalance_count']:,} by cause{halves}."


def _cause(one: Cause, most_ms: int) -> Markup:
    stopped = f", {duration(one.stopped_ms)} stopped ({one.share})" if one.stopped_ms else None
    bar = (
        element(
            "span",
            class_=f"bar of-{family(one.kind)}",
            style=f"width:{100 * one.stopped_ms / most_ms:.0f}%",
            aria_hidden="true",
        )
        if one.stopped_ms
        else None
    )
    who = element("small", one.who) if one.who else None
    return element(
        "li",
        element("strong", cause(one.kind)),
        f": {counted(one.rebalances, 'rebalance')}",
        stopped,
        " ",
        who,
        bar,
    )


def _waited(page: GroupPage, found: FirstScreen) -> Child:
    if not found.waited:
        return element("p", "No member made the others wait, as far as the history knows.")
    items = [_waited_for(page, found, row) for row in found.waited]
    slowest_ms = max((row["join_delay_p50_ms"] or 0 for row in found.waited), default=0)
    hint = element("p", _SLOW, class_="muted") if slowest_ms >= _SLOW_MS else None
    return [element("ol", items), _quicker(found), hint]


def _quicker(found: FirstScreen) -> Markup | None:
    """The cost of one slow member, from a replay without its slowness."""
    gain = _price(found)
    if gain is None or found.quicker is None:
        return None
    who = name(found.quicker["quicker_member"])
    said = f"If {who} were as quick as the others, replayed: "
    both = _both(found, "both, this and ★")
    return element("p", said, gain, ". ", both)


def _waited_for(page: GroupPage, found: FirstScreen, row: Row) -> Markup:
    count, times = page.figures["rebalance_count"], row["waited_for_count"]
    said = (
        f": waited for in {times:,} of {counted(count, 'rebalance')} ({percent(times, count)}), "
        f"{duration(row['waited_for_total_ms'])} in all, each wait counted once"
    )
    if row["join_count"]:
        said += f"; it joins {duration(row['join_delay_p50_ms'])} after it hears of a rebalance"
        is_first = row is found.waited[0]
        if is_first and found.others_join_ms is not None:
            said += f", the others {duration(found.others_join_ms)}"
    if row["missed_count"]:
        said += f"; missed {counted(row['missed_count'], 'rebalance')}"
    return element("li", element("strong", name(row["process"])), f"{said}.")


def _change(page: GroupPage, found: FirstScreen, anchor: str) -> Child:
    if found.recorded is None:
        return element("p", "No advice was worked out for this group.")
    if not found.choices:
        unranked = found.recorded.get("unranked") or ()
        said, why = nothing_better(unranked), [*unranked]
        if _is_off(found.recorded):
            said, why = _OFF, [found.recorded["text"], *unranked]
        muted = [element("p", _sentence(one), class_="muted") for one in why]
        return [element("p", _sentence(said)), *muted]
    best, recorded = found.best, found.recorded
    more = element("a", "how good this is", href=f"#{anchor}-advice")
    if best is None:
        count = counted(len(found.choices), "setting")
        said = f"no choice is better in all: {count} to weigh"
        head = _sentence(_OFF if _is_off(recorded) else said).removesuffix(".")
        check = element("p", _sentence(recorded["text"]), class_="muted")
        return [element("p", f"{head}; ", more, "."), compared(found), legend(page), check]
    head = element(
        "p",
        element("strong", changed(recorded, best)),
        " would have gained most, replayed: ",
        _gains(recorded, best),
        "; ",
        _noticed(recorded, best),
        "; ",
        more,
        ".",
    )
    table = element("div", compared(found), legend(page))
    return [head, element("div", table, to_set(found), class_="advice")]


def _noticed(recorded: Row, best: Row) -> str:
    before, after = duration(recorded["notice_ms"]), duration(best["notice_ms"])
    if before == after:
        return f"a crash is noticed after {after}, as now"
    return f"a crash is noticed after {before}{NBSP}→{NBSP}{after}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."

"""Renders the first screen of a group: causes, slow members, and what to change."""

from typing import Final

from kohort.insight.advisor.text import TOO_FAR, nothing_better
from kohort.insight.advisor.weighing import GAIN_LEAST
from kohort.insight.output import counted
from kohort.insight.report.answer import Cause, FirstScreen
from kohort.insight.report.choices import changed, compared, legend, to_paste, to_set
from kohort.insight.report.contents import GroupPage, Row
from kohort.insight.report.markup import NBSP, Child, Markup, element, join, text
from kohort.insight.report.text import (
    NOTHING,
    cause,
    days,
    doubts,
    duration,
    family,
    name,
    percent,
)

_SLOW_MS: Final = 1_000
_SLOW: Final = (
    "Before it joins, a member finishes its batch, revokes its partitions and commits: smaller "
    "batches (max.poll.records) and a quicker callback for revoked partitions help, whatever the "
    "settings."
)
_APART: Final = "they are independent; the combination was not replayed."
_OFF: Final = "no recommendation, because the replay does not match the history"
_RESTART: Final = {"member_left", "member_added"}
_HALVES: Final = "; each restart counts as a member that left and one that joined"


def headline(page: GroupPage) -> str:
    """Return a sentence with the totals of the group."""
    figures = page.figures
    first_ms, last_ms = figures["first_at_ms"], figures["last_at_ms"]
    text = counted(figures["rebalance_count"], "rebalance")
    if last_ms > first_ms:
        text += f" in {duration(last_ms - first_ms)}"
    text += f", {days(first_ms, last_ms)}"
    if figures["stopped_total_ms"]:
        what = "partitions had no owner" if page.is_consumer_group else "members were stopped"
        text += (
            f"; {what} for {duration(figures['stopped_total_ms'])} in total, at "
            f"most {duration(figures['stopped_longest_ms'])} at a time"
        )
    else:
        text += "; no stopped time is recorded"
    if figures["avoided_count"]:
        text += f"; {counted(figures['avoided_count'], 'rebalance')} avoided"
    names = ("likely_count", "unclear_count")
    if doubt := doubts({name: sum(row.get(name) or 0 for row in page.causes) for name in names}):
        text += f"; concluded from __consumer_offsets, with causes that are not certain: {doubt}"
    return f"{text}."


def in_short(page: GroupPage, summary: FirstScreen, anchor: str) -> Markup:
    """Render the answers in a line each and the lines to paste, for small screens."""
    answers = [("Why", mostly(page, summary)), ("Waited for", slowest(page, summary))]
    if summary.recorded is not None:
        to_change = change(summary)
        if summary.best is not None:
            to_change = join((to_change, "; ", _detection(summary.recorded, summary.best)))
        answers.append(("To change", to_change))
    both = _both(summary, "both")
    pasted = to_paste(summary)
    others = element(
        "a", "Lines for other clients, and the other choices", href=f"#{anchor}-change"
    )
    return element(
        "div",
        [element("p", element("strong", f"{what}: "), words) for what, words in answers],
        element("p", both) if both else None,
        [element("p", element("strong", f"{pasted[0]}:")), pasted[1]] if pasted else None,
        element("p", others) if pasted else None,
        class_="short",
    )


def mostly(page: GroupPage, summary: FirstScreen) -> str:
    """Describe the main cause briefly."""
    if not summary.causes:
        return NOTHING
    if summary.storms and page.started_by[0]["started_by"] == "deploy":
        storms = page.started_by[0]
        return (
            f"{counted(storms['storm_count'], 'deploy')}: {storms['rebalance_count']:,} of "
            f"{counted(page.figures['rebalance_count'], 'rebalance')}"
        )
    most = summary.causes[0]
    sentence = (
        f"{cause(most.kind)}: {most.rebalances:,} of "
        f"{counted(page.figures['rebalance_count'], 'rebalance')}"
    )
    if most.doubt:
        sentence += f" ({most.doubt})"
    return f"{sentence}, {most.share} of the stopped time" if most.stopped_ms else sentence


def slowest(page: GroupPage, summary: FirstScreen) -> Markup | str:
    """Describe briefly the member that the others waited for longest."""
    if not summary.waited:
        return NOTHING
    row, count = summary.waited[0], page.figures["rebalance_count"]
    sentence = text(
        f"{name(row['process'])}, in {row['waited_for_count']:,} of {counted(count, 'rebalance')}"
    )
    gain = _price(summary)
    if gain is None:
        return sentence
    return join((sentence, "; if it were as quick as the others, replayed: ", gain))


def change(summary: FirstScreen) -> Markup | str:
    """Describe briefly the change that would have helped most."""
    recorded, best = summary.recorded, summary.best
    if recorded is None:
        return NOTHING
    if best is None:
        if off := _off(recorded):
            return off
        if not summary.choices:
            return nothing_better(recorded.get("unranked") or ())
        return (
            f"no setting is clearly better; {counted(len(summary.choices), 'setting')} to compare"
        )
    return join((f"{changed(recorded, best)}, replayed: ", _gains(recorded, best)))


def _gain(before_ms: int, after_ms: int) -> Markup:
    before, after = duration(before_ms), duration(after_ms)
    return join((f"{before}{NBSP}→{NBSP}", element("strong", f"{after} stopped")))


def _gains(recorded: Row, best: Row) -> Markup:
    """Describe the change in stopped time and rebalances."""
    gain = _gain(recorded["stopped_ms"], best["stopped_ms"])
    fewer = f"{recorded['rebalances']:,} → {counted(best['rebalances'], 'rebalance')}"
    return join((gain, f", {fewer}"))


def _price(summary: FirstScreen) -> Markup | None:
    """Return the gain if the slowest member were as quick as the others; None if unknown."""
    recorded, quicker = summary.recorded, summary.quicker
    if recorded is None or quicker is None or _off(recorded):
        return None
    return _gain(recorded["stopped_ms"], quicker["stopped_ms"])


def _both(summary: FirstScreen, both: str) -> Markup | None:
    """Say whether to make a member quicker and change the setting; None without either."""
    recorded, best, together = summary.recorded, summary.best, summary.both
    if recorded is None or best is None or _price(summary) is None:
        return None
    if together is None:
        return text(f"Do {both}: {_APART}")
    gain = _gain(recorded["stopped_ms"], together["stopped_ms"])
    if together["stopped_ms"] > best["stopped_ms"] * (1 - GAIN_LEAST):
        return join(
            ("A quicker member adds little to the recommended setting: together ", gain, ".")
        )
    return join((f"Do {both}: together ", gain, "."))


def _off(recorded: Row) -> str:
    """Return the reason for no recommendation: the replay contradicts the history; or ""."""
    check = str(recorded["text"])
    return _OFF if check.endswith(TOO_FAR) else ""


def first_screen(page: GroupPage, summary: FirstScreen, anchor: str) -> Markup:
    """Render the answers of the first screen; on narrow screens they are one below the other."""
    also = [element("li", sentence) for sentence in summary.also]
    return element(
        "div",
        _answer("Why", _why(page, summary)),
        _answer("Members that the others waited for", _waited(page, summary)),
        _answer(
            "What to change",
            _change(page, summary, anchor),
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


def _why(page: GroupPage, summary: FirstScreen) -> Child:
    most_ms = max((cause_row.stopped_ms for cause_row in summary.causes), default=0)
    items = [_cause(cause_row, most_ms) for cause_row in summary.causes]
    storms = element("p", summary.storms) if summary.storms else None
    kinds = element("p", _kinds(page, summary), class_="muted") if storms else None
    left = len([row for row in page.causes if row["rebalance_count"]]) - len(items)
    more = element("p", f"{counted(left, 'further cause')} below.", class_="muted")
    return [storms, kinds, element("ol", items, class_="causes"), more if left > 0 else None]


def _kinds(page: GroupPage, summary: FirstScreen) -> str:
    """Explain how the counts by cause relate to those of storms."""
    shown = {cause_row.kind for cause_row in summary.causes}
    halves = _HALVES if shown >= _RESTART else ""
    return f"All {page.figures['rebalance_count']:,} by cause{halves}."


def _cause(cause_row: Cause, most_ms: int) -> Markup:
    stopped = (
        f", {duration(cause_row.stopped_ms)} stopped ({cause_row.share})"
        if cause_row.stopped_ms
        else None
    )
    bar = (
        element(
            "span",
            class_=f"bar of-{family(cause_row.kind)}",
            style=f"width:{100 * cause_row.stopped_ms / most_ms:.0f}%",
            aria_hidden="true",
        )
        if cause_row.stopped_ms
        else None
    )
    who = element("small", cause_row.who) if cause_row.who else None
    return element(
        "li",
        element("strong", cause(cause_row.kind)),
        f": {counted(cause_row.rebalances, 'rebalance')}",
        f" ({cause_row.doubt})" if cause_row.doubt else None,
        stopped,
        " ",
        who,
        bar,
    )


def _waited(page: GroupPage, summary: FirstScreen) -> Child:
    if not summary.waited:
        return element("p", "The history shows no member that the others waited for.")
    items = [_waited_for(page, summary, row) for row in summary.waited]
    slowest_ms = max((row["join_delay_p50_ms"] or 0 for row in summary.waited), default=0)
    hint = element("p", _SLOW, class_="muted") if slowest_ms >= _SLOW_MS else None
    return [element("ol", items), _quicker(summary), hint]


def _quicker(summary: FirstScreen) -> Markup | None:
    """Describe the cost of the slowest member, from a replay without its slowness."""
    gain = _price(summary)
    if gain is None or summary.quicker is None:
        return None
    who = name(summary.quicker["quicker_member"])
    sentence = f"If {who} were as quick as the others, replayed: "
    both = _both(summary, "both, this and ★")
    return element("p", sentence, gain, ". ", both)


def _waited_for(page: GroupPage, summary: FirstScreen, row: Row) -> Markup:
    count, times = page.figures["rebalance_count"], row["waited_for_count"]
    sentence = (
        f": waited for in {times:,} of {counted(count, 'rebalance')} ({percent(times, count)}), "
        f"{duration(row['waited_for_total_ms'])} in all, each wait counted once"
    )
    if row["join_count"]:
        sentence += f"; it joins {duration(row['join_delay_p50_ms'])} after a rebalance begins"
        is_first = row is summary.waited[0]
        if is_first and summary.others_join_ms is not None:
            sentence += f", the others {duration(summary.others_join_ms)}"
    if row["missed_count"]:
        sentence += f"; missed {counted(row['missed_count'], 'rebalance')}"
    return element("li", element("strong", name(row["process"])), f"{sentence}.")


def _change(page: GroupPage, summary: FirstScreen, anchor: str) -> Child:
    if summary.recorded is None:
        return element("p", "No advice was computed for this group.")
    if not summary.choices:
        unranked = summary.recorded.get("unranked") or ()
        sentence, reasons = nothing_better(unranked), [*unranked]
        if off := _off(summary.recorded):
            check = summary.recorded["text"]
            sentence, reasons = off, [*([check] if check != off else []), *unranked]
        muted = [element("p", _as_sentence(reason), class_="muted") for reason in reasons]
        return [element("p", _as_sentence(sentence)), *muted]
    best, recorded = summary.best, summary.recorded
    more = element("a", "quality of this advice", href=f"#{anchor}-advice")
    if best is None:
        count = counted(len(summary.choices), "setting")
        sentence = f"no setting is clearly better; {count} to compare"
        head = _as_sentence(_off(recorded) or sentence).removesuffix(".")
        check = element("p", _as_sentence(recorded["text"]), class_="muted")
        return [element("p", f"{head}; ", more, "."), compared(summary), legend(page), check]
    head = element(
        "p",
        element("strong", changed(recorded, best)),
        " would have helped most, replayed: ",
        _gains(recorded, best),
        "; ",
        _detection(recorded, best),
        "; ",
        more,
        ".",
    )
    table = element("div", compared(summary), legend(page))
    return [head, element("div", table, to_set(summary), class_="advice")]


def _detection(recorded: Row, best: Row) -> str:
    before, after = duration(recorded["notice_ms"]), duration(best["notice_ms"])
    if before == after:
        return f"a crash is noticed after {after}, as now"
    return f"a crash is noticed after {before}{NBSP}→{NBSP}{after}"


def _as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."

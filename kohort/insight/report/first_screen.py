"""Renders the first screen of a group: causes, slow members, and what to change."""

from typing import Final

from kohort.formats.text import counted
from kohort.insight.advisor.text import TOO_FAR, nothing_better
from kohort.insight.advisor.weighing import GAIN_LEAST
from kohort.insight.report.answer import NEWEST_FIRST, Cause, FirstScreen, who
from kohort.insight.report.choices import changed, compared, legend, to_paste, to_set
from kohort.insight.report.contents import GroupPage, Row
from kohort.insight.report.late_returns import enough, reason
from kohort.insight.report.markup import NBSP, Child, Markup, element, join, text
from kohort.insight.report.text import (
    NOTHING,
    Unit,
    act,
    clock,
    days,
    doubts,
    duration,
    family,
    minute,
    name,
    percent,
    unit_of,
)

_SLOW_MS: Final = 1_000
_SLOW: Final = (
    "Before it joins, a member finishes its batch, revokes its partitions and commits: smaller "
    "batches (max.poll.records) and a quicker callback for revoked partitions help, whatever the "
    "settings."
)
_APART: Final = "they are independent; the combination was not replayed."
_OFF: Final = "no recommendation, because the replay does not match the history"


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
    """Render the content of `first_screen` for small screens: a line for each section, and the
    configuration lines to paste.
    """
    answers: list[tuple[str, Markup | str]] = []
    if summary.newest:
        answers.append(("Last hour", _newest_briefly(summary)))
    answers.append(("Why", mostly(page, summary)))
    if summary.waited:
        answers.append(("Waited for", slowest(page, summary)))
    if summary.recorded is not None or summary.late is not None:
        to_change = change(summary)
        if summary.recorded is not None and summary.best is not None:
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
    """Describe briefly the most expensive cause and the rarest one."""
    if not summary.causes:
        return NOTHING
    most, rarest = summary.causes[0], summary.rarest
    who = f"{most.who}; " if most.who else ""
    sentence = (
        f"{_times(most)}: {who}{most.rebalances:,} of "
        f"{counted(page.figures['rebalance_count'], 'rebalance')}"
    )
    if most.doubt:
        sentence += f" ({most.doubt})"
    if most.stopped_ms:
        sentence += f", {most.share} of the stopped time"
    return sentence if rarest is None else f"{sentence}. Rarest: {_rarest(rarest)}"


def _times(cause: Cause) -> str:
    return f"{act(cause.kind)}, {'once' if cause.times == 1 else f'{cause.times:,} times'}"


def _rarest(cause: Cause) -> str:
    of = "; ".join(note for note in (cause.who, _last(cause)) if note)
    return f"{_times(cause)}: {of}" if of else _times(cause)


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
    """Describe briefly the recommended change."""
    recorded, best, late = summary.recorded, summary.best, ""
    if summary.late is not None:
        late_ms = duration(summary.late["late_longest_ms"])
        late = f"{enough(summary.late)}, as static members came back up to {late_ms} too late"
    if recorded is not None and best is not None:
        setting = changed(recorded, best)
        if late:
            setting = f"{late}; or {setting[:1].lower()}{setting[1:]}"
        return join((f"{setting}, replayed: ", _gains(recorded, best)))
    if late or recorded is None:
        return late or NOTHING
    if off := _off(recorded):
        return off
    if not summary.choices:
        return nothing_better(recorded.get("unranked") or ())
    return f"no setting is clearly better; {counted(len(summary.choices), 'setting')} to compare"


def _gain(before_ms: int, after_ms: int) -> Markup:
    before, after = duration(before_ms), duration(after_ms)
    return join((f"{before}{NBSP}→{NBSP}", element("strong", f"{after} stopped")))


def _gains(recorded: Row, best: Row) -> Markup:
    """Describe the change in stopped time and rebalances."""
    gain = _gain(recorded["stopped_ms"], best["stopped_ms"])
    fewer = f"{recorded['rebalances']:,}{NBSP}→{NBSP}{counted(best['rebalances'], 'rebalance')}"
    return join((gain, f", {fewer}"))


def _price(summary: FirstScreen) -> Markup | None:
    """Describe the stopped time if the slowest member were as quick as others; None if unknown."""
    recorded, quicker = summary.recorded, summary.quicker
    if recorded is None or quicker is None or _off(recorded):
        return None
    return _gain(recorded["stopped_ms"], quicker["stopped_ms"])


def _both(summary: FirstScreen, both: str) -> Markup | None:
    """Describe the stopped time under the recommended setting if the slowest member were quicker,
    too; None if no setting is recommended, or the effect of a quicker member is unknown.
    """
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
    """Return a text if the replay is too far off the history to recommend anything; else ""."""
    check = str(recorded["text"])
    return _OFF if check.endswith(TOO_FAR) else ""


def first_screen(page: GroupPage, summary: FirstScreen, anchor: str) -> Markup:
    """Render the sections on causes, slow members and what to change; stacked on narrow screens."""
    also = [element("li", sentence) for sentence in summary.also]
    return element(
        "div",
        _answer(_hour(summary), _newest(summary), class_="newest") if summary.newest else None,
        _answer(
            f"Why, by {'stopped time' if _is_timed(summary) else 'number of rebalances'}",
            _why(page, summary),
            class_=None if summary.waited else "alone",
        ),
        _answer("Members that the others waited for", _waited(page, summary))
        if summary.waited
        else None,
        _answer(
            "What to change",
            [
                None if summary.late is None else _late(summary.late),
                _change(page, summary, anchor),
            ],
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


def _is_timed(summary: FirstScreen) -> bool:
    """Whether stopped times are known; otherwise causes are compared by number of rebalances."""
    return any(cause.stopped_ms for cause in summary.causes)


def _why(page: GroupPage, summary: FirstScreen) -> Child:
    unit = unit_of([cause.stopped_ms for cause in summary.causes])
    is_timed = _is_timed(summary)
    costs = [cause.stopped_ms if is_timed else cause.rebalances for cause in summary.causes]
    items = [
        _cause(cause, unit, cost / max(*costs, 1), is_rarest=cause is summary.rarest)
        for cause, cost in zip(summary.causes, costs, strict=True)
    ]
    left = len(page.causes) - len(items)
    notes = [] if left <= 0 else [f"{counted(left, 'further cause')} below."]
    if not summary.waited:
        notes.append("The history shows no member that the others waited for.")
    more = element("p", " ".join(notes), class_="muted") if notes else None
    return [element("ol", items, class_="causes"), more]


def _cause(cause: Cause, unit: Unit, length: float, *, is_rarest: bool) -> Markup:
    count = counted(cause.rebalances, "rebalance")
    if not cause.rebalances and cause.avoided:
        count = f"{counted(cause.avoided, 'rebalance')} avoided"
    if cause.doubt:
        count += f" ({cause.doubt})"
    amount = f"{unit.text(cause.stopped_ms)}, {cause.share}" if cause.stopped_ms else None
    bar = element(
        "span",
        class_=f"bar of-{family(cause.kind)}",
        style=f"width:{100 * length:.0f}%",
        aria_hidden="true",
    )
    notes = ("rarest" if is_rarest else "", cause.who, _last(cause))
    return element(
        "li",
        element(
            "span",
            element("span", element("strong", _times(cause)), f": {count}"),
            element("span", amount, class_="amount") if amount else None,
            class_="line",
        ),
        bar if length else None,
        element("small", "; ".join(note for note in notes if note)),
    )


def _last(cause: Cause) -> str:
    if cause.last_ms is None:
        return ""
    return minute(cause.last_ms) if cause.times == 1 else f"last {minute(cause.last_ms)}"


def _hour(summary: FirstScreen) -> str:
    return f"The last hour, until {minute(max(row['ended_at_ms'] for row in summary.newest))} UTC"


def _newest(summary: FirstScreen) -> Child:
    shown = summary.newest[:NEWEST_FIRST]
    left = len(summary.newest) - len(shown)
    more = (
        element("li", f"{counted(left, 'earlier cause')} below", class_="muted") if left else None
    )
    return element("ul", [element("li", act_line(row)) for row in shown], more)


def _newest_briefly(summary: FirstScreen) -> str:
    row, more = summary.newest[0], len(summary.newest) - 1
    names = f" ({_of(row)})" if row["process_count"] else ""
    before = f", and {counted(more, 'earlier cause')}" if more else ""
    return f"{act(row['kind'])}{names}, {minute(row['started_at_ms'])} UTC{before}"


def _of(row: Row) -> str:
    names, count = who(row["processes"], row["process_count"]), row["process_count"]
    return names if count <= 1 else f"{count:,} processes, {names}"


def act_line(row: Row) -> str:
    """Format a row of `acts`: ``Fri 9 Jan 15:30:01 Deploy: 2 processes, a, b; 6 rebalances``."""
    parts = []
    if row["away_longest_ms"]:
        most = "at most " if row["process_count"] > 1 else ""
        parts.append(f"away for {most}{duration(row['away_longest_ms'])}")
    if row["rebalance_count"]:
        parts.append(counted(row["rebalance_count"], "rebalance"))
    if row["avoided_count"]:
        parts.append(f"{counted(row['avoided_count'], 'rebalance')} avoided")
    if not row["rebalance_count"] and not row["avoided_count"]:
        parts.append("during another rebalance")
    if row["stopped_total_ms"]:
        parts.append(f"{duration(row['stopped_total_ms'])} stopped")
    if doubt := doubts(row):
        parts.append(doubt)
    named = f"{clock(row['started_at_ms'])} {act(row['kind'])}"
    if row["process_count"]:
        named += f": {_of(row)}"
    return f"{named}; {', '.join(parts)}"


def _late(late: Row) -> Markup:
    names = who(late["processes"], len(late["processes"]))
    return element("p", element("strong", enough(late)), f": {reason(late, names)}")


def _waited(page: GroupPage, summary: FirstScreen) -> Child:
    items = [_waited_for(page, summary, row) for row in summary.waited]
    slowest_ms = max((row["join_delay_p50_ms"] or 0 for row in summary.waited), default=0)
    hint = element("p", _SLOW, class_="muted") if slowest_ms >= _SLOW_MS else None
    return [element("ol", items), _quicker(summary), hint]


def _quicker(summary: FirstScreen) -> Markup | None:
    """Describe a replay in which the slowest member is as quick as the others."""
    gain = _price(summary)
    if gain is None or summary.quicker is None:
        return None
    who = name(summary.quicker["quicker_member"])
    sentence = f"If {who} were as quick as the others, replayed: "
    both = _both(summary, "both, this and ★")
    return element("p", sentence, gain, ". ", both)


def _waited_for(page: GroupPage, summary: FirstScreen, row: Row) -> Markup:
    count, times = page.figures["rebalance_count"], row["waited_for_count"]
    is_first = row is summary.waited[0]
    sentence = (
        f": waited for in {times:,} of {counted(count, 'rebalance')} ({percent(times, count)}), "
        f"{duration(row['waited_for_total_ms'])} in all"
    )
    if is_first:
        sentence += ", each wait counted once"
    if row["join_count"]:
        delay_ms = row["join_delay_p50_ms"]
        when = f"{duration(delay_ms)} after" if delay_ms else "as soon as"
        sentence += f"; it joins {when} it is notified of a rebalance"
        if is_first and delay_ms and summary.others_join_ms is not None:
            sentence += f", the others {duration(summary.others_join_ms)}"
    if row["missed_count"]:
        sentence += f"; missed {counted(row['missed_count'], 'rebalance')}"
    return element("li", element("strong", name(row["process"])), f"{sentence}.")


def _change(page: GroupPage, summary: FirstScreen, anchor: str) -> Child:
    if summary.recorded is None:
        return element("p", "No advice was computed for this group.")
    besides = "" if summary.late is None else "apart from this, "
    if not summary.choices:
        unranked = summary.recorded.get("unranked") or ()
        sentence, reasons = nothing_better(unranked), [*unranked]
        if off := _off(summary.recorded):
            check = summary.recorded["text"]
            sentence, reasons = off, [*([check] if check != off else []), *unranked]
        muted = [element("p", _as_sentence(reason), class_="muted") for reason in reasons]
        return [element("p", _as_sentence(besides + sentence)), *muted]
    best, recorded = summary.best, summary.recorded
    more = element("a", "quality of this advice", href=f"#{anchor}-advice")
    if best is None:
        count = counted(len(summary.choices), "setting")
        sentence = f"no setting is clearly better; {count} to compare"
        head = _as_sentence(besides + (_off(recorded) or sentence)).removesuffix(".")
        check = element("p", _as_sentence(recorded["text"]), class_="muted")
        return [element("p", f"{head}; ", more, "."), compared(summary), legend(page), check]
    setting = changed(recorded, best)
    if besides:
        setting = f"{setting[:1].lower()}{setting[1:]}"
    head = element(
        "p",
        "Of all settings tried, " if besides else None,
        element("strong", setting),
        " is recommended; replayed: ",
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

"""Finds acts (deploys, crashes, ...) in a group's records, and sums up each in a line such as
"rolling restart of 10 members, 9 rebalances in 30 s", for commands, HTTP pages and the console.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from kohort.formats.text import counted, duration, shown
from kohort.groups.steps import Steps
from kohort.insight.analysis.acts import act_steps
from kohort.insight.analysis.episodes import Moves
from kohort.insight.analysis.rows import GroupHistory, as_row, by_sequence, unique_events

Row: TypeAlias = dict[str, Any]

RECORDS: Final = 60
"""Acts (deploys, crashes, ...) are computed from at least this many of the newest records, so that
the newest act is complete: a deploy of twenty members has fewer records."""

_NAMES: Final = {
    "deploy": "rolling restart of {members}",
    "restart": "restart of {members}",
    "slow_restart": "slow restart or crash of {members}",
    "crash": "crash of {members}",
    "crash_or_pause": "crash or pause of {members}",
    "pause": "pause of {members}",
    "static_gone": "loss of {members} with static ids",
    "start": "start of the group with {members}",
    "scale_out": "{members} joined",
    "scale_in": "{members} left",
    "removed": "removal of {members} by an administrator",
    "too_slow": "loss of {members}, too slow for the rebalance timeout",
    "never_joined": "loss of {members} whose first join took too long",
    "topic_change": "change of the group's topics",
    "subscription_change": "change of subscriptions or assignors",
    "enforced": "rebalance enforced by {members}",
    "rejoined": "{members} joined again",
    "broker_restart": "restart of the broker, which affected {members}",
}
_ALWAYS: Final = frozenset({"deploy", "broker_restart"})
"""Kinds of acts whose one-line summary is shown even if they caused only one rebalance."""
_STOPPED_BEFORE: Final = frozenset({"broker_restart", "pause"})
"""Kinds of acts in which processing may have stopped before the history could measure it: without a
broker, or when an application stopped polling."""


def act_rows_steps(group: str, records: Iterable[Mapping[str, Any]]) -> Steps[list[Row]]:
    """Compute a group's acts (deploys, crashes, ...) from its records in any order, with a pause
    after each record.

    Each act has the columns of the table `acts`, and its summary as `text`.

    Raises:
        ValueError: a value of a record has another type than its field.
    """
    history = GroupHistory("", group)
    try:
        read = []
        for record in records:
            read.append(record)
            yield
        for event in unique_events(read):
            history.add(event)
            yield
        history.sort()
        moves = Moves()
        moves.add(by_sequence(history.members))
        rebalances = [row for row in history.rebalances if row.started_at is not None]
        avoided = [row for row in history.avoided if row.at is not None]
        rows = [as_row(act) for act in (yield from act_steps(rebalances, avoided, moves))]
        return [row | {"text": act_text(row)} for row in rows]
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"not a history: {error!r}") from error


def sums_up(act: Row) -> bool:
    """Whether to show an act's summary. If an act consists of one rebalance, the rebalance's own
    summary says the same, except for a deploy or a broker restart.
    """
    return act["rebalance_count"] + act["avoided_count"] > 1 or act["kind"] in _ALWAYS


def act_text(act: Row, names: str = "") -> str:
    """Sum up an act (deploy, crash, ...) in one line; `names`: its processes' names, or empty."""
    count = act["process_count"]
    members = counted(count, "member") if count else "members"
    who = f" ({names})" if names else ""
    name = _NAMES.get(act["kind"], shown(act["kind"].replace("_", " ")))
    text = name.format(members=members + who)
    if "{members}" not in name:
        text += who
    if act["away_longest_ms"]:
        most = "up to " if count > 1 else ""
        text += f", away for {most}{duration(act['away_longest_ms'])}"
    if act["rebalance_count"]:
        text += f", {counted(act['rebalance_count'], 'rebalance')}"
    if act["avoided_count"]:
        text += f", {counted(act['avoided_count'], 'rebalance')} avoided"
    lasted_ms = (act["ended_at_ms"] or 0) - act["started_at_ms"]
    # An act without rebalances lasts as long as its processes are away, which is stated already.
    if lasted_ms > 0 and (act["rebalance_count"] or not act["away_longest_ms"]):
        text += f" in {duration(lasted_ms)}"
    stopped_ms = max(act["stopped_longest_ms"], act["unread_longest_ms"])
    if act["emptied"]:
        text += "; no member is left"
    elif stopped_ms:
        most = "at least" if act["kind"] in _STOPPED_BEFORE else "up to"
        text += f"; processing stopped for {most} {duration(stopped_ms)}"
    return text

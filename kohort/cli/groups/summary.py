"""Summarizes what happened to a group last, over several rebalances: "rolling restart of 10
members, 9 rebalances in 30 s". The same acts as in the report.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from kohort.formats.text import counted, duration, listed, shown
from kohort.groups.history.wording import ClockText, short_id

Json: TypeAlias = dict[str, Any]

RECORDS: Final = 60
"""The number of rebalances in which acts are found: more than a deploy of twenty members takes."""

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
    "broker_restart": "restart of the broker, which {members} lost",
}
_ALWAYS: Final = frozenset({"deploy", "broker_restart"})
"""Acts that are more than their rebalance tells."""


def last_act(group: str, records: Sequence[Json]) -> Json | None:
    """Return the act of the newest complete rebalance, None if there is none."""
    # Reads findings, which other commands do not need.
    from kohort.insight.report.events import History  # noqa: PLC0415
    from kohort.insight.report.from_history import acts_of  # noqa: PLC0415

    with suppress(ValueError):  # Whoever writes to a topic, or a file, chooses the records.
        acts = acts_of(History(group, records))
        return max(acts, key=lambda act: int(act["last_sequence"]), default=None)
    return None


def act_text(act: Json) -> str:
    """Format an act: "rolling restart of 10 members, 9 rebalances in 30 s"."""
    count = act["process_count"]
    members = counted(count, "member") if count else "members"
    text = _NAMES.get(act["kind"], shown(act["kind"].replace("_", " "))).format(members=members)
    if act["away_longest_ms"]:
        most = "up to " if count > 1 else ""
        text += f", away for {most}{duration(act['away_longest_ms'])}"
    if act["rebalance_count"]:
        text += f", {counted(act['rebalance_count'], 'rebalance')}"
    if act["avoided_count"]:
        text += f", {counted(act['avoided_count'], 'rebalance')} avoided"
    if act["ended_at_ms"] is not None and act["ended_at_ms"] > act["started_at_ms"]:
        text += f" in {duration(act['ended_at_ms'] - act['started_at_ms'])}"
    if act["stopped_longest_ms"]:
        text += f"; members stopped for up to {duration(act['stopped_longest_ms'])}"
    return text


def summary_lines(group: str, act: Json | None, clock_text: ClockText) -> Iterator[str]:
    """Yield the summary, unless the act is a single rebalance, whose sentence says the same."""
    if act is None or act["started_at_ms"] is None:
        return
    if act["rebalance_count"] + act["avoided_count"] <= 1 and act["kind"] not in _ALWAYS:
        return
    names = listed([short_id(name) for name in act["processes"]], act["process_count"])
    who = f" ({names})" if names else ""
    at = clock_text(act["started_at_ms"])
    yield f"Group {shown(group)}, from {at}: {act_text(act)}{who}."
    yield ""

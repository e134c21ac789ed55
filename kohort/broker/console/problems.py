"""Problems of a group that need attention now: a rebalance that hangs, and growing lag.

The list of groups shows groups with problems first, and GET /api/checks has them among its
findings.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.broker.console.holding import Held, held_positions
from kohort.broker.console.source import GroupsSource
from kohort.broker.groups_seen import GroupSeen
from kohort.formats.text import counted, duration
from kohort.groups.description import WaitingFor
from kohort.groups.history.names import cut_id
from kohort.groups.history.waiting_text import session_end_ms, waited_for
from kohort.groups.requests import Now
from kohort.groups.views import waiting_json

Json: TypeAlias = dict[str, Any]

HANG_MS: Final = 10_000
"""A rebalance that waits longer hangs: members that poll would have joined within seconds."""

NAMED_MAX: Final = 5

NO_MEMBERS: Final = "Start a member, or delete the group if it is no longer needed."
"""The advice for an empty group with unread records."""

_NOT_POLLING: Final = ("join", "sync", "revoke")
"""Phases that end when the application polls. Heartbeats do not show whether it polls."""


class Finding(NamedTuple):
    check: str
    is_warning: bool
    """True: a warning of a cost, now or at a restart. False: a note on a state, maybe intended."""
    text: str
    advice: str
    member_ids: tuple[str, ...] = ()

    def as_json(self) -> Json:
        return self._asdict() | {"member_ids": [cut_id(member_id) for member_id in self.member_ids]}


def is_hanging(waiting: WaitingFor | None, now: Now) -> bool:
    return waiting is not None and now.wall_ms - waiting.since_ms >= HANG_MS


def is_held(group: GroupSeen, source: GroupsSource, lag: int | None) -> bool:
    """Whether a long-open transaction keeps the group's read_committed consumers from reading."""
    if not lag or source.holding is None:
        return False
    return any(True for _ in held_positions(group, source.readable, source.holding))


def problems(group: GroupSeen, source: GroupsSource, now: Now) -> Iterator[Finding]:
    """Yield the group's problems, the gravest first."""
    waiting = group.describe_waiting()
    if waiting is not None and is_hanging(waiting, now):
        # The rebalance that hangs is the only problem reported: a rising lag is its consequence.
        yield _hang(group, waiting, now)
        return
    holding = source.holding
    held = [] if holding is None else [*held_positions(group, source.readable, holding)]
    if held:
        yield _held(held)
        return
    lags = source.lags
    rise = lags.trend(group.group_id)
    if rise is not None:
        before, lag = rise
        has_members = bool(group.describe().member_count)
        without = "" if has_members else " The group has no members."
        yield Finding(
            "falls-behind",
            is_warning=True,
            text=f"The lag rises: {before:,} to {lag:,} records within {duration(lags.trend_ms)}."
            f"{without}",
            advice="The members read more slowly than producers write, or not at all. More "
            "members help as long as there are fewer members than partitions."
            if has_members
            else NO_MEMBERS,
        )


def _held(held: list[Held]) -> Finding:
    partition, committed, end, holder = held[0]
    others = f" {counted(len(held) - 1, 'other partition')} too." if len(held) > 1 else ""
    if holder.timeout_ms is None:
        ending = "No coordinator will end it: `kohort transactions abort` does."
    else:
        left = duration(max(holder.timeout_ms - holder.open_ms, 0))
        ending = f"It is aborted in {left}, unless its producer ends it first."
    return Finding(
        "held-back",
        is_warning=True,
        text=f"{partition} stands at offset {committed:,} of {end:,}, where a transaction of "
        f"{holder.name} begins, open for {duration(holder.open_ms)}.{others}",
        advice=f"A read_committed consumer cannot read past an open transaction. {ending}",
    )


def _hang(group: GroupSeen, waiting: WaitingFor, now: Now) -> Finding:
    awaited = {member.member_id for member in waiting.members}
    lasted_ms = now.wall_ms - waiting.since_ms
    view = waiting_json(waiting, now, with_members=True)
    assert view is not None
    text = f"Waiting {duration(lasted_ms)} {waited_for(view)}."
    advice = "The other members of the group do not get new partitions until then."
    sessions = [
        member.session_timeout_ms
        for member in group.describe_members()
        if member.member_id in awaited
    ]
    is_one = len(awaited) == 1
    # The wait exceeds the awaited members' session timeouts, so they must be sending heartbeats.
    if waiting.phase in _NOT_POLLING and sessions and lasted_ms > max(sessions):
        text += (
            " It still sends heartbeats: its process runs, but its application does not poll, its"
            " listener is busy, or it is finishing records of partitions that it gives up."
            if is_one
            else " They still send heartbeats: their processes run, but their applications do not"
            " poll, their listeners are busy, or they are finishing records of partitions that they"
            " give up."
        )
        advice += " Look for what the application does between two polls (max.poll.interval.ms)."
    elif (end_ms := session_end_ms(view)) is not None:
        left = duration(max(end_ms - now.wall_ms, 0))
        text += f" It is removed in {left} unless it sends a heartbeat."
    if view["until_ms"] is not None and awaited:
        left = duration(max(view["until_ms"] - now.wall_ms, 0))
        text += f" {'It is' if is_one else 'They are'} removed in {left} at the latest."
    return Finding(
        "hangs",
        is_warning=True,
        text=text,
        advice=advice,
        member_ids=tuple(member.member_id for member in waiting.members[:NAMED_MAX]),
    )

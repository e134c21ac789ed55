"""The rows of the history that findings are made of, with the columns that are needed for it.

Moments are milliseconds since 1970, None where the table has null.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kohort.insight import event_rows
from kohort.insight.event_rows import AVOIDED, WHOLE_MAX, Event, is_running

GONE: Final = frozenset(
    {
        "left",
        "removed_by_admin",
        "session_expired",
        "rebalance_timeout",
        "sync_expired",
        "new_member_expired",
    }
)
"""Fates of members that are none any more, and whose process is not there either."""


class Rebalance(NamedTuple):
    """A row of the table `rebalances`."""

    sequence: int
    started_at: int | None
    ended_at: int | None
    follows: int | None
    needless: bool | None
    trigger_kind: str | None
    trigger_member_id: str | None
    trigger_client_id: str | None
    trigger_host: str | None
    trigger_reason: str | None
    trigger_reason_source: str | None
    trigger_session_timeout_ms: int | None
    stopped_total_ms: int | None
    stopped_longest_ms: int | None
    duration_ms: int | None
    members_after: int | None
    waited_phase: str | None
    waited_ms: int | None
    waited_member_ids: list[str | None] | None


class Member(NamedTuple):
    """A row of the table `members`."""

    sequence: int
    ordinal: int
    member_id: str | None
    instance_id: str | None
    client_id: str | None
    host: str | None
    owner: str | None
    started_at: int | None
    told_ms: int | None
    join_received_ms: int | None
    sync_answered_ms: int | None
    join_delay_ms: int | None
    fate: str | None
    fate_ms: int | None
    mode: str | None
    session_timeout_ms: int | None
    rebalance_timeout_ms: int | None
    given_up: list[str | None] | None
    gained: list[str | None] | None

    @property
    def process(self) -> str | None:
        """The name that a process keeps when it starts again."""
        if self.instance_id is not None:
            return self.instance_id
        return self.client_id if self.client_id is not None else self.member_id


class Avoided(NamedTuple):
    """A row of the table `avoided`."""

    sequence: int
    at: int | None
    trigger_kind: str | None


class Running(NamedTuple):
    """A row of the table `running`."""

    sequence: int


Group: TypeAlias = tuple[str, str]
"""Cluster id and group id."""


@dataclass(slots=True)
class GroupHistory:
    """All that the tables of the history have of a group, in the order of the sequence."""

    cluster_id: str
    group: str
    rebalances: list[Rebalance] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    """Members of one rebalance are in the order of their ordinals."""
    avoided: list[Avoided] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Another event of the group, in any order; `sort` has to follow."""
        if is_running(event):
            self.running.append(Running(event["sequence"]))
        elif event["kind"] == AVOIDED:
            row = event_rows.avoided(event)
            self.avoided.append(Avoided._make(map(row.get, Avoided._fields)))
        else:
            row = event_rows.rebalance(event)
            self.rebalances.append(Rebalance._make(map(row.get, Rebalance._fields)))
            self.members += (
                Member._make(map(one.get, Member._fields)) for one in event_rows.members(event)
            )

    def sort(self) -> None:
        """Puts all in the order of the sequence."""
        self.rebalances.sort(key=lambda row: row.sequence)
        self.members.sort(key=lambda row: (row.sequence, row.ordinal))
        self.avoided.sort(key=lambda row: row.sequence)


def histories_of(cluster_id: str, events: Iterable[Event]) -> list[GroupHistory]:
    """The groups in the order of their names, of events as JSON has them, each there once."""
    groups: dict[str, GroupHistory] = {}
    for event in events:
        name = event["group"]
        groups.setdefault(name, GroupHistory(cluster_id, name)).take(event)
    found = [groups[name] for name in sorted(groups)]
    for history in found:
        history.sort()
    return found


def by_sequence(members: Sequence[Member]) -> dict[int, list[Member]]:
    """The members of each rebalance."""
    found = defaultdict(list)
    for member in members:
        found[member.sequence].append(member)
    return found


def between_ms(start: int | None, end: int | None) -> int:
    """The time between two moments; 0 where one is missing, or the wall clock was set back."""
    return 0 if start is None or end is None else max(end - start, 0)


def total(values: Sequence[int | None]) -> int | None:
    """The sum of what is there, None if it is more than a column holds."""
    whole = sum(value for value in values if value is not None)
    return whole if -WHOLE_MAX <= whole <= WHOLE_MAX else None


def longest(values: Sequence[int | None]) -> int | None:
    """The greatest of what is there; None of nothing."""
    return max((value for value in values if value is not None), default=None)

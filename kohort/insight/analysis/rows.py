"""The rows of the history tables, with only the columns from which findings are computed.

Times are milliseconds since 1970, None if the table has null.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.groups.history.names import AVOIDED, SCHEMA
from kohort.insight import event_rows
from kohort.insight.event_rows import WHOLE_MAX, Event, begun_ms, has_row, is_running

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
"""Fates of members that left or were removed; not of static members that were replaced."""


class Rebalance(NamedTuple):
    sequence: int
    started_at: int | None
    ended_at: int | None
    initial: bool | None
    outcome: str | None
    group_type: str | None
    follows: int | None
    needless: bool | None
    trigger_kind: str | None
    trigger_at: int | None
    trigger_member_id: str | None
    trigger_instance_id: str | None
    trigger_client_id: str | None
    trigger_host: str | None
    trigger_reason: str | None
    trigger_reason_text: str | None
    trigger_session_timeout_ms: int | None
    trigger_unfetched_ms: int | None
    trigger_still_connected: bool | None
    trigger_grown_topics: list[str | None] | None
    trigger_same_process: bool | None
    trigger_certainty: str | None
    further_causes: list[dict[str, Any]] | None
    stopped_total_ms: int | None
    stopped_longest_ms: int | None
    unread_longest_ms: int | None
    restart_ms: int | None
    duration_ms: int | None
    members_after: int | None
    waited_phase: str | None
    waited_ms: int | None
    waited_member_ids: list[str | None] | None


class Member(NamedTuple):
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
    revoked_ms: int | None
    completed_ms: int | None
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
        """The name of the process, stable across restarts."""
        if self.instance_id is not None:
            return self.instance_id
        return self.client_id if self.client_id is not None else self.member_id


class Avoided(NamedTuple):
    sequence: int
    at: int | None
    trigger_kind: str | None
    trigger_member_id: str | None
    trigger_instance_id: str | None
    trigger_client_id: str | None
    trigger_host: str | None
    trigger_reason: str | None
    trigger_silent_ms: int | None


class Running(NamedTuple):
    sequence: int


Group: TypeAlias = tuple[str, str]
"""Cluster id and group id."""


@dataclass(slots=True)
class GroupHistory:
    """All rows of one group in the history tables."""

    cluster_id: str
    group: str
    rebalances: list[Rebalance] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    """After `sort`, ordered by the rebalance's sequence number and by ordinal."""
    avoided: list[Avoided] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Add an event of the group, in any order; call `sort` afterwards."""
        if is_running(event):
            self.running.append(Running(event["sequence"]))
        elif event["kind"] == AVOIDED:
            row = event_rows.avoided(event)
            self.avoided.append(Avoided._make(map(row.get, Avoided._fields)))
        else:
            row = event_rows.rebalance(event)
            self.rebalances.append(Rebalance._make(map(row.get, Rebalance._fields)))
            self.members += (
                Member._make(map(row.get, Member._fields)) for row in event_rows.members(event)
            )

    def sort(self) -> None:
        self.rebalances.sort(key=lambda row: row.sequence)
        self.members.sort(key=lambda row: (row.sequence, row.ordinal))
        self.avoided.sort(key=lambda row: row.sequence)


def read_histories(cluster_id: str, events: Iterable[Event]) -> list[GroupHistory]:
    """Divide unique events by group; return the groups' histories, sorted by group name."""
    groups: dict[str, GroupHistory] = {}
    for event in events:
        name = event["group"]
        groups.setdefault(name, GroupHistory(cluster_id, name)).add(event)
    histories = [groups[name] for name in sorted(groups)]
    for history in histories:
        history.sort()
    return histories


def unique_events(records: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Return the complete events, sorted by sequence number, from records in any order; if several
    records have the same number, the one read last.
    """
    events = {int(record["sequence"]): record for record in records if is_event(record)}
    return [events[sequence] for sequence in sorted(events)]


def is_event(record: object) -> bool:
    """Whether a record is a complete event of this schema version."""
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        return False
    if not has_row(record):
        return False
    trigger = record.get("trigger")
    return (
        isinstance(record.get("group"), str)
        and isinstance(record.get("sequence"), int)
        and isinstance(begun_ms(record), int)
        and isinstance(trigger, dict)
        and isinstance(trigger.get("kind"), str)
    )


def as_row(finding: Any) -> dict[str, Any]:  # noqa: ANN401 - a row of any table of findings.
    """Return a finding as a JSON object, in which names of time columns end in `_at_ms`."""
    columns: Mapping[str, Any] = finding._asdict()
    return {
        f"{name}_ms" if name.endswith("_at") else name: value for name, value in columns.items()
    }


ID_CHARS: Final = 8
"""How many characters of the member ids distinguish processes with the same client id."""


def process_name(member: Mapping[str, Any], shared: Collection[str] = ()) -> str:
    """Return the name of a member's process: its instance id, or its client id, followed by the
    first characters of the member id if other processes share the client id.

    Args:
        member: `instance_id`, `client_id` and `member_id`.
        shared: client ids that several members have.
    """
    if member.get("instance_id") is not None:
        return str(member["instance_id"])
    member_id, client_id = str(member.get("member_id")), member.get("client_id")
    if not client_id:
        return member_id
    if client_id not in shared:
        return str(client_id)
    return f"{client_id}-{member_id.removeprefix(f'{client_id}-')[:ID_CHARS]}"


def by_sequence(members: Sequence[Member]) -> dict[int, list[Member]]:
    by_rebalance = defaultdict(list)
    for member in members:
        by_rebalance[member.sequence].append(member)
    return by_rebalance


def between_ms(start: int | None, end: int | None) -> int:
    """Return the time from `start` to `end`; 0 if either is missing or the clock was set back."""
    return 0 if start is None or end is None else max(end - start, 0)


def total(values: Sequence[int | None]) -> int | None:
    """Return the sum of the values that are not None; None if it exceeds a column's range."""
    whole = sum(value for value in values if value is not None)
    return whole if -WHOLE_MAX <= whole <= WHOLE_MAX else None


def longest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)

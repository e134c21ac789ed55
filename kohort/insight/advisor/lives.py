"""The members of a group, from when to when, told from the records of a history one by one.

Members that the records do not list (log lines, members that were cut) are known from the causes
that name them. Whatever is not there is left open; nothing is made up here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Json: TypeAlias = Mapping[str, Any]

ARRIVALS: Final = frozenset({"member_added", "static_added", "static_replaced"})
DEPARTURES: Final = frozenset(
    {
        "member_left",
        "removed_by_admin",
        "session_expired",
        "new_member_expired",
        "sync_expired",
        "size_refused",
    }
)
FATE_OF_KIND: Final = {"member_left": "left", "size_refused": "refused"}
STAYS: Final = frozenset({"kept", "new", None})
AGAIN_MS: Final = 1_000
"""A member that is told so soon after the answer to its last join has just joined."""
_SYNC: Final = ("sync_received_ms", "sync_answered_ms")
_UUID: Final = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


@dataclass(slots=True, eq=False)
class Life:
    """One member id, from its first join to its end."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    start_ms: int | None = None
    """Time of its first join; None if it was there before the history began."""
    reason: str | None = None
    """The reason that its first join stated."""
    end_ms: int | None = None
    """When the group was done with it."""
    fate: str | None = None
    session_timeout_ms: int | None = None
    """The timeout that it missed."""
    replaced_by: str | None = None
    told_ms: int | None = None
    """When it was told of a rebalance that it did not join."""
    parked: list[tuple[int, int]] = field(default_factory=list)
    """When it asked, and when it was answered: in between its silence says nothing."""
    join: list[tuple[int, int]] = field(default_factory=list)
    assign: list[tuple[int, int]] = field(default_factory=list)
    sync: list[tuple[int, int]] = field(default_factory=list)
    revoke: list[tuple[int, int]] = field(default_factory=list)
    """Delays of a cooperative member, from an assignment that took partitions to the join that says
    that they are given up. An eager one does that before its join."""
    silent_ms: int | None = None
    """How long its process had been silent when another one took its place."""
    session_ms: int | None = None
    """Session timeout that its joins asked for."""
    again: list[tuple[int, int]] = field(default_factory=list)
    """Delays until its join when it had just joined: librdkafka lets a second pass between two."""
    answered_ms: int | None = None
    """When its last join was answered."""
    revokes_since_ms: int | None = None
    """When it was told to give up partitions, until it joins again."""


@dataclass(slots=True)
class Lives:
    """All of a group, by member id, in the order in which they appear."""

    by_id: dict[str, Life] = field(default_factory=dict)
    _holders: dict[str, Life] = field(default_factory=dict)
    """The life that last had an instance id, by instance id."""

    def add(self, record: Json) -> None:
        """Take the next record, of whichever kind."""
        if record.get("kind") == "avoided":
            self._take_cause(record.get("trigger") or {}, _number(record.get("at_ms")))
            return
        started_ms = int(record["started_at_ms"])
        for cause in causes_of(record):
            at_ms = _number(cause.get("at_ms"))
            self._take_cause(cause, started_ms if at_ms is None else at_ms)
        for member in record.get("members") or ():
            self._take_member(member, record, started_ms)

    def _take_cause(self, cause: Json, at_ms: int | None) -> None:
        kind = cause.get("kind")
        if at_ms is None:
            return
        if kind in ARRIVALS and cause.get("member_id"):
            life = self._life(cause)
            self._succeed(life, at_ms, _number(cause.get("silent_ms")))
            if life.start_ms is None and life.end_ms is None:
                life.start_ms, life.reason = at_ms, cause.get("reason")
        elif kind in DEPARTURES:
            named = cause.get("member_id")
            for member_id in cause.get("removed") or ([named] if named else []):
                who = cause if member_id == named else {"member_id": member_id}
                life = self._life(who)
                self._end(life, FATE_OF_KIND.get(str(kind), str(kind)), at_ms)
                life.session_timeout_ms = _number(cause.get("session_timeout_ms"))

    def _take_member(self, member: Json, record: Json, started_ms: int) -> None:
        if not member.get("member_id"):
            return
        is_known = member["member_id"] in self.by_id
        life = self._life(member)
        joined = _number(member.get("join_received_ms"))
        if not is_known and member.get("fate") == "new" and joined is not None:
            life.start_ms, life.reason = started_ms + joined, member.get("reason")
        life.session_ms = _number(member.get("session_timeout_ms")) or life.session_ms
        self._take_delays(life, member, record, started_ms)
        self._take_revocation(life, member, started_ms)
        fate = member.get("fate")
        if fate not in STAYS:
            at_ms = started_ms + (_number(member.get("fate_ms")) or 0)
            self._end(life, str(fate), at_ms)
            life.replaced_by = member.get("replaced_by")

    def _take_delays(self, life: Life, member: Json, record: Json, started_ms: int) -> None:
        told, joined = _number(member.get("told_ms")), _number(member.get("join_received_ms"))
        for asked, told_at in (("join_received_ms", "join_answered_ms"), _SYNC):
            received, done = _number(member.get(asked)), _number(member.get(told_at))
            if received is not None and done is not None:
                life.parked.append((started_ms + received, started_ms + done))
        life.told_ms = None
        if told is not None and joined is None:
            life.told_ms = started_ms + told
        elif life.revokes_since_ms is not None:
            pass  # It takes as long as what it has to give up, and not to join.
        elif told is not None and joined is not None and joined >= told:
            is_again = life.answered_ms is not None and (
                started_ms + told - life.answered_ms <= AGAIN_MS
            )
            (life.again if is_again else life.join).append((started_ms + told, joined - told))
        answered = _number(member.get("join_answered_ms"))
        if answered is not None:
            life.answered_ms = started_ms + answered
        synced = _number(member.get("sync_received_ms"))
        if answered is None or synced is None:
            return
        if member.get("role") == "leader":
            durable = _number((record.get("timeline") or {}).get("durable_ms"))
            done = max(synced, durable or 0)
            life.assign.append((started_ms + answered, done - answered))
        else:
            life.sync.append((started_ms + answered, synced - answered))

    def _take_revocation(self, life: Life, member: Json, started_ms: int) -> None:
        joined = _number(member.get("join_received_ms"))
        if life.revokes_since_ms is not None and joined is not None:
            since_ms, life.revokes_since_ms = life.revokes_since_ms, None
            if started_ms + joined >= since_ms:
                life.revoke.append((since_ms, started_ms + joined - since_ms))
        synced = _number(member.get("sync_answered_ms"))
        gave_up = (member.get("partitions") or {}).get("given_up_count")
        if member.get("mode") == "cooperative" and gave_up and synced is not None:
            life.revokes_since_ms = started_ms + synced

    def _succeed(self, life: Life, at_ms: int, silent_ms: int | None) -> None:
        """An avoided rebalance does not tell whose place the static member took."""
        if life.instance_id is None:
            return
        before = self._holders.get(life.instance_id)
        self._holders[life.instance_id] = life
        if before is not None and before is not life:
            self._end(before, "replaced", at_ms)
            before.silent_ms = silent_ms

    def _end(self, life: Life, fate: str, at_ms: int) -> None:
        if life.end_ms is None:
            life.end_ms, life.fate = at_ms, fate

    def _life(self, who: Json) -> Life:
        member_id = str(who["member_id"])
        life = self.by_id.get(member_id)
        if life is None:
            client_id = who.get("client_id") or _UUID.sub("", member_id)
            life = Life(member_id, client_id, who.get("host") or "", who.get("instance_id"))
            self.by_id[member_id] = life
            if life.instance_id is not None:
                self._holders.setdefault(life.instance_id, life)
        return life


def causes_of(record: Json) -> Iterator[Json]:
    """The cause of a record and what else happened while it ran."""
    yield record.get("trigger") or {}
    yield from record.get("further_causes") or ()


def _number(value: Any) -> int | None:  # noqa: ANN401 - whatever the JSON has.
    return value if isinstance(value, int) and not isinstance(value, bool) else None

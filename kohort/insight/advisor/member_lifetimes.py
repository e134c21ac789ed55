"""The lifetimes of a group's members, read from history records in order.

A record from a log, or one that is too long, does not list all members: the others are found in the
causes that name them. Missing values stay None; nothing is estimated here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.insight.advisor.client_software import UNKNOWN, Software, software_of

Json: TypeAlias = Mapping[str, Any]

ARRIVALS: Final = frozenset({"member_added", "static_added", "static_replaced"})
DEPARTURES: Final = frozenset(
    {
        "member_left",
        "removed_by_admin",
        "session_expired",
        "new_member_expired",
        "sync_expired",
        "join_expired",
        "rebalance_expired",
        "size_refused",
    }
)
FATE_OF_KIND: Final = {"member_left": "left", "size_refused": "refused"}
STAYS: Final = frozenset({"kept", "new", None})
AGAIN_MS: Final = 1_000
"""A member that is notified this soon after its last join response counts as having just joined."""
_SYNC: Final = ("sync_received_ms", "sync_answered_ms")
_UUID: Final = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


@dataclass(slots=True, eq=False)
class MemberLifetime:
    """One member id, from its first join until it leaves the group."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    start_ms: int | None = None
    """Time of its first join; None if it joined before the history began."""
    reason: str | None = None
    """The reason stated by its first join."""
    end_ms: int | None = None
    """Time at which the group removed the member."""
    fate: str | None = None
    session_timeout_ms: int | None = None
    replaced_by: str | None = None
    notified_ms: int | None = None
    """Time at which the member was notified of a rebalance that it did not join."""
    parked: list[tuple[int, int]] = field(default_factory=list)
    """Request and response times of its requests that waited in the broker; the client sends
    nothing in between."""
    join: list[tuple[int, int]] = field(default_factory=list)
    assign: list[tuple[int, int]] = field(default_factory=list)
    sync: list[tuple[int, int]] = field(default_factory=list)
    revoke: list[tuple[int, int]] = field(default_factory=list)
    """Delays of a cooperative member, from an assignment that revokes partitions to the join that
    confirms the revocation. An eager member revokes before its join."""
    silent_ms: int | None = None
    """For a replaced process: time from its last heartbeat to its replacement."""
    session_ms: int | None = None
    """Session timeout requested by its joins."""
    again: list[tuple[int, int]] = field(default_factory=list)
    """Delays of joins right after another join: librdkafka waits a second between the two."""
    answered_ms: int | None = None
    """Time of the response to its last join."""
    revokes_since_ms: int | None = None
    """Time at which the member was assigned fewer partitions; None after its next join."""
    software: Software = UNKNOWN


@dataclass(slots=True)
class MemberLifetimes:
    """The lifetimes of a group's members by member id, in order of appearance."""

    by_id: dict[str, MemberLifetime] = field(default_factory=dict)
    _holders: dict[str, MemberLifetime] = field(default_factory=dict)
    """The last lifetime with each instance id."""

    def add(self, record: Json) -> None:
        """Apply the next record, in order of sequence."""
        if record.get("kind") == "avoided":
            self._add_cause(record.get("trigger") or {}, _number(record.get("at_ms")))
            return
        started_ms = int(record["started_at_ms"])
        for cause in causes_of(record):
            at_ms = _number(cause.get("at_ms"))
            self._add_cause(cause, started_ms if at_ms is None else at_ms)
        for member in record.get("members") or ():
            self._add_member(member, record, started_ms)

    def _add_cause(self, cause: Json, at_ms: int | None) -> None:
        kind = cause.get("kind")
        if at_ms is None:
            return
        if kind in ARRIVALS and cause.get("member_id"):
            self._set_aside(str(cause["member_id"]), at_ms)
            lifetime = self._lifetime(cause)
            self._succeed(lifetime, at_ms, _number(cause.get("silent_ms")))
            if lifetime.start_ms is None and lifetime.end_ms is None:
                lifetime.start_ms, lifetime.reason = at_ms, cause.get("reason")
        elif kind in DEPARTURES:
            member_id_named = cause.get("member_id")
            for member_id in cause.get("removed") or ([member_id_named] if member_id_named else []):
                identity = cause if member_id == member_id_named else {"member_id": member_id}
                lifetime = self._lifetime(identity)
                self._end(lifetime, FATE_OF_KIND.get(str(kind), str(kind)), at_ms)
                lifetime.session_timeout_ms = _number(cause.get("session_timeout_ms"))

    def _set_aside(self, member_id: str, at_ms: int) -> None:
        """Give an ended lifetime another key: a consumer (KIP-848) can rejoin with the same id."""
        lifetime = self.by_id.get(member_id)
        if lifetime is not None and lifetime.end_ms is not None and lifetime.end_ms <= at_ms:
            self.by_id[f"{member_id} until {lifetime.end_ms}"] = self.by_id.pop(member_id)

    def _add_member(self, member: Json, record: Json, started_ms: int) -> None:
        if not member.get("member_id"):
            return
        is_known = member["member_id"] in self.by_id
        lifetime = self._lifetime(member)
        joined = _number(member.get("join_received_ms"))
        if not is_known and member.get("fate") == "new" and joined is not None:
            lifetime.start_ms, lifetime.reason = started_ms + joined, member.get("reason")
        lifetime.session_ms = _number(member.get("session_timeout_ms")) or lifetime.session_ms
        if member.get("client_software_name"):
            lifetime.software = software_of(
                member["client_software_name"], member.get("client_software_version")
            )
        self._add_delays(lifetime, member, record, started_ms)
        self._add_revocation(lifetime, member, started_ms)
        fate = member.get("fate")
        if fate not in STAYS:
            at_ms = started_ms + (_number(member.get("fate_ms")) or 0)
            self._end(lifetime, str(fate), at_ms)
            lifetime.replaced_by = member.get("replaced_by")

    def _add_delays(
        self, lifetime: MemberLifetime, member: Json, record: Json, started_ms: int
    ) -> None:
        notified, joined = _number(member.get("told_ms")), _number(member.get("join_received_ms"))
        for asked, answered_at in (("join_received_ms", "join_answered_ms"), _SYNC):
            received, done = _number(member.get(asked)), _number(member.get(answered_at))
            if received is not None and done is not None:
                lifetime.parked.append((started_ms + received, started_ms + done))
        lifetime.notified_ms = None
        if notified is not None and joined is None:
            lifetime.notified_ms = started_ms + notified
        elif lifetime.revokes_since_ms is not None:
            pass  # The delay is dominated by the revocation, not by the join.
        elif notified is not None and joined is not None and joined >= notified:
            is_again = lifetime.answered_ms is not None and (
                started_ms + notified - lifetime.answered_ms <= AGAIN_MS
            )
            (lifetime.again if is_again else lifetime.join).append(
                (started_ms + notified, joined - notified)
            )
        answered = _number(member.get("join_answered_ms"))
        if answered is not None:
            lifetime.answered_ms = started_ms + answered
        synced = _number(member.get("sync_received_ms"))
        if answered is None or synced is None:
            return
        if member.get("role") == "leader":
            durable = _number((record.get("timeline") or {}).get("durable_ms"))
            done = max(synced, durable or 0)
            lifetime.assign.append((started_ms + answered, done - answered))
        else:
            lifetime.sync.append((started_ms + answered, synced - answered))

    def _add_revocation(self, lifetime: MemberLifetime, member: Json, started_ms: int) -> None:
        notified, revoked = _number(member.get("told_ms")), _number(member.get("revoked_ms"))
        if notified is not None and revoked is not None:  # Only in consumer groups.
            lifetime.revoke.append((started_ms + notified, revoked - notified))
        joined = _number(member.get("join_received_ms"))
        if lifetime.revokes_since_ms is not None and joined is not None:
            since_ms, lifetime.revokes_since_ms = lifetime.revokes_since_ms, None
            if started_ms + joined >= since_ms:
                lifetime.revoke.append((since_ms, started_ms + joined - since_ms))
        synced = _number(member.get("sync_answered_ms"))
        gave_up = (member.get("partitions") or {}).get("given_up_count")
        if member.get("mode") == "cooperative" and gave_up and synced is not None:
            lifetime.revokes_since_ms = started_ms + synced

    def _succeed(self, lifetime: MemberLifetime, at_ms: int, silent_ms: int | None) -> None:
        """Record this as the last lifetime with its instance id, and end the previous one: the
        record of an avoided rebalance does not name the replaced member.
        """
        if lifetime.instance_id is None:
            return
        before = self._holders.get(lifetime.instance_id)
        self._holders[lifetime.instance_id] = lifetime
        if before is not None and before is not lifetime:
            self._end(before, "replaced", at_ms)
            before.silent_ms = silent_ms

    def _end(self, lifetime: MemberLifetime, fate: str, at_ms: int) -> None:
        if lifetime.end_ms is None and at_ms >= (lifetime.start_ms or at_ms):
            lifetime.end_ms, lifetime.fate = at_ms, fate

    def _lifetime(self, identity: Json) -> MemberLifetime:
        member_id = str(identity["member_id"])
        lifetime = self.by_id.get(member_id)
        if lifetime is None:
            client_id = identity.get("client_id") or _UUID.sub("", member_id)
            lifetime = MemberLifetime(
                member_id, client_id, identity.get("host") or "", identity.get("instance_id")
            )
            self.by_id[member_id] = lifetime
            if lifetime.instance_id is not None:
                self._holders.setdefault(lifetime.instance_id, lifetime)
        return lifetime


def causes_of(record: Json) -> Iterator[Json]:
    """Yield the trigger of a record, and the causes that were added during its rebalance."""
    yield record.get("trigger") or {}
    yield from record.get("further_causes") or ()


UNCLEAR_MOST: Final = 0.1
"""If more than this share of departures is unclear, settings that depend on them are not ranked."""

_LEFT: Final = frozenset({"left", "removed_by_admin"})
"""A departure with no other possible reason counts as certain: which of these it was does not
matter to the advice, because the session expired in neither case."""


class Departures(NamedTuple):
    """Numbers of members that left or were removed, except those replaced by a new member id."""

    total: int
    likely: int
    unclear: int

    @property
    def are_unclear(self) -> bool:
        """Whether too many departures are unclear for advice that depends on them."""
        return self.unclear > UNCLEAR_MOST * self.total


def count_departures(rebalances: Iterable[Mapping[str, Any]]) -> Departures:
    """Count all departures, those whose reason is only likely, and those where it is unclear.
    A broker's own history has the reason of every departure.
    """
    total = likely = unclear = 0
    for record in rebalances:
        for member in record.get("members") or ():
            if member.get("fate") in STAYS or member.get("fate") == "replaced":
                continue
            total += 1
            if not set(member.get("candidates") or ["unknown"]) <= _LEFT:
                likely += member.get("certainty") == "likely"
                unclear += member.get("certainty") == "unclear"
    return Departures(total, likely, unclear)


def _number(value: Any) -> int | None:  # noqa: ANN401 - any JSON value.
    return value if isinstance(value, int) and not isinstance(value, bool) else None

"""Builds history records, as JSON, from the facts in a log."""

import re
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kohort.groups.history.names import CAUSES_LISTED, MEMBERS_LISTED, SCHEMA
from kohort.groups.reasons import classify_text
from kohort.insight.broker_log.lines import Member
from kohort.insight.broker_log.reasons import LEFT, Cause, departure

Json: TypeAlias = dict[str, Any]

_COPIED: Final = (
    *("group", "sequence", "previous_generation", "generation", "follows", "superseded_by"),
    *("started_at_ms", "outcome", "leader", "members_before", "members_after"),
)
"""Fields of a record that are copied from attributes of `Open` with the same names."""
_UNKNOWN: Final = (
    *("protocol_type", "protocol", "error", "partitions", "stopped"),
    *("pending_transactions", "fenced_commits"),
)
_UNKNOWN_OF_CAUSE: Final = (
    *("was_leader", "row", "old_protocols", "new_protocols"),
    *("rebalance_timeout_ms", "error", "detail"),
)
_UNKNOWN_OF_MEMBER: Final = (
    *("role", "told_ms", "join_received_ms", "join_answered_ms", "sync_received_ms"),
    *("sync_answered_ms", "fate_ms", "replaced_by", "mode", "stopped_ms", "stopped_open"),
    "partitions",
)
"""Fields of a member that a log does not show."""

_UUID: Final = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_FATES: Final = {"member_left": "left"}


@dataclass(frozen=True, slots=True)
class Departure:
    member: Member
    kind: str
    """Why the member left: the kind of a rebalance cause, or else a `MemberFate` value."""
    at_ms: int
    text: str | None = None
    replaced_by: str | None = None


@dataclass(slots=True)
class Open:
    """A rebalance whose last line has not been read yet."""

    group: str
    sequence: int
    previous_generation: int
    previous_state: str
    follows: int | None
    started_at_ms: int
    cause: Cause
    members_before: int | None
    leader_before: str | None
    known_before: dict[str, Member]
    """Members of the previous generation, as far as log lines have named them."""
    superseded_by: int | None = None
    generation: int | None = None
    outcome: str = "running"
    leader: str | None = None
    members_after: int | None = None
    members: dict[str, Member] = field(default_factory=dict)
    gone: dict[str, Departure] = field(default_factory=dict)
    causes: list[Json] = field(default_factory=list)
    causes_dropped: int = 0
    join_phase_at_ms: int | None = None
    synced_at_ms: int | None = None
    finished_at_ms: int | None = None
    timed_out: bool = False

    def since_start(self, at_ms: int | None) -> int | None:
        """Return the time since the rebalance began; at least 0, as wall clocks may be set back."""
        return None if at_ms is None else max(at_ms - self.started_at_ms, 0)

    def supersede(self, sequence: int, generation: int, at_ms: int) -> bool:
        """End this rebalance because another begins; return False if lines between the two are
        missing.
        """
        is_continued = generation in {self.previous_generation, self.generation}
        if is_continued:
            self.outcome, self.superseded_by, self.finished_at_ms = "superseded", sequence, at_ms
        else:
            # The group's generation changed without a log line, or the broker was down.
            self.outcome = "unfinished"
        return is_continued

    def is_cause(self, member_id: str) -> bool:
        """Whether the rebalance began because this member left."""
        return member_id in self.cause.removed

    def name(self, member: Member, text: str | None) -> bool:
        """Add details about a member that left; return False if it did not leave during this
        rebalance.
        """
        earlier = self.gone.get(member.member_id)
        if earlier is None:
            return False
        self.gone[member.member_id] = Departure(
            member, earlier.kind, earlier.at_ms, text or earlier.text, earlier.replaced_by
        )
        return True

    def add_cause(self, kind: str, member: Member, at_ms: int, text: str | None = None) -> None:
        if len(self.causes) < CAUSES_LISTED:
            stated = _stated(text)
            removed = [member.member_id] if kind in _REMOVING else []
            after_ms = self.since_start(at_ms)
            self.causes.append(
                _cause(kind, at_ms, member, stated, removed) | {"after_ms": after_ms}
            )
        else:
            self.causes_dropped += 1


def record(opened: Open) -> Json:
    listed = _members(opened)
    complete = opened.members_after is None or len(opened.members) == opened.members_after
    missing = 0 if complete else max((opened.members_after or 0) - len(opened.members), 0)
    has_leader = opened.leader is not None
    return {
        "schema": SCHEMA,
        "kind": "rebalance",
        **{name: getattr(opened, name) for name in _COPIED},
        **dict.fromkeys(_UNKNOWN),
        "previous_state": opened.previous_state or None,
        "initial": opened.previous_state == "Empty",
        "group_type": "classic",
        "trigger": _trigger(opened),
        "further_causes": opened.causes,
        "further_causes_dropped": opened.causes_dropped,
        "timeline": _timeline(opened),
        "waited_for": _waited_for(opened),
        "leader_changed": opened.leader != opened.leader_before if has_leader else None,
        "leader_change": _leader_change(opened),
        "members_dropped": missing + max(len(listed) - MEMBERS_LISTED, 0),
        "members": listed[:MEMBERS_LISTED],
    }


def avoided(group: str, sequence: int, generation: int, member: Member, at_ms: int) -> Json:
    """Return the record of a rebalance that was avoided because a static member returned."""
    return {
        "schema": SCHEMA,
        "kind": "avoided",
        "group": group,
        "sequence": sequence,
        "generation": generation,
        "at_ms": at_ms,
        "trigger": _cause("static_replaced", at_ms, member, _stated(None), []),
    }


_REMOVING: Final = {"member_left", "removed_by_admin", "session_expired", "sync_expired"}


def _trigger(opened: Open) -> Json:
    cause = opened.cause
    member = None
    if cause.member_id is not None:
        gone = opened.gone.get(cause.member_id)
        known = opened.members.get(cause.member_id) or opened.known_before.get(cause.member_id)
        member = (gone.member if gone else known) or Member(cause.member_id, cause.instance_id)
    text = cause.text
    if text is None and cause.member_id in opened.gone:
        text = opened.gone[cause.member_id].text
    kind = departure(text) if cause.kind == LEFT else cause.kind
    cause_json = _cause(kind, opened.started_at_ms, member, _stated(text), list(cause.removed))
    cause_json["was_leader"] = _was_leader(opened)
    cause_json["error"], cause_json["detail"] = cause.error, cause.detail
    if cause.kind != "session_expired":
        cause_json["session_timeout_ms"] = None
    return cause_json


def _was_leader(opened: Open) -> bool | None:
    if opened.cause.kind == "leader_rejoined":
        return True
    if opened.leader_before is None:
        return False if opened.previous_state == "Empty" else None
    return opened.leader_before == opened.cause.member_id


def _cause(kind: str, at_ms: int, member: Member | None, stated: Json, removed: list[str]) -> Json:
    return {
        "kind": kind,
        "at_ms": at_ms,
        **_identity(member),
        **stated,
        **dict.fromkeys(_UNKNOWN_OF_CAUSE),
        "removed": removed[:CAUSES_LISTED],
        "removed_count": len(removed),
        "session_timeout_ms": None if member is None else member.session_timeout_ms,
    }


def _identity(member: Member | None) -> Json:
    if member is None:
        return dict.fromkeys(("member_id", "instance_id", "client_id", "host"))
    client_id = member.client_id
    if client_id is None and member.instance_id is None:
        # Kafka generates dynamic member ids from the client id, and static ones from the instance
        # id.
        client_id = _UUID.sub("", member.member_id) if _UUID.search(member.member_id) else None
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": client_id,
        "host": member.host,
    }


def _stated(text: str | None) -> Json:
    reason = classify_text(text)
    return {
        "reason": reason.name if reason else None,
        "reason_source": "text" if reason else None,
        "reason_number": None,
        "reason_text": text,
    }


def _timeline(opened: Open) -> Json:
    end = None
    if opened.join_phase_at_ms is not None and opened.outcome != "empty":
        if opened.timed_out:
            end = "timeout"
        elif opened.previous_state == "Empty":
            end = "initial_delay"
    return {
        "extensions_ms": None,
        "stalled_ms": None,
        "join_phase_ms": opened.since_start(opened.join_phase_at_ms),
        "join_phase_end": end,
        "leader_synced_ms": opened.since_start(opened.synced_at_ms),
        "durable_ms": None,
        "finished_ms": opened.since_start(opened.finished_at_ms),
    }


def _waited_for(opened: Open) -> Json | None:
    late = [key for key, gone in opened.gone.items() if gone.kind == "rebalance_timeout"]
    if not late:
        return None
    return {"phase": "join", "member_ids": late[:CAUSES_LISTED], "pending_ids": None, "ms": None}


def _leader_change(opened: Open) -> str | None:
    if opened.leader is None or opened.leader == opened.leader_before:
        return None
    if opened.leader_before is None:
        return "first" if opened.previous_state == "Empty" else None
    gone = opened.gone.get(opened.leader_before)
    if gone is None:
        return None
    return "replaced" if gone.replaced_by == opened.leader else "left"


def _members(opened: Open) -> list[Json]:
    new = {
        member_id: member
        for member_id, member in opened.members.items()
        if member_id not in opened.gone
    }
    replacements = {gone.replaced_by for gone in opened.gone.values()}
    rows = []
    for member_id, member in new.items():
        is_new = member_id not in opened.known_before and member_id not in replacements
        row = _member(member, "new" if is_new else "kept")
        if opened.leader is not None:
            row["role"] = "leader" if opened.leader == member_id else "follower"
        rows.append(row)
    for gone in opened.gone.values():
        row = _member(gone.member, _FATES.get(gone.kind, gone.kind))
        row["fate_ms"] = opened.since_start(gone.at_ms)
        row["replaced_by"] = gone.replaced_by
        rows.append(row | _stated(gone.text))
    return rows


def _member(member: Member, fate: str) -> Json:
    known = {**_identity(member), "type": "classic", "fate": fate, **_stated(None)}
    return dict.fromkeys(_UNKNOWN_OF_MEMBER) | known

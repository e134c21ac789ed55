"""A group as far as it can be seen from the broker's door, and what has to follow a request."""

from dataclasses import replace

from kohort.groups.events import TriggerKind
from kohort.groups.requests import Now
from kohort.protocol.join_reason import JoinReason
from tests.simulation.causes import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    Cause,
    Entry,
    protocols_of,
    row_of_replacement,
    set_cause_of_rejoin,
    stated_reason,
)
from tests.simulation.process import Call, Process
from tests.simulation.tally import Tally
from tests.support import messages as m

Stored = tuple[int, str | None, list[Entry]]
"""Generation, leader and members."""


class KnownGroup:
    def __init__(self, group_id: str, tally: Tally) -> None:
        self.group_id = group_id
        self.tally = tally
        self.phase = EMPTY
        self.generation = 0
        self.members: dict[str, Entry] = {}
        self.leader_id: str | None = None
        self.unused_ids: dict[str, int] = {}
        """Ids that were handed out, and until when they may be used."""
        self.is_refused = False
        """There is no room for who asks to join."""
        self.stored: Stored = (0, None, [])
        """The group's state as a restart would find it."""
        self.stored_before: Stored = self.stored
        self.stored_ms = 0
        """When it was last stored, and what was there before."""

    def cause_of_join(self, call: Call, request: m.JoinGroupRequest) -> Cause | None:
        """If the request is accepted; None if it has nothing to cause."""
        process = call.process
        assert isinstance(process, Process)
        instance = request.group_instance_id
        holder = self.holder_of(instance)
        entry = self.members.get(request.member_id)
        leads = (entry or holder) is not None and (entry or holder) is self.leader()
        cause = Cause(TriggerKind.MEMBER_ADDED, process, was_leader=leads)
        cause.reason, cause.is_tagged = stated_reason(call.expected.version, request)
        decisive = cause.reason if cause.is_tagged else JoinReason.UNKNOWN
        if not self._has_room(entry or holder):
            return self._cause_of_refusal(cause, entry or holder)
        if request.member_id and entry is not None:
            cause.member_id = entry.member_id
            differs = entry.protocols != protocols_of(request)
            return cause if set_cause_of_rejoin(cause, self.phase, decisive, differs) else None
        if not request.member_id and holder is not None:
            cause.kind = TriggerKind.STATIC_REPLACED
            if self.phase == COMPLETING:
                cause.row = 6
            elif self.phase == STABLE:
                cause.row = row_of_replacement(decisive, leads=leads)
            return cause
        if not request.member_id and instance is None and call.expected.version >= 4:
            return None
        if instance is not None:
            cause.kind = TriggerKind.STATIC_ADDED
        return cause

    def _has_room(self, member: Entry | None) -> bool:
        """For who is or was this member, or for one more."""
        size_max = self.tally.size_max
        if self.phase == EMPTY:
            return True
        if self.phase == PREPARING:
            parked = sum(entry.is_parked for entry in self.members.values())
            return parked < size_max or (member is not None and member.is_parked)
        return member is not None or len(self.members) < size_max

    def _cause_of_refusal(self, cause: Cause, member: Entry | None) -> Cause | None:
        """A member that comes when all places are taken is a member no longer."""
        self.is_refused = True
        if member is None:
            return None
        cause.kind, cause.process = TriggerKind.SIZE_REFUSED, member.process
        cause.member_id = member.member_id
        return cause

    def causes_of_leave(self, call: Call, request: m.LeaveGroupRequest) -> list[Cause]:
        causes = []
        entries = [(one.member_id, one.group_instance_id) for one in request.members]
        for member_id, instance in entries or [(request.member_id, None)]:
            holder = self.holder_of(instance)
            entry = self.members.get(member_id) if member_id else holder
            is_fenced = member_id and instance is not None and entry is not holder
            if entry is None or is_fenced:
                continue
            by_admin = not member_id
            kind = TriggerKind.REMOVED_BY_ADMIN if by_admin else TriggerKind.MEMBER_LEFT
            leads = entry is self.leader()
            causes.append(Cause(kind, entry.process, entry.member_id, was_leader=leads))
        return causes

    def update(self, entry: Entry, request: m.JoinGroupRequest) -> None:
        entry.protocols = protocols_of(request)
        entry.session_ms = request.session_timeout_ms
        entry.rebalance_ms = request.rebalance_timeout_ms

    def change(self, old_id: str, entry: Entry) -> None:
        """Put the entry in the place of what has that id."""
        self.members = {
            entry.member_id if key == old_id else key: entry if key == old_id else value
            for key, value in self.members.items()
        }
        if self.leader_id == old_id:
            self.leader_id = entry.member_id

    def store(self, now_ms: int) -> None:
        self.stored_before, self.stored_ms = self.stored, now_ms
        members = [replace(entry) for entry in self.members.values()]
        self.stored = (self.generation, self.leader_id, members)

    def fail(self, text: str) -> None:
        self.tally.fail(f"{self.group_id} ({self.phase}, {self.generation}): {text}")

    def holder_of(self, instance: str | None) -> Entry | None:
        if instance is None:
            return None
        entries = self.members.values()
        return next((e for e in entries if e.process.traits.instance == instance), None)

    def leader(self) -> Entry | None:
        return None if self.leader_id is None else self.members.get(self.leader_id)

    def renew(self, entry: Entry, now_ms: int) -> None:
        entry.deadline_ms = now_ms + entry.session_ms

    def renew_syncing(self, now: Now) -> None:
        for entry in self.members.values():
            if entry.is_syncing:
                entry.is_syncing = False
                self.renew(entry, now.ms)

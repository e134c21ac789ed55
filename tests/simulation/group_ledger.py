"""What the ledger knows of one group."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broker.core.group.events import (
    CauseAdded,
    Event,
    Fate,
    GroupRestored,
    JoinPhaseEnded,
    JoinPhaseStalled,
    JoinReceived,
    MemberRemoved,
    MemberReplaced,
    Outcome,
    RebalanceAvoided,
    RebalanceEnded,
    RebalanceStarted,
    SyncReceived,
    Trigger,
    TriggerKind,
    UnusedIdDropped,
)
from broker.core.group.requests import Now
from broker.core.history.model import (
    AvoidedRecord,
    HistoryRecord,
    RebalanceOutcome,
    RebalanceRecord,
)
from protocol.errors import ErrorCode
from protocol.join_reason import JoinReason
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest
from tests.simulation.causes import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    Cause,
    Entry,
    Rebalance,
    protocols_of,
    renews_session,
    row_of_replacement,
    set_cause_of_rejoin,
    stated_reason,
)
from tests.simulation.process import Call, Process

if TYPE_CHECKING:
    from tests.simulation.ledger import Ledger

NEW_MEMBER_MS = 300_000


class GroupLedger:
    """One group."""

    def __init__(self, group_id: str, ledger: Ledger) -> None:
        self.group_id = group_id
        self.ledger = ledger
        self.phase = EMPTY
        self.generation = 0
        self.members: dict[str, Entry] = {}
        self.leader_id: str | None = None
        self.unused_ids: dict[str, int] = {}
        """Ids that were handed out, and until when they may be used."""
        self.stored: tuple[int, str | None, list[Entry]] = (0, None, [])
        """Generation, leader and members as a restart would find them."""
        self.expected: deque[Rebalance] = deque()
        """Rebalances that the history has not told of."""
        self.avoided: deque[Cause] = deque()
        self.lost: list[Rebalance] = []
        """Those that a broker left unfinished when it went."""
        self.running: Rebalance | None = None
        self._join_deadline_ms: int | None = None
        """When the join phase has to be over; None during an initial delay."""
        self._sync_deadline_ms = 0
        self._call: Call | None = None
        self._answer: Any = None
        self._cause: Cause | None = None
        """What the request that is being dealt with has to cause."""
        self._leaving: list[Cause] = []
        self._has_caused = self._has_begun = False
        self._removed: deque[tuple[Entry, Fate]] = deque()

    # At the door.

    def delivered(self, call: Call, now_ms: int, wall_ms: int) -> None:
        self._call, self._answer = call, None
        self._cause, self._leaving, self._has_caused = None, [], False
        self._has_begun = False
        for entry in self.members.values():
            is_waiting = entry.is_parked or entry.is_syncing
            if entry.deadline_ms < now_ms and (entry.is_new or not is_waiting):
                self.fail(f"the session of {entry.process} should have ended")
        self._look_at_phases(now_ms)
        match call.request:
            case JoinGroupRequest() as request:
                self._cause = self._cause_of_join(call, request)
            case LeaveGroupRequest() as request:
                self._leaving = self._causes_of_leave(call, request)
                self._cause = self._leaving[0] if self._leaving else None
            case _:
                pass
        for cause in (self._cause, *self._leaving):
            if cause is not None:
                cause.at_ms = wall_ms

    def answered(self, call: Call, answer: Any, now_ms: int) -> None:  # noqa: ANN401 - any answer.
        if call is self._call:
            self._answer = answer
        request = call.request
        if isinstance(request, JoinGroupRequest):
            self._join_answered(call, answer, now_ms)
        if renews_session(request, answer):
            entry = self.members.get(request.member_id)
            if entry is not None:
                self._renew(entry, now_ms)
            elif request.member_id:
                self.fail(f"{request.member_id} is no member, and was told that it is")

    def _join_answered(self, call: Call, answer: JoinGroupResponse, now_ms: int) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.unused_ids[answer.member_id] = now_ms + call.request.session_timeout_ms
        elif answer.error_code == ErrorCode.NONE:
            entry = self.members.get(answer.member_id)
            if entry is None or entry.process is not call.process:
                self.fail(f"{call.process} was told to be {answer.member_id}")
            if answer.generation_id != self.generation:
                self.fail(f"generation {answer.generation_id} was told, it is {self.generation}")

    def handled(self, now_ms: int) -> None:
        """The broker has done what it does at once."""
        call, self._call = self._call, None
        answer, cause = self._answer, self._cause
        assert call is not None
        if isinstance(call.request, JoinGroupRequest) and cause is not None:
            accepted = answer is None or answer.error_code == ErrorCode.NONE
            if accepted and not self._has_caused:
                self.fail(f"{call.process} caused nothing, not {cause.kind}, row {cause.row}")
            if accepted and cause.row == 13:
                self._renew(self.members[call.request.member_id], now_ms)
        elif self._leaving and not self._has_caused:
            self.fail(f"{call.process} left and caused nothing")
        if self._has_begun:
            self._time_join_phase(now_ms)

    # What has to follow.

    def _cause_of_join(self, call: Call, request: JoinGroupRequest) -> Cause | None:
        """If the request is accepted; None if it has nothing to cause."""
        process = call.process
        assert isinstance(process, Process)
        instance = request.group_instance_id
        holder = self._holder_of(instance)
        entry = self.members.get(request.member_id)
        leads = (entry or holder) is not None and (entry or holder) is self._leader()
        cause = Cause(TriggerKind.MEMBER_ADDED, process, was_leader=leads)
        cause.reason, cause.is_tagged = stated_reason(call.version, request)
        decisive = cause.reason if cause.is_tagged else JoinReason.UNKNOWN
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
        if not request.member_id and instance is None and call.version >= 4:
            return None
        if instance is not None:
            cause.kind = TriggerKind.STATIC_ADDED
        return cause

    def _causes_of_leave(self, call: Call, request: LeaveGroupRequest) -> list[Cause]:
        causes = []
        entries = [(one.member_id, one.group_instance_id) for one in request.members]
        for member_id, instance in entries or [(request.member_id, None)]:
            holder = self._holder_of(instance)
            entry = self.members.get(member_id) if member_id else holder
            is_fenced = member_id and instance is not None and entry is not holder
            if entry is None or is_fenced:
                continue
            by_admin = not member_id
            kind = TriggerKind.REMOVED_BY_ADMIN if by_admin else TriggerKind.MEMBER_LEFT
            leads = entry is self._leader()
            causes.append(Cause(kind, entry.process, entry.member_id, was_leader=leads))
        return causes

    # What the broker says that it did.

    def observe(self, event: Event, now: Now) -> None:  # noqa: C901, PLR0912 - one case per event.
        match event:
            case RebalanceStarted(trigger, _, generation):
                self._begin(trigger, generation, now)
            case CauseAdded(trigger):
                assert self.running is not None
                cause = self._take_cause(trigger, now)
                if cause is not None:
                    self.running.further.append(cause)
            case RebalanceAvoided(trigger):
                cause = self._take_cause(trigger, now)
                if cause is not None:
                    if cause.row not in {12, 13, 15, 16}:
                        self.fail(f"row {cause.row} was avoided")
                    self.avoided.append(cause)
            case UnusedIdDropped(member_id):
                self.unused_ids.pop(member_id, None)
            case JoinReceived(member):
                self.unused_ids.pop(member.member_id, None)
                self._park(member.member_id, now)
            case MemberReplaced(old_member_id, member):
                self._replace(old_member_id, member.member_id, now)
            case MemberRemoved(member, fate):
                self._remove(member.member_id, fate, now)
            case SyncReceived(member_id):
                entry = self.members[member_id]
                entry.has_synced = True
                entry.is_syncing = self.phase == COMPLETING
            case JoinPhaseEnded():
                self._end_join_phase(event, now)
            case JoinPhaseStalled():
                self._time_join_phase(now.ms)
            case RebalanceEnded(outcome):
                self._end(outcome, now)
            case GroupRestored():
                self._restore(event, now)
            case _:
                pass

    def _begin(self, trigger: Trigger, generation: int, now: Now) -> None:
        if generation != self.generation:
            self.fail(f"generation {generation} ended, {self.generation} was known")
        if self.phase == COMPLETING:
            self._renew_syncing(now)
        cause = self._take_cause(trigger, now) or Cause(trigger.kind)
        if cause.row in {12, 13, 15, 16}:
            self.fail(f"row {cause.row} made it rebalance")
        self.running = Rebalance(cause, generation)
        self.expected.append(self.running)
        self.ledger.begun(cause)
        is_initial, self.phase = self.phase == EMPTY, PREPARING
        self._join_deadline_ms = None
        if self._call is None:
            self._time_join_phase(now.ms)
        else:
            # Whoever has caused it may have to be added first.
            self._has_begun = not is_initial

    def _take_cause(self, trigger: Trigger, now: Now) -> Cause | None:
        """What there is a cause for just now, held against what the coordinator says."""
        cause: Cause | None = None
        if self._leaving:
            cause = self._leaving.pop(0)
        elif self._cause is not None and self._call is not None:
            cause = self._cause
        elif self._removed:
            cause = self._cause_of_removal(now)
        if cause is None:
            self.fail(f"nothing has caused {trigger}")
            return None
        self._has_caused = True
        if cause.member_id is None and trigger.member is not None:
            # The broker has just made it up; the process will be told, and then it is compared.
            cause.member_id = trigger.member.member_id
        wrong = cause.differs_from_event(trigger)
        if wrong is None and trigger.row is not None and trigger.row != cause.row:
            wrong = f"row is {cause.row}, told {trigger.row}"
        if wrong is None and self.phase != PREPARING and cause.was_leader != trigger.was_leader:
            wrong = f"leader is {self.leader_id}"
        if wrong is not None:
            self.fail(f"the coordinator names the wrong cause: {wrong}")
        return cause

    def _cause_of_removal(self, now: Now) -> Cause:
        entry, fate = self._removed.popleft()
        leads = entry.member_id == self.leader_id
        if fate is Fate.SYNC_EXPIRED:
            # All of them are one cause.
            leads = leads or any(other.member_id == self.leader_id for other, _ in self._removed)
            self._removed.clear()
        kind = TriggerKind[fate.name]
        return Cause(kind, entry.process, entry.member_id, leads, at_ms=now.wall_ms)

    def _park(self, member_id: str, now: Now) -> None:
        call = self._call
        assert call is not None
        request = call.request
        process = call.process
        assert isinstance(process, Process)
        entry = self.members.get(member_id)
        if entry is None:
            deadline_ms = now.ms + NEW_MEMBER_MS
            entry = Entry(process, member_id, (), 0, 0, deadline_ms)
            self.members[member_id] = entry
        self._tell(entry, request)
        entry.is_parked = True

    def _tell(self, entry: Entry, request: JoinGroupRequest) -> None:
        entry.protocols = protocols_of(request)
        entry.session_ms = request.session_timeout_ms
        entry.rebalance_ms = request.rebalance_timeout_ms

    def _replace(self, old_id: str, new_id: str, now: Now) -> None:
        call = self._call
        assert call is not None
        process = call.process
        assert isinstance(process, Process)
        old = self.members[old_id]
        if old.process.traits.instance != process.traits.instance:
            self.fail(f"{process} replaced {old.process}")
        entry = Entry(process, new_id, (), 0, 0, 0, is_new=False, has_synced=old.has_synced)
        self._tell(entry, call.request)
        self._renew(entry, now.ms)
        self.members = {
            entry.member_id if key == old_id else key: entry if key == old_id else value
            for key, value in self.members.items()
        }
        if self.leader_id == old_id:
            self.leader_id = new_id
        if self.phase == STABLE:
            self._store()

    def _remove(self, member_id: str, fate: Fate, now: Now) -> None:
        entry = self.members.pop(member_id)
        waits = entry.is_parked or entry.is_syncing
        match fate:
            case Fate.SESSION_EXPIRED:
                is_right = not entry.is_new and not waits and entry.deadline_ms == now.ms
                self._removed.append((entry, fate))
            case Fate.NEW_MEMBER_EXPIRED:
                is_right = entry.is_new and entry.deadline_ms == now.ms
                self._removed.append((entry, fate))
            case Fate.SYNC_EXPIRED:
                is_right = not entry.has_synced and now.ms == self._sync_deadline_ms
                self._removed.append((entry, fate))
            case Fate.REBALANCE_TIMEOUT:
                is_right = not entry.is_parked and entry.process.traits.instance is None
            case _:
                is_right = any(cause.member_id == member_id for cause in self._leaving)
        if not is_right:
            self.fail(f"{entry} is gone: {fate.name}")

    def _end_join_phase(self, event: JoinPhaseEnded, now: Now) -> None:
        assert self.running is not None
        self.generation += 1
        self.running.generation = self.generation
        if event.generation != self.generation:
            self.fail(f"generation {event.generation} follows {self.generation - 1}")
        self._check_members(event)
        self.leader_id = event.leader
        self.phase = COMPLETING
        longest_ms = max((entry.rebalance_ms for entry in self.members.values()), default=0)
        self._sync_deadline_ms = now.ms + longest_ms
        for entry in self.members.values():
            entry.is_parked = entry.is_new = entry.is_syncing = entry.has_synced = False
            self._renew(entry, now.ms)

    def _check_members(self, event: JoinPhaseEnded) -> None:
        """Who has joined is in, static members that have not may stay; who led goes on to."""
        members = self.members.values()
        for entry in members:
            if not entry.is_parked and entry.process.traits.instance is None:
                self.fail(f"{entry.process} has not joined, and is a member")
        if {member.member_id for member in event.members} != set(self.members):
            self.fail(f"{event.members} are members, not {list(self.members)}")
        joined = [entry.member_id for entry in members if entry.is_parked]
        may_lead = [self.leader_id] if self.leader_id in joined else joined
        if event.leader not in may_lead:
            self.fail(f"{event.leader} leads, not {self.leader_id}; {joined} have joined")

    def _end(self, outcome: Outcome, now: Now) -> None:
        assert self.running is not None
        if outcome is Outcome.EMPTY:
            self.generation += 1
            self.running.generation = self.generation
            self.phase = EMPTY
            if self.members:
                self.fail(f"it is empty with {self.members}")
        elif outcome is Outcome.STABLE:
            self.phase = STABLE
        self._renew_syncing(now)
        self.running = None
        self._store()

    def _store(self) -> None:
        members = [replace(entry) for entry in self.members.values()]
        self.stored = (self.generation, self.leader_id, members)

    def broker_died(self, *, killed: bool) -> None:
        if self.expected and not killed:
            self.fail(f"the broker has stopped and told nothing of {len(self.expected)}")
        self.ledger.killed += len(self.expected)
        self.lost.extend(self.expected)
        self.expected.clear()
        self.avoided.clear()
        self.running = self._call = self._cause = None
        self._leaving = []
        self._removed.clear()
        self.unused_ids.clear()
        self.generation, self.leader_id, entries = self.stored
        self.members = {entry.member_id: replace(entry) for entry in entries}
        self.phase = STABLE if entries else EMPTY

    def _restore(self, event: GroupRestored, now: Now) -> None:
        if set(event.assignments) != set(self.members) or event.generation != self.generation:
            self.fail(f"{event} was restored, not {self.generation} {list(self.members)}")
        for entry in self.members.values():
            entry.is_parked = entry.is_syncing = entry.is_new = False
            entry.has_synced = True
            # Of several protocols only the one in use is in the log.
            entry.protocols = entry.protocols[:1]
            self._renew(entry, now.ms)

    # What the history says.

    def told(self, record: HistoryRecord) -> None:
        if isinstance(record, AvoidedRecord):
            if not self.avoided:
                self.miss(f"an avoided rebalance that was none: {record}")
                return
            wrong = self.avoided.popleft().differs_from_record(record.trigger)
        elif record.outcome is RebalanceOutcome.UNFINISHED:
            wrong = self._find_unfinished(record)
        elif not self.expected:
            self.miss(f"a rebalance that was none: {record}")
            return
        else:
            self.ledger.recorded += 1
            wrong = self.expected.popleft().differs_from_record(record)
        if wrong is not None:
            self.miss(wrong)

    def _find_unfinished(self, record: RebalanceRecord) -> str | None:
        """It may be told when the broker stops, or when the next one starts, or, after a kill, not
        at all.
        """
        for rebalances in (self.expected, self.lost):
            for known in rebalances:
                if known.cause.differs_from_record(record.trigger) is None:
                    rebalances.remove(known)
                    self.ledger.unfinished += 1
                    return None
        return f"no such rebalance was under way: {record.trigger}"

    # Within.

    def _time_join_phase(self, now_ms: int) -> None:
        times = [entry.rebalance_ms for entry in self.members.values()]
        self._join_deadline_ms = now_ms + max(times, default=0)

    def _look_at_phases(self, now_ms: int) -> None:
        deadline_ms = self._join_deadline_ms
        if self.phase == PREPARING and deadline_ms is not None and now_ms > deadline_ms:
            self.fail(f"the join phase should have ended at {deadline_ms}")
        is_collecting = self.phase == PREPARING and deadline_ms is not None and self.members
        all_joined = all(entry.is_parked for entry in self.members.values())
        if is_collecting and all_joined and max(self.unused_ids.values(), default=0) < now_ms:
            self.fail("everybody has joined, and nobody is answered")
        is_late = self.phase in {COMPLETING, STABLE} and now_ms > self._sync_deadline_ms
        if is_late and any(not entry.has_synced for entry in self.members.values()):
            self.fail(f"the sync phase should have ended at {self._sync_deadline_ms}")

    def fail(self, text: str) -> None:
        self.ledger.fail(f"{self.group_id} ({self.phase}, {self.generation}): {text}")

    def miss(self, text: str) -> None:
        self.ledger.misses += 1
        self.fail(f"the history is wrong: {text}")

    def _holder_of(self, instance: str | None) -> Entry | None:
        if instance is None:
            return None
        entries = self.members.values()
        return next((e for e in entries if e.process.traits.instance == instance), None)

    def _leader(self) -> Entry | None:
        return None if self.leader_id is None else self.members.get(self.leader_id)

    def _renew(self, entry: Entry, now_ms: int) -> None:
        entry.deadline_ms = now_ms + entry.session_ms

    def _renew_syncing(self, now: Now) -> None:
        for entry in self.members.values():
            if entry.is_syncing:
                entry.is_syncing = False
                self._renew(entry, now.ms)

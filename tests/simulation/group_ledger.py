"""What the ledger knows of one group."""

from collections import deque
from dataclasses import replace
from typing import Any

from kohort.groups.events import (
    CauseAdded,
    Event,
    GroupRestored,
    JoinPhaseEnded,
    JoinPhaseStalled,
    JoinReceived,
    MemberRemoved,
    MemberReplaced,
    RebalanceAvoided,
    RebalanceEnd,
    RebalanceEnded,
    RebalanceStarted,
    RemovalReason,
    SyncReceived,
    Trigger,
    TriggerKind,
    UnusedIdDropped,
)
from kohort.groups.history.model import HistoryRecord
from kohort.groups.requests import Now
from kohort.protocol.errors import ErrorCode
from tests.simulation.awaited import Awaited
from tests.simulation.causes import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    Cause,
    Entry,
    Rebalance,
    renews_session,
)
from tests.simulation.known_group import KnownGroup
from tests.simulation.process import Call, Process
from tests.simulation.tally import Tally
from tests.support import messages as m

NEW_MEMBER_MS = 300_000
NOT_STORED = ErrorCode.NOT_COORDINATOR
"""What those are told whose write the disk has refused."""


class GroupLedger(KnownGroup):
    """One group: what it is asked, what it has to do then, and what the broker says that it did."""

    def __init__(self, group_id: str, tally: Tally) -> None:
        super().__init__(group_id, tally)
        self.awaited = Awaited(tally)
        self.running: Rebalance | None = None
        self._join_deadline_ms: int | None = None
        """When the join phase has to be over; None during an initial delay."""
        self._sync_deadline_ms = 0
        self._call: Call | None = None
        self._answer: Any = None
        self._cause: Cause | None = None
        """What the request that is being dealt with has to cause."""
        self._due: Cause | None = None
        """What has to follow at once, whatever was asked for."""
        self._refused_ms = -1
        """When the disk last refused a write."""
        self._put_back: Entry | None = None
        """The member that was replaced by the one that came with this request."""
        self._leaving: list[Cause] = []
        self._has_caused = self._has_begun = False
        self._removed: deque[tuple[Entry, RemovalReason]] = deque()

    # At the door.

    def delivered(self, call: Call, now_ms: int, wall_ms: int) -> None:
        self._call, self._answer = call, None
        self._cause, self._leaving, self._has_caused = None, [], False
        self._has_begun = self.is_refused = False
        self._put_back = None
        self._look_at_due()
        for entry in self.members.values():
            is_waiting = entry.is_parked or entry.is_syncing
            if entry.deadline_ms < now_ms and (entry.is_new or not is_waiting):
                self.fail(f"the session of {entry.process} should have ended")
        self._look_at_phases(now_ms)
        match call.request:
            case m.JoinGroupRequest() as request:
                self._cause = self.cause_of_join(call, request)
            case m.LeaveGroupRequest() as request:
                self._leaving = self.causes_of_leave(call, request)
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
        if isinstance(request, m.JoinGroupRequest):
            self._join_answered(call, answer, now_ms)
        is_not_stored = self._refused_ms == now_ms and isinstance(request, m.OffsetCommitRequest)
        if renews_session(request, answer, NOT_STORED if is_not_stored else None):
            entry = self.members.get(request.member_id)
            if entry is not None:
                self.renew(entry, now_ms)
            elif request.member_id:
                self.fail(f"{request.member_id} is no member, and was told that it is")

    def disk_failed(self, now: Now, *, was_stepped: bool) -> None:
        """A write has come to nothing: one of this group if it was just stepped, else maybe."""
        self._refused_ms = now.ms
        request = None if self._call is None else self._call.request
        is_sync = isinstance(request, m.SyncGroupRequest) and self.phase == COMPLETING
        if is_sync and request is not None and request.member_id == self.leader_id:
            kind = TriggerKind.STORE_FAILED
            self._due = Cause(kind, at_ms=now.wall_ms, error=NOT_STORED)
        elif was_stepped and self.stored_ms == now.ms:
            self.stored = self.stored_before

    def _join_answered(self, call: Call, answer: m.JoinGroupResponse, now_ms: int) -> None:
        is_refused = answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        if is_refused != (self.is_refused and call is self._call):
            self.fail(f"{call.process} was {'not ' * self.is_refused}to be turned away")
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
        self._look_at_due()
        if self.is_refused and answer is None:
            self.fail(f"{call.process} was to be turned away")
        if isinstance(call.request, m.JoinGroupRequest) and cause is not None:
            is_put_back = self._put_back is not None and self._refused_ms == now_ms
            accepted = answer is None or answer.error_code == ErrorCode.NONE
            accepted = accepted or self.is_refused or is_put_back
            if accepted and not self._has_caused:
                self.fail(f"{call.process} caused nothing, not {cause.kind}, row {cause.row}")
            if accepted and cause.row == 13:
                self.renew(self.members[call.request.member_id], now_ms)
        elif self._leaving and not self._has_caused:
            self.fail(f"{call.process} left and caused nothing")
        if self._has_begun:
            self._time_join_phase(now_ms)

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
                    self.tally.further[cause.kind] += 1
            case RebalanceAvoided(Trigger(TriggerKind.MEMBER_REFUSED) as trigger):
                if not self.is_refused:
                    self.fail(f"a place was free: {trigger}")
            case RebalanceAvoided(trigger):
                cause = self._take_cause(trigger, now)
                if cause is not None:
                    if cause.row not in {12, 13, 15, 16}:
                        self.fail(f"row {cause.row} was avoided")
                    self.awaited.avoided.append(cause)
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
            self.renew_syncing(now)
        cause = self._take_cause(trigger, now) or Cause(trigger.kind)
        if cause.row in {12, 13, 15, 16}:
            self.fail(f"row {cause.row} made it rebalance")
        self.running = Rebalance(cause, generation)
        self.awaited.rebalances.append(self.running)
        self.tally.begun(cause)
        is_initial, self.phase = self.phase == EMPTY, PREPARING
        self._join_deadline_ms = None
        if self._call is None:
            self._time_join_phase(now.ms)
        else:
            # The member that caused it may have to be added first.
            self._has_begun = not is_initial

    def _take_cause(self, trigger: Trigger, now: Now) -> Cause | None:
        """What there is a cause for just now, held against what the coordinator says."""
        cause: Cause | None = None
        is_due = self._due is not None
        if self._due is not None:
            cause, self._due = self._due, None
        elif self._leaving:
            cause = self._leaving.pop(0)
        elif self._cause is not None and self._call is not None:
            cause = self._cause
        elif self._removed:
            cause = self._cause_of_removal(now)
        if cause is None:
            self.fail(f"nothing has caused {trigger}")
            return None
        self._has_caused = self._has_caused or not is_due
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
        if fate is RemovalReason.SYNC_EXPIRED:
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
        self.update(entry, request)
        entry.is_parked = True

    def _replace(self, old_id: str, new_id: str, now: Now) -> None:
        if self._put_back is not None and self._refused_ms == now.ms:
            self.renew(self._put_back, now.ms)
            self.change(old_id, self._put_back)
            return
        call = self._call
        assert call is not None
        process = call.process
        assert isinstance(process, Process)
        old = self.members[old_id]
        if old.process.traits.instance != process.traits.instance:
            self.fail(f"{process} replaced {old.process}")
        entry = Entry(process, new_id, (), 0, 0, 0, is_new=False, has_synced=old.has_synced)
        self.update(entry, call.request)
        self.renew(entry, now.ms)
        self.change(old_id, entry)
        if self.phase == STABLE:
            self._put_back = old
            self.store(now.ms)

    def _remove(self, member_id: str, fate: RemovalReason, now: Now) -> None:
        entry = self.members.pop(member_id)
        waits = entry.is_parked or entry.is_syncing
        match fate:
            case RemovalReason.SESSION_EXPIRED:
                is_right = not entry.is_new and not waits and entry.deadline_ms == now.ms
                self._removed.append((entry, fate))
            case RemovalReason.NEW_MEMBER_EXPIRED:
                is_right = entry.is_new and entry.deadline_ms == now.ms
                self._removed.append((entry, fate))
            case RemovalReason.SYNC_EXPIRED:
                is_right = not entry.has_synced and now.ms == self._sync_deadline_ms
                self._removed.append((entry, fate))
            case RemovalReason.SIZE_REFUSED:
                cause = self._cause
                is_right = self.is_refused and cause is not None and cause.member_id == member_id
            case RemovalReason.REBALANCE_TIMEOUT:
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
            self.renew(entry, now.ms)

    def _check_members(self, event: JoinPhaseEnded) -> None:
        """Joined members are in, static ones that have not may stay; the leader goes on to lead."""
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

    def _end(self, outcome: RebalanceEnd, now: Now) -> None:
        assert self.running is not None
        if outcome is RebalanceEnd.EMPTY:
            self.generation += 1
            self.running.generation = self.generation
            self.phase = EMPTY
            if self.members:
                self.fail(f"it is empty with {self.members}")
        elif outcome is RebalanceEnd.STABLE:
            self.phase = STABLE
        elif self._due is None or self._due.kind is not TriggerKind.STORE_FAILED:
            self.fail("the assignment should have been stored")
        self.renew_syncing(now)
        self.running = None
        if outcome is not RebalanceEnd.STORE_FAILED:
            self.store(now.ms)

    def broker_died(self, *, killed: bool) -> None:
        if self.awaited.rebalances and not killed:
            self.fail(f"nothing is told of {len(self.awaited.rebalances)}, and the broker stops")
        self.awaited.broker_died()
        self.running = self._call = self._cause = self._due = None
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
            self.renew(entry, now.ms)
        if len(self.members) > self.tally.size_max:
            self._due = Cause(TriggerKind.OVER_CAPACITY, at_ms=now.wall_ms)

    # What the history says.

    def told(self, record: HistoryRecord) -> None:
        wrong = self.awaited.told(record)
        if wrong is not None:
            self.tally.misses += 1
            self.fail(f"the history is wrong: {wrong}")

    # Within.

    def _look_at_due(self) -> None:
        if self._due is not None:
            self.fail(f"nothing came of {self._due.kind}")
            self._due = None

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
            self.fail("all members have joined, and none is answered")
        is_late = self.phase in {COMPLETING, STABLE} and now_ms > self._sync_deadline_ms
        if is_late and any(not entry.has_synced for entry in self.members.values()):
            self.fail(f"the sync phase should have ended at {self._sync_deadline_ms}")

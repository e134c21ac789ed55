"""Appends a `Draft`, the changes of one or several commands, and applies it once durable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kohort.groups.consumer import bridge, sessions
from kohort.groups.consumer.data import STABLE, ConsumerData
from kohort.groups.consumer.draft import Draft
from kohort.groups.consumer.epochs import preferred_assignor
from kohort.groups.consumer.member import Member
from kohort.groups.consumer.target import ms_left
from kohort.groups.effects import Cancel, Schedule, TimerKey
from kohort.groups.events import (
    AT_ONCE,
    CauseAdded,
    MemberReconciled,
    RebalanceEnd,
    RebalanceEnded,
    RebalanceStarted,
    TargetAssigned,
    Trigger,
)
from kohort.groups.kinds import EMPTY, GroupKind
from kohort.groups.outbox import Answers
from kohort.groups.records import DurableRecord
from kohort.groups.requests import Now
from kohort.groups.steps import Steps
from kohort.protocol.errors import NO_ERROR, ErrorCode

if TYPE_CHECKING:
    from kohort.groups.consumer.membership import ConsumerMembership
    from kohort.groups.group import Group


@dataclass(slots=True, eq=False)
class ConsumerWrite:
    """The append of a `Draft`'s changes. If it fails, the group is unchanged."""

    draft: Draft
    converts: tuple[Group, ConsumerMembership] | None = None
    """The group to convert to a consumer group, and the new membership, which `draft` changes."""
    first_records: Sequence[DurableRecord] = ()
    """Records that replace the group's previous ones; written before those of the draft."""
    _answers: list[Answers] = field(default_factory=list)
    _records: tuple[DurableRecord, ...] = ()

    def add(self, answers: Answers | None = None) -> None:
        """End the command that changed the draft: add its events and its answer."""
        report(self.draft)
        if answers is not None:
            self._answers.append(answers)

    def prepare(self) -> Steps[None]:
        """Create the records of a large draft before the append, in a step of their own."""
        if self.draft.is_large:
            yield
            self._records = self.draft.records()
            yield

    def make_records(self) -> tuple[DurableRecord, ...]:
        return (*self.first_records, *(self._records or self.draft.records()))

    def on_durable(self, now: Now) -> None:
        if self.converts is not None:
            group, membership = self.converts
            previous, group.membership = group.membership, membership
            if previous is not None:
                previous.end(ErrorCode.REBALANCE_IN_PROGRESS, now)
                previous.close()
            membership.start(now)
        apply(self.draft, now)
        self.answer_early(NO_ERROR)

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        """Answer with the error; nothing has changed."""
        del now
        if self.converts is not None:
            self.converts[1].close()
        if error is ErrorCode.UNKNOWN_SERVER_ERROR and len(self._answers) > 1:
            # Perhaps the records of only one command were refused. From now on each command has its
            # own append, so that if the clients retry, only that command fails.
            self.draft.data.shares_appends = False
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.answer_early(error)

    def answer_early(self, error: ErrorCode) -> None:
        all_answers, self._answers = self._answers, []
        for answers in all_answers:
            answers.give(self.draft.data.outbox, error)


def report(draft: Draft) -> None:
    """End a command: add its events to those that `apply` will publish."""
    data = draft.data
    reports = draft.reports
    begins = None
    if draft.causes and draft.was_assigned:
        begins = started(draft, draft.causes[0], draft.previous_state)
    reports += draft.events
    for number, cause in enumerate(draft.causes):
        reports.append(CauseAdded(cause) if number or begins is None else begins)
    if draft.is_target_computed:
        assignor = preferred_assignor(draft, draft.votes())
        computed_ms = draft.target_computed_ms
        reports.append(
            TargetAssigned(draft.target_epoch, assignor, computed_ms, _assigned_by(draft))
        )
    # A static member that returns under a new id does not gain the partitions of its old id.
    gone = [old for member_id, old in draft.before.items() if old and not draft.member(member_id)]
    taken_over = {partition for old in gone for partition in old.assigned}
    for member_id, old in draft.before.items():
        new = draft.member(member_id)
        if new is not None and (old is None or not new.has_same(old)):
            had = taken_over if old is None else old.assigned
            reports.append(
                MemberReconciled(
                    new.ref,
                    new.epoch,
                    new.state.name,
                    len(new.assigned),
                    data.named(new.pending),
                    data.named([partition for partition in new.assigned if partition not in had]),
                    new.classic is not None,
                )
            )
    previous, state = draft.previous_state, draft.state
    if state != previous:
        draft.has_changed_state = True
    if state == EMPTY and previous != EMPTY:
        reports.append(RebalanceEnded(RebalanceEnd.EMPTY, draft.epoch, {}))
    elif state == STABLE and (draft.is_target_computed or previous != STABLE):
        reports.append(RebalanceEnded(RebalanceEnd.STABLE, draft.target_epoch, {}))
    if draft.heartbeat_of is not None:
        draft.sessions.append(draft.heartbeat_of)


def _assigned_by(draft: Draft) -> str:
    """Return which event computed the target of the current command; see `TargetAssigned`."""
    data = draft.data
    if draft.was_assigned:
        return AT_ONCE
    if draft.heartbeat_of is not None:
        return "heartbeat"
    # The timer computed the target, at once if the interval ended before the rebalance began.
    over_ms = data.target_computed_ms + data.settings.assignment_interval_ms
    return AT_ONCE if over_ms <= data.since_ms else "interval"


def apply(draft: Draft, now: Now) -> None:
    """Apply a draft to its `ConsumerData`, publish its events, and set the resulting timers."""
    data = draft.data
    outbox = data.outbox
    before = {member_id: data.members.get(member_id) for member_id in draft.changed_members()}
    draft.apply()
    for event in draft.reports:
        outbox.note(event)
    for member_id in draft.sessions:
        member = data.members.get(member_id)
        if member is not None:  # Otherwise it has left since.
            sessions.restart(data, member, now.ms)
    for member_id, old in before.items():
        if old is None:
            data.lost.pop(member_id, None)
        _follow_member(data, old, data.members.get(member_id), now)
    if draft.classic_joined is not None:
        bridge.note_joined(data, data.members[draft.classic_joined], now)
    if draft.has_changed_state:
        data.since_ms = now.wall_ms
    key = ASSIGN_TIMER
    if data.epoch > data.target_epoch:
        deadline_ms = now.ms + max(ms_left(draft, now), 0)
        if data.deadlines.get(key) != deadline_ms:
            data.deadlines[key] = deadline_ms
            outbox.emit(Schedule(key, deadline_ms))
    elif data.deadlines.pop(key, None) is not None:
        outbox.emit(Cancel(key))


def started(draft: Draft, cause: Trigger, state: str) -> RebalanceStarted:
    """Return the event for the rebalance that the current command begins. The event lists the
    members that the command neither adds nor removes, as they were before it.
    """
    before = draft.before
    members = [
        old
        for member_id, member in draft.members().items()
        if (old := before.get(member_id, member)) is not None
    ]
    return RebalanceStarted(
        cause,
        state,
        draft.previous_target_epoch,
        tuple([member.ref for member in members]),
        GroupKind.CONSUMER,
        epochs={member.member_id: member.epoch for member in members},
        classic_ids=frozenset([m.member_id for m in members if m.classic is not None]),
        heartbeat_interval_ms=draft.data.settings.heartbeat_interval_ms,
    )


def _follow_member(data: ConsumerData, old: Member | None, new: Member | None, now: Now) -> None:
    if new is not None:
        sessions.follow_revocation(data, old, new, now)
        if new.member_id not in data.sessions:
            sessions.restart(data, new, now.ms)
    elif old is not None:
        sessions.forget(data, old.member_id)


ASSIGN_TIMER = TimerKey("assign")
"""Fires at the end of the assignment interval, and computes a target if no heartbeat has."""

"""Applies the changes of a draft when they are durable, reports them, and sets timers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kohort.groups.consumer import bridge, sessions
from kohort.groups.consumer.data import STABLE, ConsumerData
from kohort.groups.consumer.draft import Draft
from kohort.groups.consumer.epochs import preferred_assignor
from kohort.groups.consumer.member import Member, Partition
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
from kohort.protocol.errors import NO_ERROR, ErrorCode

if TYPE_CHECKING:
    from kohort.groups.consumer.membership import ConsumerMembership
    from kohort.groups.group import Group


@dataclass(slots=True, eq=False)
class ConsumerWrite:
    """The records of one draft. If they are not stored, nothing has changed."""

    draft: Draft
    answers: Answers | None = None
    converts: tuple[Group, ConsumerMembership] | None = None
    """The group whose membership is replaced, and the new one, to which the draft belongs."""
    first_records: Sequence[DurableRecord] = ()
    """The records that convert the group."""

    def make_records(self) -> tuple[DurableRecord, ...]:
        return (*self.first_records, *self.draft.records())

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
        self.answer_early(error)

    def answer_early(self, error: ErrorCode) -> None:
        answers, self.answers = self.answers, None
        if answers is not None:
            answers.give(self.draft.data.outbox, error)


def apply(draft: Draft, now: Now) -> None:
    """Apply the changes of a draft, report them, and set the timers that follow from them."""
    data = draft.data
    outbox = data.outbox
    state = data.state
    was_assigned = data.epoch == data.target_epoch
    assigned_by = _assigned_by(draft)
    begins = started(draft, draft.causes[0], state) if draft.causes and was_assigned else None
    before = {member_id: data.members.get(member_id) for member_id in draft.changed_members()}
    draft.apply()
    for event in draft.events:
        outbox.note(event)
    for number, cause in enumerate(draft.causes):
        outbox.note(CauseAdded(cause) if number or begins is None else begins)
    if draft.is_target_computed:
        assignor = preferred_assignor(draft, data.votes)
        computed_ms = draft.target_computed_ms
        outbox.note(TargetAssigned(data.target_epoch, assignor, computed_ms, assigned_by))
    # A static member that returns has the partitions of its previous process, and gains none.
    gone = [old for old in before.values() if old and old.member_id not in data.members]
    taken_over = {partition for old in gone for partition in old.assigned}
    for member_id, old in before.items():
        _follow_member(data, old, data.members.get(member_id), taken_over, now)
    if draft.heartbeat_of is not None:
        sessions.restart(data, data.members[draft.heartbeat_of], now.ms)
    if draft.classic_joined is not None:
        bridge.note_joined(data, data.members[draft.classic_joined], now)
    _follow_state(data, state, draft, now)


def _assigned_by(draft: Draft) -> str:
    """Return what a target waited for, if the draft has one; see `TargetAssigned`."""
    data = draft.data
    if data.epoch == data.target_epoch:
        return AT_ONCE
    if draft.heartbeat_of is not None:
        return "heartbeat"
    # If the interval was over when the rebalance began, the timer fired at once.
    over_ms = data.target_computed_ms + data.settings.assignment_interval_ms
    return AT_ONCE if over_ms <= data.since_ms else "interval"


def started(draft: Draft, cause: Trigger, state: str) -> RebalanceStarted:
    """Return that a rebalance begins. Its members are those that the draft neither adds nor
    removes.
    """
    data = draft.data
    changed = draft.changed_members()
    members = [m for m in data.members.values() if changed.get(m.member_id, m) is not None]
    return RebalanceStarted(
        cause,
        state,
        data.target_epoch,
        tuple([member.ref for member in members]),
        GroupKind.CONSUMER,
        epochs={member.member_id: member.epoch for member in members},
        classic_ids=frozenset([m.member_id for m in members if m.classic is not None]),
        heartbeat_interval_ms=data.settings.heartbeat_interval_ms,
    )


def _follow_member(
    data: ConsumerData,
    old: Member | None,
    new: Member | None,
    taken_over: Collection[Partition],
    now: Now,
) -> None:
    """Report what has become of a member, and set its timers."""
    if new is None:
        assert old is not None
        sessions.forget(data, old.member_id)
        return
    sessions.follow_revocation(data, old, new, now)
    if new.member_id not in data.sessions:
        sessions.restart(data, new, now.ms)
    if old is None or not new.has_same(old):
        had = taken_over if old is None else old.assigned
        data.outbox.note(
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


def _follow_state(data: ConsumerData, previous: str, draft: Draft, now: Now) -> None:
    state = data.state
    if state != previous:
        data.since_ms = now.wall_ms
    if state == EMPTY and previous != EMPTY:
        data.outbox.note(RebalanceEnded(RebalanceEnd.EMPTY, data.epoch, {}))
    elif state == STABLE and (draft.is_target_computed or previous != STABLE):
        data.outbox.note(RebalanceEnded(RebalanceEnd.STABLE, data.target_epoch, {}))
    key = ASSIGN_TIMER
    if data.epoch > data.target_epoch:
        deadline_ms = now.ms + max(ms_left(draft, now), 0)
        if data.deadlines.get(key) != deadline_ms:
            data.deadlines[key] = deadline_ms
            data.outbox.emit(Schedule(key, deadline_ms))
    elif data.deadlines.pop(key, None) is not None:
        data.outbox.emit(Cancel(key))


ASSIGN_TIMER = TimerKey("assign")
"""Fires at the end of the assignment interval, and computes a target if no heartbeat has."""

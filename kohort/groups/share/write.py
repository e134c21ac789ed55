"""Applies a command's changes when they are durable, reports them, and sets timers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kohort.groups.effects import Cancel, Schedule, TimerKey
from kohort.groups.events import (
    MemberAssigned,
    MemberRemoved,
    ShareEpochBumped,
    SharePartitionsAssigned,
    SharePartitionsForgotten,
    SharePartitionsInitialized,
)
from kohort.groups.member_sessions import SESSION, extend
from kohort.groups.outbox import Answers
from kohort.groups.records import DurableRecord
from kohort.groups.requests import Now
from kohort.groups.share.data import NO_PARTITIONS, ShareData, ShareState
from kohort.groups.share.draft import ShareDraft
from kohort.groups.topics import Partition
from kohort.protocol.errors import NO_ERROR, ErrorCode

if TYPE_CHECKING:
    from kohort.groups.group import Group
    from kohort.groups.share.membership import ShareMembership


ASSIGN_TIMER: Final = TimerKey("assign")
"""Computes the target at the end of the assignment interval, unless a heartbeat has done so."""


@dataclass(slots=True, eq=False)
class ShareWrite:
    """The records of a command's changes (`draft`), which apply once the records are durable."""

    draft: ShareDraft
    records: tuple[DurableRecord, ...]
    answers: Answers | None = None
    begins: "tuple[Group, ShareMembership] | None" = None
    """The group and its new membership, if this is the membership's first write; otherwise None."""

    def make_records(self) -> tuple[DurableRecord, ...]:
        return self.records

    def on_durable(self, now: Now) -> None:
        if self.begins is not None:
            group, membership = self.begins
            group.membership = membership
        apply(self.draft, now)
        self.answer_early(NO_ERROR)

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        """Answer with the error; nothing has changed."""
        del now
        self.answer_early(error)

    def answer_early(self, error: ErrorCode) -> None:
        answers, self.answers = self.answers, None
        if answers is not None:
            answers.give(self.draft.data.outbox, error)


def apply(draft: ShareDraft, now: Now) -> None:
    """Apply a command's changes, report them as events, and set the resulting timers."""
    data, outbox = draft.data, draft.data.outbox
    old, new = data.state, draft.state
    data.account.add(len(new.members) - len(old.members), new.size() - old.size())
    previous_name = data.state_name
    data.state = new
    data.checked_version = draft.checked_version
    data.known_topics = draft.known_topics
    if data.state_name != previous_name:
        data.since_ms = now.wall_ms
    for member, reason in draft.removed:
        outbox.note(MemberRemoved(member.ref, reason, held=data.named(sorted(member.assigned))))
        data.sessions.pop(member.member_id, None)
        outbox.emit(Cancel(TimerKey(SESSION, member.member_id)))
    for cause in draft.causes:
        outbox.note(ShareEpochBumped(cause))
    if new.target_epoch != old.target_epoch:
        outbox.note(partitions_assigned(old, new, data.named))
    _note_partitions(data, old, new)
    if draft.heartbeat_of is not None:
        restart_session(data, draft.heartbeat_of, now.ms)
    if new.epoch > new.target_epoch:
        deadline_ms = now.ms + draft.ms_left(now)
        if data.deadlines.get(ASSIGN_TIMER) != deadline_ms:
            data.deadlines[ASSIGN_TIMER] = deadline_ms
            outbox.emit(Schedule(ASSIGN_TIMER, deadline_ms))
    elif data.deadlines.pop(ASSIGN_TIMER, None) is not None:
        outbox.emit(Cancel(ASSIGN_TIMER))


def restart_session(data: ShareData, member_id: str, now_ms: int) -> None:
    extend(data.sessions, data.outbox, member_id, now_ms + data.settings.session_timeout_ms)


def _note_partitions(data: ShareData, old: ShareState, new: ShareState) -> None:
    """Report newly initialized partitions, and partitions of topics whose state was deleted."""
    if old.initialized == new.initialized:
        return
    added: dict[bytes, tuple[str, tuple[int, ...]]] = {}
    for topic_id, topic in new.initialized.items():
        before = old.initialized.get(topic_id)
        known = frozenset(() if before is None else before.partitions)
        numbers = tuple([number for number in topic.partitions if number not in known])
        if numbers:
            added[topic_id] = (topic.name, numbers)
    if added:
        grown = frozenset(added.keys() & old.initialized.keys())
        data.outbox.note(SharePartitionsInitialized(new.epoch, added, grown))
    gone = [
        (topic_id, number)
        for topic_id, topic in old.initialized.items()
        if topic_id not in new.initialized
        for number in topic.partitions
    ]
    if gone:
        data.outbox.note(SharePartitionsForgotten(tuple(gone)))


def partitions_assigned(
    old: ShareState,
    new: ShareState,
    named: Callable[[Iterable[Partition]], tuple[tuple[str, int], ...]],
) -> SharePartitionsAssigned:
    """Return the event of a new target assignment, by comparing the old and the new state.

    Args:
        named: replaces the topic ids of partitions by topic names.
    """
    changes = []
    for member_id, target in new.targets.items():
        before = old.targets.get(member_id, NO_PARTITIONS)
        member = new.members.get(member_id)
        if member is not None and before != target:
            kept_count = len(before & target)
            gained, given_up = named(target - before), named(before - target)
            changes.append(MemberAssigned(member.ref, kept_count, gained, given_up))
    assigned = NO_PARTITIONS.union(*new.targets.values())
    return SharePartitionsAssigned(
        new.target_epoch, len(new.members), len(assigned), tuple(changes)
    )

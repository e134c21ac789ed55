"""Follows one share group (KIP-932): from its records to events.

The coordinator writes all records of one operation as one batch, so causes and assignments are
exact. How a member left is inferred from the times of its records, which are written at heartbeats.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kohort.groups.events import (
    Certainty,
    GroupRestored,
    MemberRemoved,
    ShareEpochBumped,
    Trigger,
    TriggerKind,
)
from kohort.groups.kinds import GroupKind
from kohort.groups.records import DurableRecord
from kohort.groups.requests import Now
from kohort.groups.share.data import ShareMember, ShareState
from kohort.groups.share.encoding import SHARE_CODEC
from kohort.groups.share.records import (
    MEMBER,
    TARGET,
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareMemberRecord,
    SharePartitionsRecord,
    ShareTargetEpochRecord,
    ShareTombstone,
)
from kohort.groups.share.write import partitions_assigned
from kohort.groups.topics import Partition, subscription_changes
from kohort.watch.core.commits import Signs
from kohort.watch.core.fate import Fate, Timeouts, fate_of_share_member
from kohort.watch.core.followed import FollowedGroup, TimedEvent, likely
from kohort.watch.core.logged import NO_LINES, GroupLog, Times
from kohort.watch.core.origin import TRIGGERS
from kohort.watch.core.topics import TopicNames
from kohort.watch.core.view import ShareView

SHARE_RECORDS: Final = (*SHARE_CODEC.record_types, *SHARE_CODEC.tombstone_types)
"""The classes of records that only share groups have."""


class ShareGroup(FollowedGroup):
    """A share group's stored state, and the last known heartbeat of each member."""

    __slots__ = ("_assigned_ms", "_lost_epoch", "_names", "_state", "_timeouts_of")

    def __init__(self, names: TopicNames, timeouts_of: Callable[[], Timeouts]) -> None:
        """`timeouts_of` returns the group's current session timeout and heartbeat interval."""
        super().__init__()
        self._names = names
        self._timeouts_of = timeouts_of
        self._state = ShareState()
        self._lost_epoch = 0
        """The last epoch whose causes are unknown, because records before it are missing."""
        self._assigned_ms: dict[str, int] = {}
        """Time of the first target assignment that a member has not received yet, by member id."""

    def view(self, group_id: str, since_ms: int) -> ShareView:
        """Return the group's state, which began at `since_ms`."""
        members = tuple(self._state.members.values())
        timeouts = self._timeouts_of()
        return ShareView(group_id, self._state.epoch, since_ms, members, timeouts, self._names)

    def store(
        self, batch: Sequence[DurableRecord], at_ms: int, log: GroupLog = NO_LINES
    ) -> Iterator[TimedEvent]:
        """Apply the records of one batch; yield the events that caused them."""
        now = Now(at_ms, at_ms)
        old = self._state
        epochs = [record.epoch for record in batch if isinstance(record, ShareEpochRecord)]
        gone = [old.members[key] for key in _removed(batch) if key in old.members]
        fates = {member.member_id: self._fate(member, at_ms, log) for member in gone}
        new = self._state = self._applied(batch, at_ms)
        restated = [*_restated(old, new)]
        if epochs and not _follows(old, epochs[0], batch, len(gone) + len(restated)):
            # Compaction has removed earlier records, or a part of the batch.
            self._lost_epoch = new.epoch
            yield GroupRestored(new.epoch, GroupKind.SHARE.value, None, {}), now
            return
        causes: list[Trigger] = []
        for member in gone:
            fate = self.fates[member.member_id] = fates[member.member_id]
            causes.append(self._departure(member, fate))
            held = self._named(member.assigned)
            yield MemberRemoved(member.ref, fate.reason, held=held), now
        causes += restated
        if epochs and epochs[-1] > old.epoch:
            yield from ((ShareEpochBumped(cause), now) for cause in _of_epoch(causes, old, new))
        targets = [record.epoch for record in batch if isinstance(record, ShareTargetEpochRecord)]
        if targets and self._lost_epoch < targets[-1] <= new.epoch:
            yield partitions_assigned(old, new, self._named), now

    # Fates of members.

    def _fate(self, member: ShareMember, at_ms: int, log: GroupLog) -> Fate:
        member_id = member.member_id
        signs = self._signs.get(member_id) or Signs(at_ms)
        assigned_ms = self._assigned_ms.get(member_id, at_ms)
        fate = fate_of_share_member(signs, at_ms, self._timeouts_of(), assigned_ms)
        return log.fate(member_id, fate, Times(at_ms, at_ms))

    def _departure(self, member: ShareMember, fate: Fate) -> Trigger:
        kind = TRIGGERS[fate.reason]
        timeouts = self._timeouts_of()
        is_timed = kind is TriggerKind.SESSION_EXPIRED and timeouts.is_known
        return Trigger(
            kind,
            member.ref,
            removed=(member.member_id,),
            timeout_ms=timeouts.share_session_ms if is_timed else None,
            certainty=fate.certainty,
            candidates=tuple([TRIGGERS[reason] for reason in fate.candidates]),
            evidence=fate.evidence,
        )

    # State.

    def _applied(self, batch: Sequence[DurableRecord], at_ms: int) -> ShareState:
        state = self._state.copy()
        for record in batch:
            match record:
                case ShareTombstone(record_type=record_type, member_id=member_id):
                    if record_type == MEMBER:
                        state.members.pop(member_id, None)
                        self._signs.pop(member_id, None)
                        self._assigned_ms.pop(member_id, None)
                    elif record_type == TARGET:
                        state.targets.pop(member_id, None)
                    continue
                case ShareMemberRecord(member_id=member_id):
                    self._signs.setdefault(member_id, Signs(at_ms)).prove(at_ms)
                case ShareCurrentRecord(member_id=member_id):
                    self._signs.setdefault(member_id, Signs(at_ms)).prove(at_ms)
                    self._assigned_ms.pop(member_id, None)
                case SharePartitionsRecord(initialized=initialized, initializing=initializing):
                    self._learn(initialized)
                    self._learn(initializing)
            state.apply(record)
        for member_id, member in state.members.items():
            if member.epoch < state.target_epoch:
                self._assigned_ms.setdefault(member_id, at_ms)
        return state

    def _learn(self, topics: Mapping[bytes, tuple[str, Sequence[int]]]) -> None:
        for topic_id, (name, _) in topics.items():
            self._names.learn(topic_id, name)

    def _named(self, partitions: Iterable[Partition]) -> tuple[tuple[str, int], ...]:
        return tuple([(self._names.name_of(topic_id), number) for topic_id, number in partitions])


def _removed(batch: Sequence[DurableRecord]) -> list[str]:
    return [
        record.member_id
        for record in batch
        if isinstance(record, ShareTombstone) and record.record_type == MEMBER
    ]


def _follows(old: ShareState, epoch: int, batch: Sequence[DurableRecord], cause_count: int) -> bool:
    """Whether no record is missing between `old` and a batch that begins with `epoch`. An operation
    with several causes, such as sessions that expire together, may increase the epoch by their
    number.
    """
    written = {one.member_id for one in batch if isinstance(one, ShareMemberRecord)}
    is_next = old.epoch <= epoch <= old.epoch + max(cause_count, 1)
    return is_next and {*_removed(batch)} <= old.members.keys() | written


def _restated(old: ShareState, new: ShareState) -> Iterator[Trigger]:
    """Yield a cause for each new member, and for each member whose subscription changed."""
    for member_id, member in new.members.items():
        before = old.members.get(member_id)
        if before is None:
            yield Trigger(TriggerKind.MEMBER_ADDED, member.ref)
        elif before.topic_names != member.topic_names:
            yield Trigger(
                TriggerKind.SUBSCRIPTION_CHANGED,
                member.ref,
                old_protocols=before.topic_names,
                new_protocols=member.topic_names,
                detail=", ".join(subscription_changes(before.topic_names, member.topic_names)),
            )


def _of_epoch(causes: list[Trigger], old: ShareState, new: ShareState) -> list[Trigger]:
    """Return the causes of an epoch: the changes of members; without any, changed topics, or the
    partitions that were initialized since the last assignment.
    """
    if causes:
        # The order of changes within a millisecond is unknown.
        return causes if len(causes) == 1 else [likely(causes[0]), *causes[1:]]
    if old.metadata_hash != new.metadata_hash:
        return [Trigger(TriggerKind.TOPICS_CHANGED)]
    assigned = frozenset[Partition]().union(*old.targets.values())
    names = new.subscribed_topics()
    for topic_id, topic in new.initialized.items():
        if topic.name in names and any((topic_id, one) not in assigned for one in topic.partitions):
            return [Trigger(TriggerKind.INITIALIZED)]
    return [Trigger(TriggerKind.UNKNOWN, certainty=Certainty.UNCLEAR)]

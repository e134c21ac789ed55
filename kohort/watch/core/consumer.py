"""Follows one consumer group (KIP-848): from its records to events.

The coordinator writes all records of one operation as one batch, so causes, targets and the
partitions of each member are exact. Only how a member left is inferred.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from kohort.groups.consumer.data import ASSIGNING, RECONCILING, STABLE
from kohort.groups.consumer.member import LEFT_FOR_RESTART, MemberState
from kohort.groups.consumer.records import (
    ConsumerMemberRecord,
    ConsumerMemberTombstone,
    CurrentRecord,
    CurrentTombstone,
    EpochRecord,
    OldMetadataTombstone,
    RegexRecord,
    TargetEpochRecord,
)
from kohort.groups.events import (
    AT_ONCE,
    CauseAdded,
    Certainty,
    Event,
    Evidence,
    GroupRestored,
    MemberReconciled,
    MemberRef,
    MemberRemoved,
    MemberReplaced,
    RebalanceAvoided,
    RebalanceEnd,
    RebalanceEnded,
    RebalanceStarted,
    RemovalReason,
    TargetAssigned,
    Trigger,
    TriggerKind,
)
from kohort.groups.history.shares import TopicPartition
from kohort.groups.kinds import EMPTY, GroupKind
from kohort.groups.records import DurableRecord, GroupRecord
from kohort.groups.requests import CONSUMER, Now
from kohort.watch.core.commits import Signs
from kohort.watch.core.fate import Fate, Timeouts, fate_of_consumer
from kohort.watch.core.followed import FollowedGroup, TimedEvent, likely, ref
from kohort.watch.core.logged import NO_LINES, GroupLog, Times
from kohort.watch.core.origin import TRIGGERS
from kohort.watch.core.topics import TopicNames
from kohort.watch.core.view import ConsumerMemberView, ConsumerView

_Named: TypeAlias = tuple[tuple[str, int], ...]

_FIRST_EPOCH: Final = 2

_WEAK: Final = frozenset({TriggerKind.STATIC_REPLACED, TriggerKind.ASSIGNOR_CHANGED})
"""Changes of members that do not always increase the group epoch."""

_TRIGGERS: Final = TRIGGERS | {RemovalReason.REBALANCE_TIMEOUT: TriggerKind.REBALANCE_EXPIRED}


class ConsumerGroup(FollowedGroup):
    """The stored state of a group, and evidence of when its members were alive."""

    __slots__ = (
        "_current",
        "_epoch",
        "_members",
        "_metadata_hash",
        "_names",
        "_names_version",
        "_revoking",
        "_stable",
        "_target_epoch",
        "_timeouts_of",
        "_upgraded",
    )

    def __init__(self, names: TopicNames, timeouts_of: Callable[[], Timeouts]) -> None:
        """`timeouts_of` returns the group's current session timeout and heartbeat interval."""
        super().__init__()
        self._names = names
        self._names_version = names.version
        """Version of the topic names with which `_owners` was built."""
        self._timeouts_of = timeouts_of
        self._members: dict[str, ConsumerMemberRecord] = {}
        self._current: dict[str, CurrentRecord] = {}
        self._stable: Counter[int] = Counter()
        """Number of stable members by epoch; static members that left for a restart count at epoch
        -2 (LEFT_FOR_RESTART)."""
        self._epoch = 0
        self._target_epoch = 0
        self._metadata_hash: int | None = None
        """Hash of the metadata of the group's topics, as stored with the last epoch."""
        self._revoking: dict[str, int] = {}
        """By member id: since when the member has had partitions to revoke."""
        self._upgraded: tuple[MemberRef, ...] | None = None
        """The members of the classic group that the next batch converts."""

    def upgrade(self, members: tuple[MemberRef, ...], generation: int) -> None:
        """Start from the classic group's generation. The next batch converts `members`; if there
        are none, the batch replaces the classic group.
        """
        self._upgraded = members or None
        self._epoch = self._target_epoch = generation

    def view(self, group_id: str, since_ms: int) -> ConsumerView | None:
        """Return the present state, which began at `since_ms`; None if no epoch is known."""
        if not self._epoch:
            return None
        members = [
            ConsumerMemberView(member, self._current.get(member_id))
            for member_id, member in self._members.items()
        ]
        state = self._state
        if state == STABLE and any(
            current is not None and current.epoch == LEFT_FOR_RESTART for _, current in members
        ):
            # Unlike `_state`, the coordinator waits for a static member that restarts.
            state = RECONCILING
        return ConsumerView(
            group_id,
            state,
            self._epoch,
            self._target_epoch,
            since_ms,
            tuple(members),
            self._timeouts_of(),
            self._names,
        )

    def signs_of(self, partition: TopicPartition) -> Signs | None:
        """Return the signs of life of the member that owns a partition, after applying any topic
        names learned since the last call.
        """
        if self._names_version != self._names.version:
            self._names_version = self._names.version
            self._owners = {
                pair: member_id
                for member_id, current in self._current.items()
                for pair in self._named(_pairs(current.assigned))
            }
        return super().signs_of(partition)

    def last_consumers(self, record: GroupRecord) -> list[MemberRef]:
        """Return the members that left when `record` made this a classic group: all that used the
        consumer protocol, except static members whose instance id a classic member has now.
        """
        ids = {member.member_id for member in record.members}
        instance_ids = {member.instance_id for member in record.members} - {None}
        return [
            ref(member)
            for member_id, member in self._members.items()
            if member.classic is None
            and member_id not in ids
            and member.instance_id not in instance_ids
        ]

    def store(
        self, batch: Sequence[DurableRecord], at_ms: int, log: GroupLog = NO_LINES
    ) -> Iterator[TimedEvent]:
        """Apply the records of one batch; yield the events that caused them."""
        now = Now(at_ms, at_ms)
        epochs = [record.epoch for record in batch if isinstance(record, EpochRecord)]
        if epochs and not (self._is_next(epochs[0]) and self._is_complete(batch)):
            # Compaction has removed earlier records, or a part of the batch.
            self._apply(batch, at_ms)
            self._upgraded = None
            yield GroupRestored(self._epoch, CONSUMER, None, {}), now
            return
        state, was_assigned = self._state, self._epoch == self._target_epoch
        ids = {
            record.member_id
            for record in batch
            if isinstance(record, CurrentRecord | CurrentTombstone)
        }
        before = {key: self._current[key] for key in ids & self._current.keys()}
        hash_before = self._metadata_hash
        causes, events = self._changes(batch, at_ms, log)
        is_bump = bool(epochs)
        started = self._started(state, batch) if is_bump and was_assigned else None
        self._apply(batch, at_ms)
        for event in events:
            yield event, now
        if is_bump:
            first, *rest = self._epoch_causes(causes, batch, hash_before)
            if started is not None:
                yield started._replace(trigger=first), now
            else:
                rest = [first, *rest]
            self._upgraded = None
            for trigger in rest:
                yield CauseAdded(trigger), now
        else:
            for trigger in causes:
                if trigger.kind is TriggerKind.STATIC_REPLACED:
                    yield RebalanceAvoided(trigger), now
        for record in batch:
            if isinstance(record, TargetEpochRecord):
                by = AT_ONCE if is_bump and was_assigned else "interval"
                computed_ms = record.computed_at_ms or at_ms
                yield TargetAssigned(record.epoch, "", computed_ms, by), now
        yield from ((event, now) for event in self._reconciled(batch, before))
        if self._state != state or any(isinstance(record, TargetEpochRecord) for record in batch):
            yield from self._ended(state, now)

    def _epoch_causes(
        self, causes: list[Trigger], batch: Sequence[DurableRecord], hash_before: int | None
    ) -> list[Trigger]:
        """Return the causes of a new epoch. `causes` are the changes of members. Without any, the
        cause is a change of topics if the metadata hash differs, or if the batch deletes the
        metadata that brokers before 4.1 stored instead of a hash; otherwise it is unknown.
        """
        hashes = [record.metadata_hash for record in batch if isinstance(record, EpochRecord)]
        is_old = any(isinstance(record, OldMetadataTombstone) for record in batch)
        has_other_topics = is_old or hash_before not in {None, hashes[-1]}
        if not causes:
            if has_other_topics:
                return [Trigger(TriggerKind.TOPICS_CHANGED)]
            return [Trigger(TriggerKind.UNKNOWN, certainty=Certainty.UNCLEAR)]
        is_weak = causes[0].kind in _WEAK and has_other_topics
        if self._upgraded is None and (is_weak or _is_ambiguous(causes, len(hashes))):
            return [likely(causes[0]), *causes[1:]]
        return causes

    def _is_next(self, epoch: int) -> bool:
        """Whether `epoch` follows the last epoch that was read, or is the first of the group: 2 (1
        before Kafka 4.1), or the generation of the classic group that was converted.
        """
        if self._upgraded is not None and epoch == self._epoch:
            return True
        return epoch == self._epoch + 1 or (not self._members and epoch <= _FIRST_EPOCH)

    def _is_complete(self, batch: Sequence[DurableRecord]) -> bool:
        """Whether no record of a member is missing: the batch removes only known members, and adds
        a member if the group has none.
        """
        written = {record.member_id for record in batch if isinstance(record, ConsumerMemberRecord)}
        gone = {record.member_id for record in batch if isinstance(record, ConsumerMemberTombstone)}
        return bool(self._members or written) and gone <= self._members.keys() | written

    def _ended(self, previous: str, now: Now) -> Iterator[TimedEvent]:
        state = self._state
        if state == EMPTY and previous != EMPTY:
            yield RebalanceEnded(RebalanceEnd.EMPTY, self._epoch, {}), now
        elif state == STABLE:
            yield RebalanceEnded(RebalanceEnd.STABLE, self._target_epoch, {}), now

    @property
    def _state(self) -> str:
        if not self._members:
            return EMPTY
        if self._epoch > self._target_epoch:
            return ASSIGNING
        settled = self._stable[self._target_epoch] + self._stable[LEFT_FOR_RESTART]
        return STABLE if settled == len(self._members) else RECONCILING

    # Changes of members.

    def _changes(
        self, batch: Sequence[DurableRecord], at_ms: int, log: GroupLog
    ) -> tuple[list[Trigger], list[Event]]:
        """Return the rebalance causes among a batch's member changes, and the events for members
        that it removes or replaces.
        """
        written = {
            record.member_id: record for record in batch if isinstance(record, ConsumerMemberRecord)
        }
        gone = [
            self._members[record.member_id]
            for record in batch
            if isinstance(record, ConsumerMemberTombstone) and record.member_id in self._members
        ]
        by_instance = {member.instance_id: member for member in written.values()}
        is_resolved = any(isinstance(record, RegexRecord) for record in batch)
        causes: list[Trigger] = []
        events: list[Event] = []
        replaced: set[str] = set()
        for member in gone:
            successor = by_instance.get(member.instance_id) if member.instance_id else None
            if successor is not None and successor.member_id != member.member_id:
                replaced.add(successor.member_id)
                silent_ms = max(at_ms - self._signs[member.member_id].last_ms, 0)
                evidence = (Evidence("last_commit", silent_ms),)
                trigger = Trigger(TriggerKind.STATIC_REPLACED, ref(successor), evidence=evidence)
                events.append(MemberReplaced(member.member_id, ref(successor)))
                if any(_restated(member, successor, is_resolved=is_resolved)):
                    causes.append(trigger)
                else:
                    # The replacement is not the cause of a new epoch, even if the batch has one.
                    events.append(RebalanceAvoided(trigger))
                continue
            fate = self._fate(member, at_ms)
            fate = log.fate(member.member_id, fate, Times(at_ms, at_ms))
            self.fates[member.member_id] = fate
            causes.append(self._departure(member, fate))
            held = self._assigned(member.member_id)
            events.append(MemberRemoved(ref(member), fate.reason, held=held))
        for member in written.values():
            old = self._members.get(member.member_id)
            if old is not None:
                restated = [*_restated(old, member, is_resolved=is_resolved)]
                if restated and self._is_restarting(member.member_id):
                    restated = [Trigger(TriggerKind.STATIC_REPLACED, ref(member))]
                causes += restated
            elif member.member_id not in replaced:
                kind = TriggerKind.STATIC_ADDED if member.instance_id else TriggerKind.MEMBER_ADDED
                causes.append(Trigger(kind, ref(member)))
        if self._upgraded is not None:
            consumers = [member for member in written.values() if member.classic is None]
            who = ref(consumers[0]) if consumers else None
            return [Trigger(TriggerKind.UPGRADED, who)], events
        if not causes and is_resolved:
            causes.append(Trigger(TriggerKind.REGEX_RESOLVED))
        return causes, events

    def _is_restarting(self, member_id: str) -> bool:
        current = self._current.get(member_id)
        return current is not None and current.epoch == LEFT_FOR_RESTART

    def _fate(self, member: ConsumerMemberRecord, at_ms: int) -> Fate:
        revoking_ms = at_ms - self._revoking.get(member.member_id, at_ms)
        return fate_of_consumer(
            self._signs[member.member_id],
            at_ms,
            self._timeouts_of(),
            member.rebalance_timeout_ms,
            revoking_ms=revoking_ms,
            is_classic=member.classic is not None,
            has_left=self._is_restarting(member.member_id),
        )

    def _departure(self, member: ConsumerMemberRecord, fate: Fate) -> Trigger:
        kind = _TRIGGERS[fate.reason]
        timeout_ms = None
        if kind is TriggerKind.REBALANCE_EXPIRED:
            timeout_ms = member.rebalance_timeout_ms
        elif kind is TriggerKind.SESSION_EXPIRED:
            timeouts = self._timeouts_of()
            timeout_ms = timeouts.session_ms if timeouts.is_known else None
        return Trigger(
            kind,
            ref(member),
            removed=(member.member_id,),
            timeout_ms=timeout_ms,
            detail=fate.text or fate.detail,
            certainty=fate.certainty,
            candidates=tuple([_TRIGGERS[reason] for reason in fate.candidates]),
            evidence=fate.evidence,
        )

    # Events.

    def _started(self, state: str, batch: Sequence[DurableRecord]) -> RebalanceStarted:
        members, current = self._members.values(), self._current
        gone = {record.member_id for record in batch if isinstance(record, ConsumerMemberTombstone)}
        refs = [ref(member) for member in members if member.member_id not in gone]
        if self._upgraded is not None:
            state, refs = STABLE, list(self._upgraded)
        return RebalanceStarted(
            Trigger(TriggerKind.UNKNOWN),
            state,
            self._target_epoch,
            tuple(refs),
            GroupKind.CONSUMER,
            epochs={key: current[key].epoch for key, *_ in refs if key in current},
            classic_ids=frozenset(
                [member.member_id for member in members if member.classic is not None]
            ),
            heartbeat_interval_ms=self._timeouts_of().heartbeat_ms,
        )

    def _reconciled(
        self, batch: Sequence[DurableRecord], before: Mapping[str, CurrentRecord]
    ) -> Iterator[Event]:
        released = {record.member_id for record in batch if isinstance(record, CurrentTombstone)}
        freed = {pair for key in released & before.keys() for pair in _pairs(before[key].assigned)}
        for record in batch:
            member = self._members.get(getattr(record, "member_id", ""))
            if not isinstance(record, CurrentRecord) or member is None:
                continue
            old = before.get(record.member_id)
            # A static member that returns takes over the partitions of its previous process.
            had = set(_pairs(old.assigned)) if old else freed if member.instance_id else set()
            assigned = _pairs(record.assigned)
            yield MemberReconciled(
                ref(member),
                record.epoch,
                MemberState.of(record.state).name,
                len(assigned),
                self._named(_pairs(record.pending)),
                self._named([pair for pair in assigned if pair not in had]),
                member.classic is not None,
            )

    def _assigned(self, member_id: str) -> _Named:
        current = self._current.get(member_id)
        return () if current is None else self._named(_pairs(current.assigned))

    def _named(self, pairs: Sequence[tuple[bytes, int]]) -> _Named:
        return tuple([(self._names.name_of(topic_id), number) for topic_id, number in pairs])

    # State.

    def _apply(self, batch: Sequence[DurableRecord], at_ms: int) -> None:
        for record in batch:
            match record:
                case ConsumerMemberRecord():
                    self._count_stable(record.member_id, -1)
                    self._members[record.member_id] = record
                    self._count_stable(record.member_id, 1)
                    self._signs.setdefault(record.member_id, Signs(at_ms)).prove(at_ms)
                case ConsumerMemberTombstone():
                    self._count_stable(record.member_id, -1)
                    self._members.pop(record.member_id, None)
                    self._signs.pop(record.member_id, None)
                case CurrentRecord():
                    self._set_current(record.member_id, record)
                    if record.state == MemberState.UNREVOKED_PARTITIONS:
                        self._revoking.setdefault(record.member_id, at_ms)
                    else:
                        self._revoking.pop(record.member_id, None)
                case CurrentTombstone():
                    self._set_current(record.member_id, None)
                    self._revoking.pop(record.member_id, None)
                case EpochRecord():
                    self._epoch, self._metadata_hash = record.epoch, record.metadata_hash
                case TargetEpochRecord():
                    self._target_epoch = record.epoch

    def _count_stable(self, member_id: str, step: int) -> None:
        """If a member is stable or has left to restart, add `step` to `_stable` at its epoch."""
        current = self._current.get(member_id)
        if current is None or member_id not in self._members:
            return
        if current.state == MemberState.STABLE or current.epoch == LEFT_FOR_RESTART:
            self._stable[current.epoch] += step
            if not self._stable[current.epoch]:
                del self._stable[current.epoch]

    def _set_current(self, member_id: str, current: CurrentRecord | None) -> None:
        self._count_stable(member_id, -1)
        old = self._current.pop(member_id, None)
        if old is not None:
            for pair in self._named(_pairs(old.assigned)):
                if self._owners.get(pair) == member_id:
                    del self._owners[pair]
        if current is not None:
            self._current[member_id] = current
            self._owners |= dict.fromkeys(self._named(_pairs(current.assigned)), member_id)
            self._count_stable(member_id, 1)


def _restated(
    old: ConsumerMemberRecord, new: ConsumerMemberRecord, *, is_resolved: bool
) -> Iterator[Trigger]:
    """Yield a cause for a changed subscription, and one for a changed assignor. A new regular
    expression is the cause REGEX_RESOLVED if its topics are in the same batch (`is_resolved`).
    """
    if old.topic_names != new.topic_names:
        yield Trigger(TriggerKind.SUBSCRIPTION_CHANGED, ref(new))
    elif (old.topic_regex or "") != (new.topic_regex or ""):
        is_new = is_resolved and new.topic_regex
        kind = TriggerKind.REGEX_RESOLVED if is_new else TriggerKind.SUBSCRIPTION_CHANGED
        yield Trigger(kind, ref(new))
    if old.server_assignor != new.server_assignor:
        yield Trigger(
            TriggerKind.ASSIGNOR_CHANGED,
            ref(new),
            old_protocols=(old.server_assignor or "",),
            new_protocols=(new.server_assignor or "",),
        )


def _is_ambiguous(causes: Sequence[Trigger], epoch_count: int) -> bool:
    """Whether the batch has several operations with different causes, whose order is unknown.
    Changes of a single member count as one operation.
    """
    kinds = {trigger.kind for trigger in causes}
    members = {trigger.member for trigger in causes}
    is_one_step = epoch_count == 1 and len(members) == 1
    return len(causes) < epoch_count or (len(kinds) > 1 and not is_one_step)


def _pairs(partitions: Mapping[bytes, Mapping[int, int]]) -> list[tuple[bytes, int]]:
    return [(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers]

"""The membership of a consumer group: the broker assigns, and members reconcile one by one.

Provides the methods of every :class:`~kohort.groups.membership.Membership`, and the heartbeat.
Methods that may change something must run alone, with no append in progress; `answer_at_once`
answers other heartbeats at any time.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.classic.stored_cause import decode_cause, trigger_of
from kohort.groups.consumer import bridge, removal, sessions, validation
from kohort.groups.consumer.data import (
    ASSIGNING,
    RECONCILING,
    STABLE,
    ConsumerData,
    ConsumerSettings,
    ResolvedRegex,
)
from kohort.groups.consumer.describe import describe_member, describe_waiting, gauges
from kohort.groups.consumer.draft import Draft, tombstones
from kohort.groups.consumer.epochs import note_resolved, preferred_assignor
from kohort.groups.consumer.heartbeat import changes_nothing, heartbeat_steps
from kohort.groups.consumer.member import NOTHING, Member
from kohort.groups.consumer.migrate import (
    downgrade_cause,
    downgraded,
    is_last_consumer_gone,
    upgrade,
)
from kohort.groups.consumer.records import TargetEpochRecord
from kohort.groups.consumer.regexes import match_steps
from kohort.groups.consumer.removal import leave, leave_steps
from kohort.groups.consumer.requests import HeartbeatRequest
from kohort.groups.consumer.write import ConsumerWrite, started
from kohort.groups.description import DescribedMember, GroupDescription, WaitingFor
from kohort.groups.effects import Cancel, TimerKey
from kohort.groups.events import GroupRestored, MemberRef, TriggerKind
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.member_memory import MemberAccount
from kohort.groups.member_sessions import (
    HeartbeatResult,
    Rejected,
    Retry,
    extend,
    note_connection,
)
from kohort.groups.membership import OffsetRetention
from kohort.groups.outbox import Answers
from kohort.groups.records import DurableRecord, Generation, GroupRecord
from kohort.groups.requests import (
    CONSUMER,
    CommitRequest,
    Connection,
    JoinRequest,
    JoinResult,
    LeaveEntry,
    LeaveResult,
    Now,
    SyncRequest,
    Ticket,
)
from kohort.groups.steps import Steps, at_once
from kohort.groups.topics import Topics
from kohort.protocol.errors import NO_ERROR, ErrorCode

RESOLVE_INTERVAL_MS: Final = 10_000
"""The least time between two resolutions of a group's regular expressions."""


class ConsumerMembership:
    """Executes the members' requests of one consumer group, whose state is in `data`."""

    __slots__ = ("_group", "_new_classic", "_new_member_id", "data", "resolved_ms")

    kind = GroupKind.CONSUMER

    def __init__(
        self,
        group: Group,
        topics: Topics,
        read_settings: Callable[[str], ConsumerSettings],
        account: MemberAccount,
        *,
        new_classic: Callable[[Group], ClassicMembership],
        new_member_id: Callable[[], str],
    ) -> None:
        """`read_settings` returns the settings of a group by its id; `new_classic` creates the
        membership that replaces this one when its last consumer has left. Only a weak reference to
        `group` is kept.
        """
        self._group = weakref.ref(group)
        self._new_classic = new_classic
        self._new_member_id = new_member_id
        self.data = ConsumerData(group.group_id, group.outbox, topics, read_settings, account)
        self.resolved_ms: int | None = None
        """When regular expressions were last resolved; monotonic, None if never."""

    # Requests.

    def answer_at_once(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResult | None:
        """Answer a heartbeat that changes nothing; None if it must be queued as a command, because
        it may change the group. May be called while an append is in progress.
        """
        member = changes_nothing(self.data, request)
        if member is None or self.needs_resolution(now_ms):
            return None
        data = self.data
        # Read the settings only once: nearly all requests of a group take this path.
        settings = data.settings
        deadline_ms = now_ms + settings.session_timeout_ms
        extend(data.sessions, data.outbox, member.member_id, deadline_ms)
        note_connection(data.sessions, member.member_id, request.connection)
        return HeartbeatResult(
            member_id=member.member_id,
            epoch=member.epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
        )

    def heartbeat(
        self,
        request: HeartbeatRequest,
        ticket: Ticket,
        now: Now,
        *,
        begins: Group | None = None,
        shares_append: bool = False,
    ) -> Steps[None]:
        """Execute a heartbeat whose fields `check_request` has accepted. Answer: HeartbeatResult.

        Args:
            request: the heartbeat.
            ticket: answered when its changes are durable.
            now: the time of the step.
            begins: the group, if this heartbeat makes it a consumer group; its classic members, if
            it has any, are taken over.
            shares_append: whether more heartbeats may follow before the changes are appended; see
                `Outbox.shared`.
        """
        outbox = self.data.outbox
        shared = outbox.shared
        first_records: tuple[DurableRecord, ...] = ()
        joined_as: TriggerKind | None = None
        try:
            if begins is not None:
                first_records, joined_as = self._take_over(begins)
            if shared is None:
                draft = Draft(self.data, now.wall_ms)
            else:
                assert isinstance(shared, ConsumerWrite)
                draft = shared.draft
                draft.begin(now.wall_ms)
            if request.epoch < 0:
                result = yield from leave(draft, request)
            else:
                result = yield from heartbeat_steps(draft, request, now, joined_as)
        except Rejected as rejected:
            outbox.reply(ticket, rejected.result)
            if begins is not None:
                self.close()
            elif request.epoch >= 0:
                self.note_refused(request, rejected.result.error, rejected.refusal, now)
            return
        note_connection(self.data.sessions, request.member_id, request.connection)
        answers = Answers(ticket, result, HeartbeatResult)
        if begins is not None:
            write = ConsumerWrite(draft, (begins, self), first_records)
            write.add(answers)
            yield from write.prepare()
            outbox.stage(write)
        elif shared is not None:
            assert isinstance(shared, ConsumerWrite)
            shared.add(answers)
            if draft.is_full:
                yield from shared.prepare()
                outbox.stage_shared()
        else:
            yield from self._store(draft, answers, now, shares_append=shares_append)

    def note_refused(
        self, request: HeartbeatRequest | JoinRequest, error: ErrorCode, reason: str, now: Now
    ) -> None:
        """Record in the group's history that a client was refused; do nothing if `reason` is empty.
        May be called while an append is in progress.
        """
        client = MemberRef("", request.instance_id, request.client_id, request.client_host)
        self.data.refusals.note_client(self.data.outbox, client, error, reason, now.ms)

    def _take_over(self, group: Group) -> tuple[tuple[DurableRecord, ...], TriggerKind | None]:
        """Take over the members of a classic group, if it has any, and continue from its
        generation, so that a group's history never repeats a generation. Returns the records that
        replace the group's, and UPGRADED as the cause if members were taken over.
        """
        previous = group.membership
        if previous is None:
            return (group.tombstones() if group.offsets.count else ()), None
        data = self.data
        records: tuple[DurableRecord, ...] = group.tombstones()
        cause: TriggerKind | None = None
        if isinstance(previous, ClassicMembership) and not previous.is_empty:
            records += upgrade(data, previous)
            cause = TriggerKind.UPGRADED
        else:
            data.epoch = data.target_epoch = max(data.epoch, previous.describe().generation)
        return records, cause

    def _store(
        self, draft: Draft, answers: Answers | None, now: Now, *, shares_append: bool = False
    ) -> Steps[None]:
        """Append the changes collected in `draft`, and send the answers when these are durable;
        without changes, send the answers at once.
        """
        data = self.data
        outbox = data.outbox
        group = self._group()
        if group is not None and is_last_consumer_gone(draft, group.config.max_size):
            classic, record = downgraded(draft, lambda: self._new_classic(group), now)
            if draft.causes:
                classic.rebalances_because = downgrade_cause(draft)
            group.convert(classic, (record,), answers, draft.events)
            return
        if not draft.is_empty:
            write = ConsumerWrite(draft)
            write.add(answers)
            # In a group with classic members, each step may be the last one before a downgrade.
            if shares_append and data.shares_appends and not (draft.is_full or data.classic_count):
                outbox.shared = write
            else:
                yield from write.prepare()
                outbox.stage(write)
            return
        for event in draft.events:
            outbox.note(event)
        data.checked_version = draft.checked_version
        data.known_topics = draft.known_topics
        if draft.heartbeat_of is not None:
            sessions.restart(data, data.members[draft.heartbeat_of], now.ms)
        if draft.classic_joined is not None:
            bridge.note_joined(data, data.members[draft.classic_joined], now)
        if answers is not None:
            answers.give(outbox, NO_ERROR)

    # Requests of classic members.

    def join(self, request: JoinRequest, ticket: Ticket, now: Now) -> Steps[None]:
        """Execute a JoinGroup of a classic member. Answer: JoinResult."""
        draft = Draft(self.data, now.wall_ms)
        try:
            result = yield from bridge.join_steps(draft, request, now, self._new_member_id)
        except bridge.JoinRefused as refused:
            self.data.outbox.reply(ticket, refused.result)
            self.note_refused(request, refused.result.error, refused.reason, now)
            return
        except Rejected as rejected:
            error = rejected.result.error
            self.data.outbox.reply(ticket, JoinResult(error, request.member_id))
            self.note_refused(request, error, rejected.refusal, now)
            return
        member_id = result.member_id
        answers = Answers(ticket, result, lambda error: JoinResult(error, member_id))
        yield from self._store(draft, answers, now)

    def sync(self, request: SyncRequest, ticket: Ticket, now: Now) -> None:
        """Execute a SyncGroup of a classic member. Answer: SyncResult."""
        self.data.outbox.reply(ticket, bridge.sync(self.data, request, now))

    def heartbeat_of_classic(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        connection: Connection | None = None,
    ) -> ErrorCode:
        """Execute a Heartbeat of a classic member; may be called while an append is in progress."""
        return bridge.heartbeat(self.data, member_id, instance_id, generation, now_ms, connection)

    def leave_steps(self, entries: Sequence[LeaveEntry], ticket: Ticket, now: Now) -> Steps[None]:
        """Execute a LeaveGroup, of members of either protocol. Answer: LeaveResult."""
        draft = Draft(self.data, now.wall_ms)
        result = yield from leave_steps(draft, entries)
        yield from self._store(draft, Answers(ticket, result, LeaveResult), now)

    # Regular expressions.

    def needs_resolution(self, now_ms: int) -> bool:
        """Whether `resolve` must be executed, as a command of its own."""
        data = self.data
        if not data.regex_subscribers:
            return False
        if self.resolved_ms is None or not data.regexes:
            # As in Kafka, a group without matches does not wait for the interval.
            return True
        elapsed_ms = now_ms - self.resolved_ms
        if elapsed_ms < RESOLVE_INTERVAL_MS:
            return False
        if elapsed_ms >= data.settings.regex_refresh_interval_ms:
            return True
        version = data.topics.version
        for regex in data.regex_subscribers:
            resolved = data.regexes.get(regex)
            if resolved is None or resolved.topics_version != version:
                return True
        return False

    def resolve(self, may_describe: Callable[[str], bool], now: Now) -> Steps[None]:
        """Match the group's regular expressions against all topics that `may_describe` allows."""
        data = self.data
        self.resolved_ms = now.ms
        version = data.topics.version
        names = [name for name in data.topics.names() if may_describe(name)]
        matches = yield from match_steps(list(data.regex_subscribers), names)
        draft = Draft(data, now.wall_ms)
        resolved = {
            regex: ResolvedRegex(topics, version, now.wall_ms) for regex, topics in matches.items()
        }
        is_bumped = yield from note_resolved(draft, resolved)
        if is_bumped or any(regex not in data.regexes for regex in resolved):
            write = ConsumerWrite(draft)
            write.add()
            data.outbox.stage(write)
        else:
            data.regexes.update(resolved)

    # Offsets.

    def validate_commit(
        self, request: CommitRequest, now: Now, *, transactional: bool
    ) -> ErrorCode:
        del now
        return validation.validate_commit(self.data, request, transactional=transactional)

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return validation.validate_fetch(self.data, member_id, member_epoch)

    def subscribed_topics(self) -> frozenset[str]:
        return self.data.subscribed_topics()

    def offset_retention(self) -> OffsetRetention:
        """Return the rule that a topic's offsets may expire once no member subscribes to it."""
        return OffsetRetention(self.data.subscribed_topics())

    # Deleted topics.

    has_lost_topics = False

    def forget_topics(self, now: Now) -> None:
        """Do nothing: only a share group has state of partitions to delete here."""

    # Records.

    def restore(
        self, records: Sequence[DurableRecord], now: Now, earlier: Iterable[Generation]
    ) -> None:
        data = self.data
        generations = [*earlier]
        for record in records:
            if isinstance(record, TargetEpochRecord):
                generations.append(record)
            if not isinstance(record, GroupRecord):
                data.apply(record)
        for member in sorted(data.members.values(), key=lambda member: member.epoch):
            self._claim(member)
        # The epoch of a member that joined without topics may be above the stored group epoch.
        data.epoch = max(
            data.epoch, data.target_epoch, *(m.epoch for m in data.members.values()), 0
        )
        data.since_ms = now.wall_ms
        data.outbox.note(GroupRestored(data.epoch, CONSUMER, None, {}, tuple(generations)))
        if data.epoch == data.target_epoch:
            data.begun = None
        else:
            self._go_on_rebalancing()

    def _go_on_rebalancing(self) -> None:
        """Publish the start of a restored rebalance whose target has not been computed."""
        data = self.data
        try:
            begun = None if data.begun is None else decode_cause(data.begun)
        except ValueError:
            begun = None
        if begun is not None:
            event = started(Draft(data), trigger_of(begun), begun.previous_state)
            lost_count = data.epoch - data.target_epoch - 1
            data.outbox.note(event._replace(causes_lost=lost_count))

    def _claim(self, member: Member) -> None:
        """Make a member the owner of its partitions. If the log assigns a partition to two members,
        the one with the higher epoch keeps it, and the other must rejoin.
        """
        data = self.data
        for partition in (*member.assigned, *member.pending):
            owner = data.owners.get(partition)
            if owner is not None and owner != member.member_id:
                data.put_member(data.members[owner].rejoining(owner)._replace(assigned=NOTHING))
            data.owners[partition] = member.member_id

    def start(self, now: Now) -> None:
        """Start all session and revocation timers with their full duration."""
        data = self.data
        for member in data.members.values():
            sessions.restart(data, member, now.ms)
            sessions.follow_revocation(data, None, member, now)

    def tombstones(self) -> tuple[DurableRecord, ...]:
        return tombstones(self.data)

    # Time, and the end.

    def on_deadlines(self, keys: Iterable[TimerKey], now: Now) -> None:
        keys = tuple(keys)
        draft = removal.on_deadlines(self.data, keys, now)
        if not draft.is_empty:
            retry = Retry(self.data.sessions, self.data.deadlines, keys, now)
            at_once(self._store(draft, retry, now))

    def end(self, error: ErrorCode, now: Now) -> None:
        del error, now
        self.data.is_dead = True

    def close(self) -> None:
        data = self.data
        for member_id in list(data.sessions):
            sessions.forget(data, member_id)
        for key in list(data.deadlines):
            del data.deadlines[key]
            data.outbox.emit(Cancel(key))
        data.sessions.clear()
        sizes = [member.size for member in data.members.values()]
        data.account.add(-len(sizes), -sum(sizes))
        data.account = MemberAccount()

    # Reads.

    @property
    def is_empty(self) -> bool:
        return not self.data.members

    @property
    def is_unused(self) -> bool:
        return not self.data.members

    def gauges(self) -> Mapping[str, int]:
        return gauges(self.data)

    def describe(self) -> GroupDescription:
        data = self.data
        state = data.state
        return GroupDescription(
            data.group_id,
            GroupKind.CONSUMER,
            state,
            CONSUMER,
            data.epoch,
            preferred_assignor(Draft(data), data.votes),
            since_ms=data.since_ms,
            member_count=len(data.members),
            is_stable=state == STABLE,
            is_rebalancing=state in {ASSIGNING, RECONCILING},
        )

    def describe_members(self, count_max: int | None = None) -> Sequence[DescribedMember]:
        members = islice(self.data.members.values(), count_max)
        return [describe_member(self.data, member) for member in members]

    def describe_waiting(self) -> WaitingFor | None:
        return describe_waiting(self.data)

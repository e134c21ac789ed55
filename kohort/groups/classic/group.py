"""A classic group: events in, effects out, time as an argument.

This is the complete interface for a shell. Every method is one atomic step, except `leave_steps`;
after one or several of them `take_effects` says what to do. Nothing here waits, keeps a clock or
uses randomness.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kohort.groups.classic import (
    durable,
    expiry,
    join,
    leave,
    rebalance,
    sync,
)
from kohort.groups.classic.commit import commit_error
from kohort.groups.classic.data import GroupData, NewMemberId
from kohort.groups.classic.member import Member
from kohort.groups.classic.member_memory import MemberMemory
from kohort.groups.classic.protocols import GrownSince, PartitionCount
from kohort.groups.classic.timers import JOIN_TIMER, SYNC_TIMER
from kohort.groups.classic.unused_ids import UnusedIds
from kohort.groups.config import GroupConfig
from kohort.groups.effects import (
    Effect,
    Replies,
    Reply,
    TimerKey,
)
from kohort.groups.events import CommitFenced, GroupRestored, Trigger, TriggerKind
from kohort.groups.kinds import GroupKind
from kohort.groups.offsets import commit as offsets
from kohort.groups.offsets import pending, removal
from kohort.groups.records import DurableRecord, GroupRecord
from kohort.groups.requests import (
    CommitRequest,
    CommitResult,
    CommittedOffset,
    DescribedMember,
    EnclosingTransaction,
    GroupDescription,
    JoinRequest,
    JoinResult,
    LeaveEntry,
    Now,
    SyncRequest,
    SyncResult,
    Ticket,
    TopicPartition,
)
from kohort.groups.states import GroupState
from kohort.groups.steps import Steps, at_once
from kohort.protocol.errors import NO_ERROR, ErrorCode
from kohort.protocol.types import ZERO_UUID

_PREPARING_REBALANCE: Final = GroupState.PREPARING_REBALANCE
UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE

_APPEND_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UNAVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: UNAVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: UNAVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_RECORD: ErrorCode.UNKNOWN_SERVER_ERROR,
}

_BLAME_THE_RECORDS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_FETCH_SIZE,
        ErrorCode.INVALID_RECORD,
    }
)
"""Errors of an append that were caused by one of its writes, and need not affect the others."""


def client_error(error: ErrorCode) -> ErrorCode:
    """Return the error that clients get for a failed append: one that they can handle."""
    return _APPEND_ERRORS.get(error, error)


class ClassicGroup:
    """A group. Steps take effect at once, except for what must be durable first;
    see `GroupData`.
    """

    __slots__ = ("data", "group_id", "offsets", "outbox", "roster")

    kind = GroupKind.CLASSIC

    def __init__(
        self,
        group_id: str,
        config: GroupConfig,
        *,
        new_member_id: NewMemberId,
        partition_count: PartitionCount | None = None,
        grown_since: GrownSince | None = None,
        unused_ids: UnusedIds | None = None,
        member_memory: MemberMemory | None = None,
    ) -> None:
        """Takes the arguments of `GroupData`."""
        self.data = data = GroupData(
            group_id,
            config,
            new_member_id=new_member_id,
            partition_count=partition_count,
            grown_since=grown_since,
            unused_ids=unused_ids,
            member_memory=member_memory,
        )
        self.group_id = group_id
        self.roster = data.roster
        self.offsets = data.offsets
        self.outbox = data.outbox

    @property
    def config(self) -> GroupConfig:
        return self.data.config

    @property
    def state(self) -> GroupState:
        return self.data.state

    @property
    def state_timestamp_ms(self) -> int:
        """Wall-clock time; -1 if the group has never changed state."""
        return self.data.state_timestamp_ms

    @property
    def generation(self) -> int:
        return self.data.generation

    @property
    def protocol_type(self) -> str | None:
        """The group's protocol type; None if only offsets were committed to it ("simple")."""
        return self.data.protocol_type

    @property
    def protocol_name(self) -> str | None:
        return self.data.protocol_name

    @property
    def phase(self) -> str:
        """What has to happen next, as named by GET /groups."""
        data = self.data
        if data.state is GroupState.PREPARING_REBALANCE:
            return "join" if data.initial is None else "initial_delay"
        if data.state is GroupState.COMPLETING_REBALANCE:
            return "store" if data.assignment_on_its_way == data.generation else "assign"
        return "sync"

    @property
    def has_unused_ids(self) -> bool:
        """Whether a client was given an id that it has not joined with yet."""
        return bool(self.roster.pending)

    def subscribed_topics(self) -> frozenset[str] | None:
        """See `GroupData.subscribed_topics`."""
        return self.data.subscribed_topics()

    # Requests.

    def join(self, request: JoinRequest, ticket: Ticket, now: Now) -> None:
        """Execute a JoinGroup that `join.check_request` has accepted. Answer: JoinResult."""
        is_fresh = (
            self.state is GroupState.EMPTY and not self.generation and not self.data.is_stored
        )
        join.join(self.data, request, ticket, now)
        if is_fresh:
            durable.store_created(self.data, now)

    def sync(self, request: SyncRequest, ticket: Ticket, now: Now) -> None:
        """Execute a SyncGroup. Answer: SyncResult."""
        sync.sync(self.data, request, ticket, now)

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Execute a Heartbeat; may be called while an append is in progress.

        Normally it has no effects: it moves the end of the session, not its timer.
        """
        found = self.data.find_member_of(member_id, instance_id, generation)
        if not isinstance(found, Member):
            return found
        self.data.start_session(found, now_ms)
        if self.state is _PREPARING_REBALANCE:
            self.data.request_rejoin(found)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return NO_ERROR

    def leave(self, entries: Sequence[LeaveEntry], ticket: Ticket, now: Now) -> None:
        """Execute a LeaveGroup. Answer: LeaveResult."""
        at_once(self.leave_steps(entries, ticket, now))

    def leave_steps(self, entries: Sequence[LeaveEntry], ticket: Ticket, now: Now) -> Steps[None]:
        """Execute a LeaveGroup as `leave` does, in steps. Until the last step only heartbeats and
        reads may be interleaved; effects may be taken after each step.
        """
        return leave.leave_steps(self.data, entries, ticket, now)

    def commit(self, request: CommitRequest, ticket: Ticket, now: Now) -> None:
        """Execute an OffsetCommit. Answer: CommitResult."""
        error = commit_error(self.data, request, now, transactional=False)
        if error:
            self.outbox.reply(ticket, CommitResult((error,) * len(request.offsets)))
        else:
            offsets.store(self, request, ticket, now)

    def commit_in_transaction(
        self, request: CommitRequest, transaction: EnclosingTransaction, ticket: Ticket, now: Now
    ) -> None:
        """Execute a TxnOffsetCommit. Answer: CommitResult."""
        error = commit_error(self.data, request, now, transactional=True)
        if error:
            self.outbox.note(CommitFenced(error))
            self.outbox.reply(ticket, CommitResult((error,) * len(request.offsets)))
        else:
            pending.store(self, request, transaction, ticket, now)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction marker that is in the log. May be called at any time."""
        pending.end_transaction(self, producer_id, commit=commit)

    # Removal. Each operation needs a step of its own, with no append in progress.

    def delete(self, ticket: Ticket) -> None:
        """Delete the group (DeleteGroups). Answer: ErrorCode."""
        removal.delete_group(self, ticket)

    def delete_offsets(self, partitions: Sequence[TopicPartition], ticket: Ticket) -> None:
        """Execute an OffsetDelete. Answer: DeleteOffsetsResult."""
        removal.delete_offsets(self, partitions, ticket)

    def forget_topics(self, topics: Mapping[str, bytes | None]) -> None:
        """Drop offsets of deleted topics; each name with the id of the topic that has it now."""
        removal.forget_topics(self, topics)

    def expire_offsets(self, now: Now) -> None:
        """Drop expired offsets; called by the sweep."""
        removal.expire(self, now)

    def drop_unused_id(self, member_id: str, now: Now) -> None:
        """Forget a handed-out id, because there are too many in all groups. Remove the group if it
        has nothing else: that is most of the memory. To be called while no append is in progress.
        """
        if self.state is GroupState.DEAD:
            return
        join.drop_id(self.data, member_id, now)
        if not (self.member_count or self.has_unused_ids or self.offsets.count):
            removal.expire(self, now)

    def close_accounts(self) -> None:
        """Take the members and the handed-out ids off the broker's accounts: the group is dropped
        with them.
        """
        for member_id in self.roster.pending:
            self.data.unused_ids.discard(member_id)
        self.roster.close_account()

    def end(self, now: Now) -> None:
        """Move to DEAD: the group's tombstone is durable."""
        self.data.move_to(GroupState.DEAD, now)

    # Reports from the shell.

    def on_deadlines(self, keys: Iterable[TimerKey], now: Now) -> None:
        """Handle timers set with Schedule that have expired in one turn."""
        expiry.on_deadlines(self.data, keys, now)

    def on_appended(self, now: Now) -> None:
        """Process the success of the last Append."""
        writes, self.outbox.in_flight = self.outbox.in_flight, []
        for write in writes:
            write.on_durable(now)

    def on_append_failed(self, error: ErrorCode, now: Now) -> None:
        """Process the failure of the last Append, whose records will never be in the log."""
        if error in _BLAME_THE_RECORDS and self.outbox.append_singly():
            return
        for write in self.outbox.finish_append():
            write.on_failed(client_error(error), now)

    def on_append_late(self) -> None:
        """Answer waiting clients although the result of the append is still unknown."""
        for write in self.outbox.unfinished:
            write.answer_early(UNAVAILABLE)

    @property
    def has_effects(self) -> bool:
        """Whether there are effects to take."""
        return self.outbox.has_effects

    def take_effects(self) -> list[Effect]:
        """Return the effects of the steps since the last call, in order; an Append comes last. Not
        to be called while an append is in progress; see `Outbox.take_ready_effects`.
        """
        return self.outbox.collect()

    # Loading and unloading.

    def restore(
        self, records: Iterable[DurableRecord], now: Now, earlier: Iterable[GroupRecord] = ()
    ) -> None:
        """Restore the group from its log; call it on a fresh group, with the last record of each
        key. `earlier` are previous generations, for observers.

        All sessions restart. Volatile state is lost: parked requests, unused ids, and a rebalance
        whose assignment had not been stored.
        """
        generations = [*earlier]
        for record in records:
            durable.apply(self.data, record, now)
            if isinstance(record, GroupRecord):
                generations.append(record)
        assignments = {member.member_id: member.assignment for member in self.roster}
        leader = self.roster.leader_id
        known = tuple(generations)
        self.outbox.note(
            GroupRestored(self.generation, self.protocol_type, leader, assignments, known)
        )
        self.data.start_sessions(now.ms)
        if len(self.roster) > self.config.max_size:
            rebalance.begin(self.data, Trigger(TriggerKind.OVER_CAPACITY), now)
            rebalance.proceed(self.data, now)

    def unload(self, error: ErrorCode, now: Now) -> None:
        """Hand the group over to its next coordinator: it is Dead, parked requests are answered
        `error`.

        Requests whose append is in progress are answered `error` too, whatever its result.
        """
        for write in self.outbox.unfinished:
            write.answer_early(error)
        replies: list[Reply] = []
        for member in self.roster:
            ticket = self.roster.unpark_join(member)
            if ticket is not None:
                replies.append(Reply(ticket, JoinResult(error, member.member_id)))
            ticket, member.sync_ticket = member.sync_ticket, None
            if ticket is not None:
                replies.append(Reply(ticket, SyncResult(error)))
        self.outbox.emit(Replies(iter(replies), len(replies)))
        if self.state is not GroupState.DEAD:
            self.data.move_to(GroupState.DEAD, now)

    # Reads; may be called at any time.

    def committed(
        self, topic: str, partition: int, topic_id: bytes = ZERO_UUID
    ) -> CommittedOffset | None:
        """Return the durable offset of a partition, if it belongs to the topic with this id."""
        found = None if self.state is GroupState.DEAD else self.offsets.get(topic, partition)
        return found if found is not None and found.is_of(topic_id) else None

    @property
    def member_count(self) -> int:
        return len(self.roster)

    @property
    def unused_id_count(self) -> int:
        """Ids that were handed out and not used to join yet."""
        return len(self.roster.pending)

    @property
    def parked_join_count(self) -> int:
        """JoinGroup requests that wait for their response."""
        return self.roster.parked_joins

    @property
    def parked_sync_count(self) -> int:
        """SyncGroup requests that wait for their response."""
        if self.state is not GroupState.COMPLETING_REBALANCE:
            return 0
        return sum(member.sync_ticket is not None for member in self.roster)

    @property
    def size(self) -> int:
        """Number of members and offsets, which determines the cost of work on the whole group."""
        return len(self.roster) + self.offsets.count

    def describe(self) -> GroupDescription:
        """The group as DescribeGroups shows it: assignor and metadata only while Stable."""
        name = self.protocol_name if self.state is GroupState.STABLE else None
        return GroupDescription(
            state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_name=name or "",
            members=tuple(
                DescribedMember(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=b"" if name is None else member.metadata(name),
                    assignment=member.assignment,
                )
                for member in self.roster
            ),
        )

    def waiting_for(self) -> tuple[tuple[str, ...], int | None]:
        """Ids that the group is waiting for, and until when (monotonic).

        Members and unused ids in the join phase, members in the sync phase; otherwise no ids and
        None. During the initial delay it waits only for time.
        """
        if self.state is GroupState.PREPARING_REBALANCE:
            missing = [m.member_id for m in self.roster if m.join_ticket is None]
            return (*missing, *self.roster.pending), self.data.deadlines.get(JOIN_TIMER)
        if self.data.pending_sync:
            return tuple(self.data.pending_sync), self.data.deadlines.get(SYNC_TIMER)
        return (), None

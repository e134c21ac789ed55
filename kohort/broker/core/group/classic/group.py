"""A classic group: events in, effects out, time as an argument.

This is the whole of what a shell sees. Every method is one atomic step, but for `leave_steps`;
after one or several of them `take_effects` tells what to do. Nothing here waits, keeps a clock or
makes anything random.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kohort.broker.core.group.classic import durable, expiry, join, leave, rebalance, sync
from kohort.broker.core.group.classic.member import Member
from kohort.broker.core.group.classic.state import GroupBase
from kohort.broker.core.group.effects import (
    JOIN_TIMER,
    SYNC_TIMER,
    Effect,
    Replies,
    Reply,
    TimerKey,
)
from kohort.broker.core.group.events import GroupRestored, Trigger, TriggerKind
from kohort.broker.core.group.offsets import commit as offsets
from kohort.broker.core.group.offsets import removal
from kohort.broker.core.group.records import DurableRecord, GroupRecord
from kohort.broker.core.group.requests import (
    CommitRequest,
    CommittedOffset,
    DescribedMember,
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
from kohort.broker.core.group.states import GroupState
from kohort.broker.core.steps import Steps, at_once
from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID

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
"""Errors of an append that others in it need not share."""


def client_error(error: ErrorCode) -> ErrorCode:
    """What a client is told of an append that failed with `error`: what it can act upon."""
    return _APPEND_ERRORS.get(error, error)


class ClassicGroup(GroupBase):
    """Steps take effect at once, except for what must be durable first; see `GroupBase`."""

    __slots__ = ()

    # Requests.

    def join(self, request: JoinRequest, ticket: Ticket, now: Now) -> None:
        """JoinGroup, of a request that `join.check_request` has passed. Answer: JoinResult."""
        is_fresh = self.state is GroupState.EMPTY and not self.generation and not self.is_stored
        join.join(self, request, ticket, now)
        if is_fresh:
            durable.store_created(self, now)

    def sync(self, request: SyncRequest, ticket: Ticket, now: Now) -> None:
        """SyncGroup. Answer: SyncResult."""
        sync.sync(self, request, ticket, now)

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Heartbeat, answered on the spot; may be called while an append is under way.

        In the ordinary case it has no effects: it moves the end of the session, not its timer.
        """
        found = self.find_member_of(member_id, instance_id, generation)
        if not isinstance(found, Member):
            return found
        self.start_session(found, now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            self.tell_to_rejoin(found)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, entries: Sequence[LeaveEntry], ticket: Ticket, now: Now) -> None:
        """LeaveGroup. Answer: LeaveResult."""
        at_once(self.leave_steps(entries, ticket, now))

    def leave_steps(self, entries: Sequence[LeaveEntry], ticket: Ticket, now: Now) -> Steps[None]:
        """As `leave`, in steps. Until the last one nothing but heartbeats and reads may come in
        between; effects may be taken after each.
        """
        return leave.leave_steps(self, entries, ticket, now)

    def commit(self, request: CommitRequest, ticket: Ticket, now: Now) -> None:
        """OffsetCommit. Answer: CommitResult."""
        offsets.commit(self, request, ticket, now)

    def commit_in_transaction(
        self, request: CommitRequest, producer_id: int, ticket: Ticket, now: Now
    ) -> None:
        """TxnOffsetCommit of a producer with an open transaction. Answer: CommitResult."""
        offsets.commit_in_transaction(self, request, producer_id, ticket, now)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The producer's transaction has ended, durably."""
        self.offsets.end_transaction(producer_id, commit=commit)

    # Removal. Each wants a step of its own, with nothing on its way to the log.

    def delete(self, ticket: Ticket) -> None:
        """DeleteGroups. Answer: ErrorCode."""
        removal.delete_group(self, ticket)

    def delete_offsets(self, partitions: Sequence[TopicPartition], ticket: Ticket) -> None:
        """OffsetDelete. Answer: DeleteOffsetsResult."""
        removal.delete_offsets(self, partitions, ticket)

    def forget_topics(self, topics: Mapping[str, bytes | None]) -> None:
        """Topics were deleted; each with the id of the topic that has its name now."""
        removal.forget_topics(self, topics)

    def expire_offsets(self, now: Now) -> None:
        """The sweep."""
        removal.expire(self, now)

    # What the shell reports.

    def on_deadlines(self, keys: Iterable[TimerKey], now: Now) -> None:
        """Deadlines that were asked for with Schedule have come, all in one turn."""
        expiry.on_deadlines(self, keys, now)

    def on_appended(self, now: Now) -> None:
        """The records of the last Append are durable."""
        for write in self.finish_append():
            write.on_durable(now)

    def on_append_failed(self, error: ErrorCode, now: Now) -> None:
        """They are not, and never will be: `error` says why."""
        if error in _BLAME_THE_RECORDS and self.append_singly():
            return
        for write in self.finish_append():
            write.on_failed(client_error(error), now)

    def on_append_late(self) -> None:
        """The outcome is still open, but clients have waited for it long enough."""
        for write in self.in_flight:
            write.answer_early(UNAVAILABLE)

    def take_effects(self) -> list[Effect]:
        """What the steps since the last call ask for, in order; an Append comes last."""
        return self.collect_effects()

    # Beginning and end.

    def restore(
        self, records: Iterable[DurableRecord], now: Now, earlier: Iterable[GroupRecord] = ()
    ) -> None:
        """Become what the log says; call it on a fresh group, with the last record of each key.
        `earlier` are generations that came before, for those who are told.

        All sessions start anew. What was in nobody's hands but ours is lost: parked requests,
        unused ids, and a rebalance whose assignment had not been stored.
        """
        generations = [*earlier]
        for record in records:
            durable.apply(self, record, now)
            if isinstance(record, GroupRecord):
                generations.append(record)
        assignments = {member.member_id: member.assignment for member in self.roster}
        leader = self.roster.leader_id
        known = tuple(generations)
        self.note(GroupRestored(self.generation, self.protocol_type, leader, assignments, known))
        self.start_sessions(now.ms)
        if len(self.roster) > self.config.max_size:
            rebalance.begin(self, Trigger(TriggerKind.OVER_CAPACITY), now)
            rebalance.proceed(self, now)

    def unload(self, error: ErrorCode, now: Now) -> None:
        """Leave the group to whoever loads it next: it is Dead, and who is parked is told `error`.

        What is on its way to the log is answered with `error` too, whatever becomes of it.
        """
        for write in self.in_flight:
            write.answer_early(error)
        replies: list[Reply] = []
        for member in self.roster:
            ticket = self.roster.unpark_join(member)
            if ticket is not None:
                replies.append(Reply(ticket, JoinResult(error, member.member_id)))
            ticket, member.sync_ticket = member.sync_ticket, None
            if ticket is not None:
                replies.append(Reply(ticket, SyncResult(error)))
        self.emit(Replies(iter(replies), len(replies)))
        if self.state is not GroupState.DEAD:
            self.move_to(GroupState.DEAD, now)

    # Reads; may be called at any time.

    def committed(
        self, topic: str, partition: int, topic_id: bytes = ZERO_UUID
    ) -> CommittedOffset | None:
        """The durable position of a partition, if it is one of the topic with this id."""
        found = None if self.state is GroupState.DEAD else self.offsets.get(topic, partition)
        return found if found is not None and found.is_of(topic_id) else None

    @property
    def size(self) -> int:
        """Members and positions: what work on the whole group grows with."""
        return len(self.roster) + self.offsets.count

    def describe(self) -> GroupDescription:
        """As DescribeGroups shows it: assignor and metadata only while the assignment holds."""
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
        """Ids of whom the group waits for just now, and until when (monotonic).

        Members and unused ids in the join phase, members in the sync phase; nobody and None
        otherwise. During the initial delay it waits for time only.
        """
        if self.state is GroupState.PREPARING_REBALANCE:
            missing = [m.member_id for m in self.roster if m.join_ticket is None]
            return (*missing, *self.roster.pending), self.deadlines.get(JOIN_TIMER)
        if self.pending_sync:
            return tuple(self.pending_sync), self.deadlines.get(SYNC_TIMER)
        return (), None

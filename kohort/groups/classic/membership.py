"""The membership of a classic group: one member, the leader, assigns.

This is the interface for callers: the methods of every
:class:`~kohort.groups.membership.Membership`, and the requests of the classic protocol. Every
method is one atomic step, except `leave_steps`. Changes take effect at once, unless they must be
durable first; see :mod:`kohort.groups.classic.data`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from kohort.groups.classic import durable, expiry, join, leave, rebalance, sync
from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.member import JOIN_TIMER, SYNC_TIMER, Member
from kohort.groups.classic.states import ClassicState
from kohort.groups.description import DescribedMember, GroupDescription, WaitingFor
from kohort.groups.effects import Replies, Reply, TimerKey
from kohort.groups.events import GroupRestored, Trigger, TriggerKind
from kohort.groups.kinds import GroupKind
from kohort.groups.membership import OffsetRetention
from kohort.groups.records import DurableRecord, Generation, GroupRecord, GroupTombstone
from kohort.groups.requests import (
    CONSUMER,
    CommitRequest,
    Connection,
    JoinRequest,
    JoinResult,
    LeaveEntry,
    Now,
    SyncRequest,
    SyncResult,
    Ticket,
)
from kohort.groups.steps import Steps, at_once
from kohort.protocol.errors import NO_ERROR, ErrorCode

_EMPTY: Final = ClassicState.EMPTY
_PREPARING_REBALANCE: Final = ClassicState.PREPARING_REBALANCE
_COMPLETING_REBALANCE: Final = ClassicState.COMPLETING_REBALANCE
_STABLE: Final = ClassicState.STABLE
_DEAD: Final = ClassicState.DEAD

PARKED_JOINS: Final = "parked_joins"
"""Gauge: JoinGroup requests that wait for their response."""
PARKED_SYNCS: Final = "parked_syncs"
"""Gauge: SyncGroup requests that wait for their response."""
UNUSED_IDS: Final = "unused_ids"
"""Gauge: pending members, whose ids were handed out and not used to join yet (KIP-394)."""


class ClassicMembership:
    """The membership of one classic group; its state is in `data`."""

    __slots__ = ("data", "rebalances_because", "roster")

    kind = GroupKind.CLASSIC

    def __init__(self, data: ClassicData) -> None:
        self.data = data
        self.roster = data.roster
        self.rebalances_because: Trigger | None = None
        """The trigger of a rebalance that begins when the membership starts, or None."""

    # Requests of the classic protocol.

    def join(self, request: JoinRequest, ticket: Ticket, now: Now) -> None:
        """Execute a JoinGroup that `join.check_request` has accepted. Answer: JoinResult."""
        data = self.data
        is_fresh = data.state is _EMPTY and not data.generation and not data.is_stored
        join.join(data, request, ticket, now)
        if is_fresh:
            durable.store_created(data, now)

    def sync(self, request: SyncRequest, ticket: Ticket, now: Now) -> None:
        """Execute a SyncGroup. Answer: SyncResult."""
        sync.sync(self.data, request, ticket, now)

    def answer_sync(self, request: SyncRequest) -> SyncResult | None:
        """Return the answer to a SyncGroup; None if it has to wait, so that the caller must call
        `sync`. May emit effects, but stages no append.
        """
        return sync.answer(self.data, request)

    def heartbeat(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        connection: Connection | None = None,
    ) -> ErrorCode:
        """Execute a Heartbeat; may be called while an append is in progress.

        Normally it emits no effects: it moves the session's deadline, but not the timer.
        """
        data = self.data
        found = data.find_member_of(member_id, instance_id, generation)
        if not isinstance(found, Member):
            return found
        data.start_session(found, now_ms)
        found.connection = connection
        if data.state is _PREPARING_REBALANCE:
            data.request_rejoin(found)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return NO_ERROR

    def leave(self, entries: Sequence[LeaveEntry], ticket: Ticket, now: Now) -> None:
        """Execute a LeaveGroup. Answer: LeaveResult."""
        at_once(self.leave_steps(entries, ticket, now))

    def leave_steps(self, entries: Sequence[LeaveEntry], ticket: Ticket, now: Now) -> Steps[None]:
        """Execute a LeaveGroup as `leave` does, in steps. Between the steps, only heartbeats and
        reads are allowed. The caller may execute the effects of each step at once.
        """
        return leave.leave_steps(self.data, entries, ticket, now)

    def drop_unused_id(self, member_id: str, now: Now) -> None:
        """Forget a pending member: the broker has too many. No append may be in progress."""
        if self.data.state is not _DEAD:
            join.drop_id(self.data, member_id, now)

    # Offsets.

    def validate_commit(
        self, request: CommitRequest, now: Now, *, transactional: bool
    ) -> ErrorCode:
        """Return NONE or the error. A member may commit in the current generation; the commit
        restarts its session. Other clients may commit only while the group is Empty.
        `transactional`: a TxnOffsetCommit may lack the member id, and restarts no session.
        """
        data = self.data
        state = data.state
        if request.generation < 0:
            if state is _DEAD:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            if state is _EMPTY:
                return NO_ERROR
            if not request.member_id and request.instance_id is None:
                # A commit from a client without membership, to a group that has members.
                # Transactional producers that send no member id (before KIP-447) are accepted.
                return NO_ERROR if transactional else ErrorCode.UNKNOWN_MEMBER_ID
        found = data.find_member_of(request.member_id, request.instance_id, request.generation)
        if not isinstance(found, Member):
            return found
        if not transactional:
            if state is _COMPLETING_REBALANCE:
                data.request_rejoin(found)
                return ErrorCode.REBALANCE_IN_PROGRESS
            data.start_session(found, now.ms)
        return NO_ERROR

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Accept every OffsetFetch, whatever its member id and epoch, as Kafka does."""
        del self, member_id, member_epoch
        return NO_ERROR

    def subscribed_topics(self) -> frozenset[str] | None:
        return self.data.subscribed_topics()

    def offset_retention(self) -> OffsetRetention:
        """Return which offsets may expire: before the first member has joined, each by its commit
        time; while Empty, all by the time at which the group became Empty; while Stable with
        consumers, those of topics to which no member subscribes; in other states none.
        """
        data = self.data
        if data.protocol_type is None:
            return OffsetRetention()
        if data.state is _EMPTY:
            return OffsetRetention(unused_since_ms=data.state_timestamp_ms)
        if data.state is _STABLE and data.protocol_type == CONSUMER:
            return OffsetRetention(data.subscribed_topics())
        return OffsetRetention(kept_topics=None)

    # Deleted topics.

    has_lost_topics = False

    def forget_topics(self, now: Now) -> None:
        """Do nothing: a classic group stores nothing about topics except offsets."""

    # Records.

    def restore(
        self, records: Sequence[DurableRecord], now: Now, earlier: Iterable[Generation]
    ) -> None:
        """Restore the members, without parked requests, pending members or unstored assignments."""
        generations = [*earlier]
        for record in records:
            if isinstance(record, GroupRecord):
                durable.apply(self.data, record, now)
                generations.append(record)
        assignments = {member.member_id: member.assignment for member in self.roster}
        data = self.data
        data.outbox.note(
            GroupRestored(
                data.generation,
                data.protocol_type,
                self.roster.leader_id,
                assignments,
                tuple(generations),
            )
        )

    def start(self, now: Now) -> None:
        """Start all session timers; rebalance if there are now more members than group.max.size."""
        self.data.start_sessions(now.ms)
        if len(self.roster) > self.data.config.max_size:
            self.rebalances_because = Trigger(TriggerKind.OVER_CAPACITY)
        if self.rebalances_because is not None:
            rebalance.begin(self.data, self.rebalances_because, now)
            rebalance.proceed(self.data, now)
            self.rebalances_because = None

    def tombstones(self) -> tuple[DurableRecord, ...]:
        return (GroupTombstone(self.data.group_id),)

    # Time, and the end.

    def on_deadlines(self, keys: Iterable[TimerKey], now: Now) -> None:
        expiry.on_deadlines(self.data, keys, now)

    def end(self, error: ErrorCode, now: Now) -> None:
        """Answer parked requests with `error`, and move to Dead."""
        replies: list[Reply] = []
        for member in self.roster:
            ticket = self.roster.unpark_join(member)
            if ticket is not None:
                replies.append(Reply(ticket, JoinResult(error, member.member_id)))
            ticket, member.sync_ticket = member.sync_ticket, None
            if ticket is not None:
                replies.append(Reply(ticket, SyncResult(error)))
        if replies:
            self.data.outbox.emit(Replies(iter(replies), len(replies)))
        self.data.move_to(_DEAD, now)

    def close(self) -> None:
        data = self.data
        for member_id in self.roster.pending:
            data.unused_ids.discard(member_id)
        for key in list(data.deadlines):
            data.cancel(key)
        for member in self.roster:
            data.stop_session(member)
        self.roster.close_account()

    # Reads.

    @property
    def is_empty(self) -> bool:
        return self.data.state is _EMPTY

    @property
    def is_unused(self) -> bool:
        return self.data.state is _EMPTY and not self.roster.pending

    def gauges(self) -> Mapping[str, int]:
        parked_syncs = 0
        if self.data.state is _COMPLETING_REBALANCE:
            parked_syncs = sum(member.sync_ticket is not None for member in self.roster)
        return {
            PARKED_JOINS: self.roster.parked_joins,
            PARKED_SYNCS: parked_syncs,
            UNUSED_IDS: len(self.roster.pending),
        }

    def describe(self) -> GroupDescription:
        data = self.data
        state = data.state
        return GroupDescription(
            data.group_id,
            GroupKind.CLASSIC,
            state.value,
            data.protocol_type,
            data.generation,
            data.protocol_name,
            self.roster.leader_id,
            data.state_timestamp_ms,
            len(self.roster),
            is_stable=state is _STABLE,
            is_rebalancing=state is _PREPARING_REBALANCE or state is _COMPLETING_REBALANCE,
        )

    def describe_members(self, count_max: int | None = None) -> Sequence[DescribedMember]:
        """Return the first `count_max` members, or all members; their metadata is included only
        while Stable.
        """
        name = self.data.protocol_name if self.data.state is _STABLE else None
        return [
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.protocol_names,
                b"" if name is None else member.metadata(name),
                member.assignment,
            )
            for member in islice(self.roster, count_max)
        ]

    def describe_waiting(self) -> WaitingFor | None:
        member_ids, until_ms = self.waiting_for()
        if until_ms is None and not member_ids:
            return None
        found = [m for m in map(self.roster.get, member_ids) if m is not None]
        return WaitingFor(
            self.phase,
            self.data.state_timestamp_ms,
            until_ms,
            tuple([member.ref for member in found]),
            tuple([member_id for member_id in member_ids if member_id not in self.roster]),
            heard_ms=tuple([m.session_deadline_ms - m.session_timeout_ms for m in found]),
            session_ends_ms=tuple([m.session_deadline_ms for m in found]),
        )

    @property
    def phase(self) -> str:
        """The event that the rebalance waits for, as named by GET /groups."""
        data = self.data
        if data.state is _PREPARING_REBALANCE:
            return "join" if data.initial is None else "initial_delay"
        if data.state is _COMPLETING_REBALANCE:
            return "store" if data.assignment_on_its_way == data.generation else "assign"
        return "sync"

    def waiting_for(self) -> tuple[tuple[str, ...], int | None]:
        """Return the ids that the group waits for, and the deadline (monotonic); or () and None.

        In the join phase: members that have not rejoined, and pending members; later: members that
        have not synced. The initial delay has a deadline, but usually no ids.
        """
        data = self.data
        if data.state is _PREPARING_REBALANCE:
            missing = [m.member_id for m in self.roster if m.join_ticket is None]
            return (*missing, *self.roster.pending), data.deadlines.get(JOIN_TIMER)
        if data.pending_sync:
            return tuple(data.pending_sync), data.deadlines.get(SYNC_TIMER)
        return (), None

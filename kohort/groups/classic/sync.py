"""SyncGroup: the leader submits the assignment, members get theirs once it is durable."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kohort.groups.classic import durable, rebalance
from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.member import Member
from kohort.groups.classic.protocols import hash_partition_counts
from kohort.groups.classic.states import ClassicState
from kohort.groups.effects import Replies, Reply
from kohort.groups.events import RebalanceEnd, RebalanceEnded, SyncReceived, Trigger, TriggerKind
from kohort.groups.records import DurableRecord, GroupRecord
from kohort.groups.requests import Now, SyncRequest, SyncResult, Ticket
from kohort.protocol.errors import NO_ERROR, ErrorCode

# Module constants, because in Python 3.11 each lookup of an enum member takes 0.1 us.
_PREPARING_REBALANCE: Final = ClassicState.PREPARING_REBALANCE
_COMPLETING_REBALANCE: Final = ClassicState.COMPLETING_REBALANCE
_STABLE: Final = ClassicState.STABLE


def sync(group: ClassicData, request: SyncRequest, ticket: Ticket, now: Now) -> None:
    """Answer, or park `ticket` until the leader's assignment is durable."""
    result = answer(group, request)
    if result is None:
        _park(group, group.roster[request.member_id], request, ticket, now)
    else:
        group.outbox.reply(ticket, result)


def answer(group: ClassicData, request: SyncRequest) -> SyncResult | None:
    """Return the answer to a sync; None, without any change, if the member has to wait for it."""
    found = group.find_member_of(request.member_id, request.instance_id, request.generation)
    if not isinstance(found, Member):
        return SyncResult(found)
    if _contradicts(request.protocol_type, group.protocol_type) or _contradicts(
        request.protocol_name, group.protocol_name
    ):
        return SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is _PREPARING_REBALANCE:
        group.request_rejoin(found)
        return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    if group.state is _COMPLETING_REBALANCE:
        return None
    assert group.state is _STABLE
    _note_sync(group, found)
    return SyncResult(NO_ERROR, group.protocol_type, group.protocol_name, found.assignment)


def _contradicts(given: str | None, ours: str | None) -> bool:
    return given is not None and ours is not None and given != ours


def _note_sync(group: ClassicData, member: Member) -> None:
    member_id = member.member_id
    if member_id in group.pending_sync:
        group.outbox.note(SyncReceived(member_id, member_id == group.roster.leader_id))
        group.forget_pending_sync(member)


def _sync_answers(group: ClassicData, tickets: Sequence[tuple[Ticket, bytes]]) -> Iterator[Reply]:
    protocol_type, protocol_name = group.protocol_type, group.protocol_name
    return (
        Reply(ticket, SyncResult(NO_ERROR, protocol_type, protocol_name, assignment))
        for ticket, assignment in tickets
    )


def _park(
    group: ClassicData, member: Member, request: SyncRequest, ticket: Ticket, now: Now
) -> None:
    if member.sync_ticket is not None:
        group.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_ticket = ticket
    _note_sync(group, member)
    is_leader = member.member_id == group.roster.leader_id
    if is_leader and group.assignment_on_its_way != group.generation:
        group.assignment_on_its_way = group.generation
        given = request.assignments
        assignments = {m.member_id: given.get(m.member_id, b"") for m in group.roster}
        write = AssignmentWrite(group, _record(group, assignments))
        if group.roster.memory.has_room(_growth(group, assignments)):
            group.outbox.stage(write)
        else:
            # No memory for the assignment: answer as if it were too large to be stored.
            write.on_failed(ErrorCode.UNKNOWN_SERVER_ERROR, now)


def _growth(group: ClassicData, assignments: dict[str, bytes]) -> int:
    roster = group.roster
    in_effect = roster.kept_bytes - roster.metadata_bytes
    return sum(map(len, assignments.values())) - in_effect


def _record(group: ClassicData, assignments: dict[str, bytes]) -> GroupRecord:
    """Create the record of the group with `assignments`. As in Kafka, its timestamp is the end of
    the join phase.
    """
    topics_hash = hash_partition_counts(group.subscribed_topics(), group.partition_count)
    return durable.group_record(group, assignments=assignments, topics_hash=topics_hash)


@dataclass(slots=True, eq=False)
class AssignmentWrite:
    """The leader's assignment. Takes effect once durable, if the group still waits for it then."""

    group: ClassicData
    record: GroupRecord

    def make_records(self) -> tuple[DurableRecord, ...]:
        return (self.record,)

    def _is_awaited(self) -> bool:
        group = self.group
        return group.state is _COMPLETING_REBALANCE and group.generation == self.record.generation

    def on_durable(self, now: Now) -> None:
        """Answer all waiting members, and move to Stable."""
        if not self._is_awaited():
            return
        group = self.group
        durable.apply(group, self.record, now)
        assignments = {member.member_id: member.assignment for member in group.roster}
        group.outbox.note(RebalanceEnded(RebalanceEnd.STABLE, group.generation, assignments))
        tickets: list[tuple[Ticket, bytes]] = []
        for member in group.roster:
            ticket, member.sync_ticket = member.sync_ticket, None
            if ticket is not None:
                tickets.append((ticket, member.assignment))
                group.start_session(member, now.ms)
        group.outbox.emit(Replies(_sync_answers(group, tickets), len(tickets)))

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        """Answer the waiting members with the error, and rebalance."""
        if not self._is_awaited():
            return
        group = self.group
        rebalance.abandon_assignment(group, error, now)
        group.outbox.note(RebalanceEnded(RebalanceEnd.STORE_FAILED, group.generation, {}, error))
        trigger = Trigger(TriggerKind.STORE_FAILED, error=error)
        rebalance.begin(group, trigger, now)
        rebalance.proceed(group, now)

    def answer_early(self, error: ErrorCode) -> None:
        """Do nothing: the waiting members are parked, and answered when the write has ended."""

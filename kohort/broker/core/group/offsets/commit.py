"""OffsetCommit, OffsetFetch's view, and commits that belong to a transaction.

A commit changes nothing before it is durable: until then OffsetFetch finds what was there before.
"""

from dataclasses import dataclass
from typing import Final

from kohort.broker.core.group.classic import durable
from kohort.broker.core.group.classic.member import Member
from kohort.broker.core.group.classic.state import GroupBase
from kohort.broker.core.group.events import OffsetsStored
from kohort.broker.core.group.records import DurableRecord, OffsetRecord
from kohort.broker.core.group.requests import (
    CommitRequest,
    CommitResult,
    CommittedOffset,
    Now,
    OffsetToCommit,
    Ticket,
)
from kohort.broker.core.group.states import GroupState
from kohort.protocol.errors import ErrorCode

TIMESTAMP_MAX: Final = (1 << 63) - 1
"""The end of the calendar that records have; what is kept for longer is kept for ever."""


def commit(group: GroupBase, request: CommitRequest, ticket: Ticket, now: Now) -> None:
    """Store positions; answered when they are durable."""
    error = _check(group, request, now, transactional=False)
    if error:
        group.reply(ticket, CommitResult((error,) * len(request.offsets)))
    else:
        _store(group, request, ticket, now)


def commit_in_transaction(
    group: GroupBase, request: CommitRequest, producer_id: int, ticket: Ticket, now: Now
) -> None:
    """Store positions that become visible when the producer's transaction commits.

    Whether the producer has a transaction open is not for the group to know.
    """
    error = _check(group, request, now, transactional=True)
    if error:
        group.reply(ticket, CommitResult((error,) * len(request.offsets)))
    else:
        _store(group, request, ticket, now, producer_id=producer_id)


def error_without_group(request: CommitRequest, *, names_group_errors: bool) -> ErrorCode:
    """What a commit to a group that does not exist is answered; NONE if it creates the group.

    Args:
        names_group_errors: OffsetCommit v9+, which may answer GROUP_ID_NOT_FOUND.
    """
    if request.generation < 0:
        return ErrorCode.NONE
    return ErrorCode.GROUP_ID_NOT_FOUND if names_group_errors else ErrorCode.ILLEGAL_GENERATION


def _check(group: GroupBase, request: CommitRequest, now: Now, *, transactional: bool) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if request.generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if request.generation < 0 and not request.member_id and request.instance_id is None:
        # Somebody from outside; only members commit for a group that has some. Producers that know
        # nothing of members (before KIP-447) are let in.
        return ErrorCode.NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
    found = group.find_member_of(request.member_id, request.instance_id, request.generation)
    if isinstance(found, ErrorCode):
        return found
    return ErrorCode.NONE if transactional else _check_phase(group, found, now)


def _check_phase(group: GroupBase, member: Member, now: Now) -> ErrorCode:
    if group.state is GroupState.COMPLETING_REBALANCE:
        group.tell_to_rejoin(member)
        return ErrorCode.REBALANCE_IN_PROGRESS
    group.start_session(member, now.ms)
    return ErrorCode.NONE


def _store(
    group: GroupBase,
    request: CommitRequest,
    ticket: Ticket,
    now: Now,
    *,
    producer_id: int | None = None,
) -> None:
    expire_ms = -1
    if request.retention_time_ms != -1:
        expire_ms = min(now.wall_ms + request.retention_time_ms, TIMESTAMP_MAX)
    errors: list[ErrorCode] = []
    records: list[OffsetRecord] = []
    for offset in request.offsets:
        if _utf16_units(offset.metadata) > group.config.offset_metadata_max_units:
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        errors.append(ErrorCode.NONE)
        records.append(_record(group, offset, now.wall_ms, expire_ms))
    result = CommitResult(tuple(errors))
    if records:
        group.stage(OffsetsWrite(group, tuple(records), ticket, result, producer_id))
    else:
        group.reply(ticket, result)


def _utf16_units(text: str) -> int:
    beyond = 0 if text.isascii() else sum(character > "\uffff" for character in text)
    return len(text) + beyond


def _record(
    group: GroupBase, offset: OffsetToCommit, commit_ms: int, expire_ms: int
) -> OffsetRecord:
    committed = CommittedOffset(
        offset.offset, offset.leader_epoch, offset.metadata, commit_ms, expire_ms, offset.topic_id
    )
    return OffsetRecord(group.group_id, offset.topic, offset.partition, committed)


@dataclass(slots=True, eq=False)
class OffsetsWrite:
    """One commit."""

    group: GroupBase
    records: tuple[OffsetRecord, ...]
    ticket: Ticket | None
    """None once answered."""
    result: CommitResult
    producer_id: int | None
    """Of the transaction they belong to."""

    def make_records(self) -> tuple[DurableRecord, ...]:
        return self.records

    def on_durable(self, now: Now) -> None:
        """Make the positions visible; of one that is repeated in the request, the last."""
        table = self.group.offsets
        for record in self.records:
            if self.producer_id is None:
                durable.apply(self.group, record, now)
            else:
                place = (record.topic, record.partition)
                table.set_transactional(self.producer_id, *place, record.committed)
        self.group.note(OffsetsStored(len(self.records)))
        self._answer(self.result)

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        """Nothing has changed."""
        del now
        self.answer_early(error)

    def answer_early(self, error: ErrorCode) -> None:
        """Positions that were refused for themselves keep their own error."""
        errors = (own or error for own in self.result.errors)
        self._answer(CommitResult(tuple(errors)))

    def _answer(self, result: CommitResult) -> None:
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            self.group.reply(ticket, result)

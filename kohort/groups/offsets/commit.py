"""OffsetCommit, and TxnOffsetCommit (KIP-98, KIP-447): offsets that become valid when a producer's
transaction commits.

A commit changes nothing before it is durable: until then OffsetFetch returns the previous offsets.
Offsets of a transaction are in the log like others, in a batch of their own with the producer's id
and epoch. The transaction's marker, which follows in the log, commits or discards them; until then
they are invisible, and a client that asks for stable offsets gets an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kohort.groups.offsets.table import OffsetsOwner
from kohort.groups.records import DurableRecord, OffsetRecord, PendingOffset
from kohort.groups.requests import (
    CommitRequest,
    CommitResult,
    CommittedOffset,
    EnclosingTransaction,
    Now,
    Ticket,
)
from kohort.protocol.errors import NO_ERROR, ErrorCode

TIMESTAMP_MAX: Final = (1 << 63) - 1
"""The largest possible timestamp; offsets that would be kept longer are kept for ever."""


def error_without_group(request: CommitRequest, *, may_answer_group_not_found: bool) -> ErrorCode:
    """Return the error for a commit to a group that does not exist.

    NONE for a commit without membership: it creates the group.

    Args:
        may_answer_group_not_found: OffsetCommit v9+ and TxnOffsetCommit v6+, which may answer
            GROUP_ID_NOT_FOUND.
    """
    if request.generation < 0:
        return NO_ERROR
    return (
        ErrorCode.GROUP_ID_NOT_FOUND if may_answer_group_not_found else ErrorCode.ILLEGAL_GENERATION
    )


def store(owner: OffsetsOwner, request: CommitRequest, ticket: Ticket, now: Now) -> None:
    """Store offsets of an authorised client; answered when durable."""
    result, records = to_store(owner, request, now)
    if records:
        owner.outbox.stage(OffsetsWrite(owner, ticket, result, tuple(records)))
    else:
        owner.outbox.reply(ticket, result)


def to_store(
    owner: OffsetsOwner, request: CommitRequest, now: Now
) -> tuple[CommitResult, list[OffsetRecord]]:
    """Return the answer to send once the offsets are durable, and the records to store."""
    expire_ms = -1
    if request.retention_time_ms != -1:
        expire_ms = min(now.wall_ms + request.retention_time_ms, TIMESTAMP_MAX)
    errors: list[ErrorCode] = []
    records: list[OffsetRecord] = []
    for offset in request.offsets:
        metadata = offset.metadata
        if metadata and _utf16_units(metadata) > owner.config.offset_metadata_max_units:
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        errors.append(NO_ERROR)
        committed = CommittedOffset(
            offset.offset, offset.leader_epoch, metadata, now.wall_ms, expire_ms, offset.topic_id
        )
        records.append(OffsetRecord(owner.group_id, offset.topic, offset.partition, committed))
    return CommitResult(tuple(errors)), records


def _utf16_units(text: str) -> int:
    beyond = 0 if text.isascii() else sum(character > "\uffff" for character in text)
    return len(text) + beyond


@dataclass(slots=True, eq=False)
class CommitWrite:
    """Appends the offsets of a commit, transactional or not; subclasses create the records."""

    owner: OffsetsOwner
    ticket: Ticket | None
    """Ticket of the commit; None once answered."""
    result: CommitResult
    """The answer to send once the records are durable."""

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        """Answer with the error; nothing has changed."""
        del now
        self.answer_early(error)

    def answer_early(self, error: ErrorCode) -> None:
        """Answer with the error; offsets that were refused individually keep their errors."""
        errors = (own or error for own in self.result.errors)
        self.answer(CommitResult(tuple(errors)))

    def answer(self, result: CommitResult) -> None:
        """Reply, unless that was done already."""
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            self.owner.outbox.reply(ticket, result)


@dataclass(slots=True, eq=False)
class OffsetsWrite(CommitWrite):
    records: tuple[OffsetRecord, ...]

    def make_records(self) -> tuple[DurableRecord, ...]:
        return self.records

    def on_durable(self, now: Now) -> None:
        """Make the offsets visible; if the request repeats a partition, the last offset counts."""
        del now
        table = self.owner.offsets
        for record in self.records:
            table.apply(record)
        self.owner.outbox.note_stored(len(self.records))
        self.answer(self.result)


def store_in_transaction(
    owner: OffsetsOwner,
    request: CommitRequest,
    transaction: EnclosingTransaction,
    ticket: Ticket,
    now: Now,
) -> None:
    """Store offsets of an authorised client in its transaction; answered when durable."""
    result, records = to_store(owner, request, now)
    if records:
        owner.outbox.stage_alone(PendingWrite(owner, ticket, result, records, transaction))
    else:
        owner.outbox.reply(ticket, result)


def end_transaction(owner: OffsetsOwner, producer_id: int, *, commit: bool) -> None:
    """Apply a marker, also to appends in progress: their records precede it in the log."""
    owner.offsets.end_transaction(producer_id, commit=commit)
    for write in owner.outbox.in_flight:
        if isinstance(write, PendingWrite):
            write.on_marker(producer_id, commit=commit)


@dataclass(slots=True, eq=False)
class PendingWrite(CommitWrite):
    positions: Sequence[OffsetRecord]
    transaction: EnclosingTransaction
    is_committed: bool | None = None
    """Whether the transaction has committed; None if it has not ended. It may end before these
    records are known to be durable."""

    def make_records(self) -> tuple[DurableRecord, ...]:
        """Return the records; if the transaction ended meanwhile, send an error and return none."""
        error = self.transaction.check()
        if error:
            self.answer_early(error)
            return ()
        return self._records()

    def _records(self) -> tuple[PendingOffset, ...]:
        stamp = (self.transaction.producer_id, self.transaction.producer_epoch)
        return tuple(PendingOffset(*position, *stamp) for position in self.positions)

    def on_marker(self, producer_id: int, *, commit: bool) -> None:
        """Record a marker that follows the records in the log. If several follow, the first one
        ended this transaction.
        """
        if producer_id == self.transaction.producer_id and self.is_committed is None:
            self.is_committed = commit

    def on_durable(self, now: Now) -> None:
        """Add the offsets to the pending ones, or commit or discard them if the marker is known
        already; if the request repeats a partition, the last offset counts.
        """
        del now
        table = self.owner.offsets
        for record in self._records():
            table.apply(record)
        if self.is_committed is not None:
            table.end_transaction(self.transaction.producer_id, commit=self.is_committed)
        self.owner.outbox.note_stored(len(self.positions))
        self.answer(self.result)

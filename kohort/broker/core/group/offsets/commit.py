"""OffsetCommit, and the parts of TxnOffsetCommit that are the same.

A commit changes nothing before it is durable: until then OffsetFetch returns the previous offsets.
"""

from dataclasses import dataclass
from typing import Final

from kohort.broker.core.group.offsets.owner import OffsetsOwner
from kohort.broker.core.group.offsets.pending import PendingWrite
from kohort.broker.core.group.offsets.write import CommitWrite
from kohort.broker.core.group.records import DurableRecord, OffsetRecord
from kohort.broker.core.group.requests import (
    CommitRequest,
    CommitResult,
    CommittedOffset,
    EnclosingTransaction,
    Now,
    Ticket,
)
from kohort.protocol.errors import ErrorCode

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
        return ErrorCode.NONE
    return (
        ErrorCode.GROUP_ID_NOT_FOUND if may_answer_group_not_found else ErrorCode.ILLEGAL_GENERATION
    )


def store(
    owner: OffsetsOwner,
    request: CommitRequest,
    ticket: Ticket,
    now: Now,
    transaction: EnclosingTransaction | None = None,
) -> None:
    """Store offsets of an authorised client, possibly in a transaction; answered when durable."""
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
        errors.append(ErrorCode.NONE)
        committed = CommittedOffset(
            offset.offset, offset.leader_epoch, metadata, now.wall_ms, expire_ms, offset.topic_id
        )
        records.append(OffsetRecord(owner.group_id, offset.topic, offset.partition, committed))
    result = CommitResult(tuple(errors))
    if not records:
        owner.outbox.reply(ticket, result)
    elif transaction is None:
        owner.outbox.stage(OffsetsWrite(owner, ticket, result, tuple(records)))
    else:
        owner.outbox.stage_alone(PendingWrite(owner, ticket, result, records, transaction))


def _utf16_units(text: str) -> int:
    beyond = 0 if text.isascii() else sum(character > "\uffff" for character in text)
    return len(text) + beyond


@dataclass(slots=True, eq=False)
class OffsetsWrite(CommitWrite):
    """One commit."""

    records: tuple[OffsetRecord, ...]

    def make_records(self) -> tuple[DurableRecord, ...]:
        return self.records

    def on_durable(self, now: Now) -> None:
        """Make the offsets visible; of a partition repeated in the request, the last."""
        del now
        table = self.owner.offsets
        for record in self.records:
            table.apply(record)
        self.owner.outbox.note_stored(len(self.records))
        self.answer(self.result)

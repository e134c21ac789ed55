"""TxnOffsetCommit: offsets that become valid when a producer's transaction commits (KIP-98,
KIP-447).

They are in the log like others, in a batch of their own with the producer's id and epoch; the
marker that follows decides about them. Until then they are invisible; a client that asks for stable
offsets gets an error meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kohort.groups.offsets.commit import CommitWrite, to_store
from kohort.groups.offsets.table import OffsetsOwner
from kohort.groups.records import DurableRecord, OffsetRecord, PendingOffset
from kohort.groups.requests import CommitRequest, EnclosingTransaction, Now, Ticket


def store(
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
    """Apply a transaction marker that is in the log, after everything that was appended before."""
    owner.offsets.end_transaction(producer_id, commit=commit)
    for write in owner.outbox.in_flight:
        if isinstance(write, PendingWrite):
            write.on_marker(producer_id, commit=commit)


@dataclass(slots=True, eq=False)
class PendingWrite(CommitWrite):
    positions: Sequence[OffsetRecord]
    transaction: EnclosingTransaction
    is_committed: bool | None = None
    """How the transaction ended, if it did before these records were known to be durable."""

    def make_records(self) -> tuple[DurableRecord, ...]:
        """Return nothing if the transaction has ended while the commit was queued."""
        error = self.transaction.check()
        if error:
            self.answer_early(error)
            return ()
        return self._records()

    def _records(self) -> tuple[PendingOffset, ...]:
        stamp = (self.transaction.producer_id, self.transaction.producer_epoch)
        return tuple(PendingOffset(*position, *stamp) for position in self.positions)

    def on_marker(self, producer_id: int, *, commit: bool) -> None:
        """Record a marker that follows the records in the log; the first one decides."""
        if producer_id == self.transaction.producer_id and self.is_committed is None:
            self.is_committed = commit

    def on_durable(self, now: Now) -> None:
        """Hold the offsets; if the request repeats a partition, the last one counts."""
        del now
        table = self.owner.offsets
        for record in self._records():
            table.apply(record)
        if self.is_committed is not None:
            table.end_transaction(self.transaction.producer_id, commit=self.is_committed)
        self.owner.outbox.note_stored(len(self.positions))
        self.answer(self.result)

"""TxnOffsetCommit: positions that hold once a producer's transaction commits (KIP-98, KIP-447).

They lie in the log like others, in a batch of their own that bears the producer's id and epoch; the
marker behind it tells what becomes of them. Until then they are not visible; a client that
asks for stable positions is told that there are none yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kohort.broker.core.group.offsets.owner import OffsetsOwner
from kohort.broker.core.group.offsets.write import CommitWrite
from kohort.broker.core.group.records import DurableRecord, OffsetRecord, PendingOffset
from kohort.broker.core.group.requests import (
    EnclosingTransaction,
    Now,
)


def end_transaction(owner: OffsetsOwner, producer_id: int, *, commit: bool) -> None:
    """The marker of the producer's transaction is in the log, behind all that was appended."""
    owner.offsets.end_transaction(producer_id, commit=commit)
    for write in owner.outbox.in_flight:
        if isinstance(write, PendingWrite):
            write.on_marker(producer_id, commit=commit)


@dataclass(slots=True, eq=False)
class PendingWrite(CommitWrite):
    """One commit in a transaction."""

    positions: Sequence[OffsetRecord]
    transaction: EnclosingTransaction
    is_committed: bool | None = None
    """How the transaction has ended, if it did so before these records were known to be durable."""

    def make_records(self) -> tuple[DurableRecord, ...]:
        """Nothing if the transaction has ended while the commit waited for its turn."""
        error = self.transaction.check()
        if error:
            self.answer_early(error)
            return ()
        return self._records()

    def _records(self) -> tuple[PendingOffset, ...]:
        stamp = (self.transaction.producer_id, self.transaction.producer_epoch)
        return tuple(PendingOffset(*position, *stamp) for position in self.positions)

    def on_marker(self, producer_id: int, *, commit: bool) -> None:
        """A marker lies behind the records; the first one decides."""
        if producer_id == self.transaction.producer_id and self.is_committed is None:
            self.is_committed = commit

    def on_durable(self, now: Now) -> None:
        """Hold the positions; of one that is repeated in the request, the last."""
        del now
        table = self.owner.offsets
        for record in self._records():
            table.apply(record)
        if self.is_committed is not None:
            table.end_transaction(self.transaction.producer_id, commit=self.is_committed)
        self.owner.outbox.note_stored(len(self.positions))
        self.answer(self.result)

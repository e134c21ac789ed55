"""Writes the markers of decided transactions: at once, in several slices, or after the response.

If possible, they are written after the response to EndTxn: the decision is durable by then and
cannot be undone. No client sees the states in between, because the markers are written before any
later request is executed.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from kohort.broker.core.transaction.effects import Mark
from kohort.broker.core.transaction.records import (
    DurableTransaction,
    TransactionRecord,
)
from kohort.broker.core.transaction.requests import TopicPartition
from kohort.broker.core.transaction.transactional_id import TransactionalId
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import RoundRobin, Slice
from kohort.broker.transactions.log import TransactionLog
from kohort.broker.transactions.markers import MarkerWriter
from kohort.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

ANSWERED_FIRST_MAX: Final = 10
"""Maximum partitions of a transaction whose response precedes its markers; more of them may need
several event loop iterations."""

Work: TypeAlias = Callable[[], None]
RunStep: TypeAlias = Callable[[TransactionalId, Work], None]


def _at_once(work: Work) -> None:
    work()


class Marking:
    """Writes markers, and tracks those of transactions whose end was already answered."""

    def __init__(
        self,
        writer: MarkerWriter,
        log: TransactionLog,
        clock: Clock,
        slices: RoundRobin,
        run_step: RunStep,
    ) -> None:
        """`run_step` runs a step of an id, and executes its effects."""
        self.writer = writer
        self.after_answers: Callable[[Work], object] = _at_once
        """Schedules work after the responses of this event loop iteration have been sent, and
        before any later request is executed."""
        self._log = log
        self._clock = clock
        self._slices = slices
        self._run_step = run_step
        self._answered: dict[TransactionalId, Mark] = {}
        """Markers to be written after the responses of this event loop iteration."""

    @property
    def answered_count(self) -> int:
        """Number of transactions whose end was answered, and that have no marker yet."""
        return len(self._answered)

    def is_answered(self, txn: TransactionalId) -> bool:
        """Whether `answered_count` includes the transaction of this id."""
        return txn in self._answered

    def may_follow_answer(self, record: DurableTransaction) -> bool:
        """Whether the markers of this record may be written after the response: they are few, and
        none has to wait for a disk.
        """
        return (
            isinstance(record, TransactionRecord)
            and record.state.is_prepared
            and len(record.partitions) <= ANSWERED_FIRST_MAX
            and not any(self.writer.may_wait(*place) for place in record.partitions)
        )

    def begin(self, txn: TransactionalId, mark: Mark) -> None:
        if not mark.is_answered:
            self._mark(txn, mark, 0, self._slices.new_slice())
            return
        is_first = not self._answered
        self._answered[txn] = mark
        if is_first:
            self.after_answers(self.finish)

    def finish(self) -> None:
        """Write the markers of answered transactions, in the order of the decisions."""
        for txn in list(self._answered):
            self.finish_one(txn)

    def finish_one(self, txn: TransactionalId) -> None:
        """Write the scheduled markers of this id now, before its next request."""
        mark = self._answered.pop(txn, None)
        if mark is not None:
            # Without a pause, so that nothing runs in between.
            self._run_step(txn, lambda: self._mark(txn, mark, 0, None))

    def forget(self, txn: TransactionalId) -> None:
        """Leave the markers to the next start: the id must not be changed any more."""
        self._answered.pop(txn, None)

    def _mark(self, txn: TransactionalId, mark: Mark, begin: int, time_slice: Slice | None) -> None:
        """Write markers from index `begin` on; the rest of them in the next slice."""
        for index in range(begin, len(mark.partitions)):
            if time_slice is not None and index > begin and time_slice.is_over():
                txn.on_waiting()
                self._slices.add(partial(self._mark_more, txn, mark, index))
                return
            self._mark_one(txn, mark.record, mark.partitions[index])

    def _mark_more(self, txn: TransactionalId, mark: Mark, begin: int, time_slice: Slice) -> None:
        self._run_step(txn, lambda: self._mark(txn, mark, begin, time_slice))

    def _mark_one(
        self, txn: TransactionalId, record: TransactionRecord, partition: TopicPartition
    ) -> None:
        try:
            written = self.writer.write(
                partition.topic,
                partition.partition,
                record.producer_id,
                record.producer_epoch,
                record.result,
                coordinator_epoch=self._log.leader_epoch(txn.log_partition),
                transaction_version=record.client_version,
            )
        except Exception:
            logger.exception("The marker of %r for %s was not written", record, partition)
            written = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(written, ErrorCode):
            txn.on_marked(partition, written, self._clock.wall_ms())
            return
        if not written.is_done:
            txn.on_waiting()

        def take(later: Deferred[ErrorCode]) -> None:
            error = ErrorCode.KAFKA_STORAGE_ERROR if later.error else later.result()
            self._run_step(txn, lambda: txn.on_marked(partition, error, self._clock.wall_ms()))

        written.add_done_callback(take)

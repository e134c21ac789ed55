"""Writes the transaction markers to a transaction's partitions: at once, in several time slices, or
after the response.

If possible, markers are written after the response to EndTxn: the Prepare* record is durable by
then and cannot be undone. No client sees a transaction without its markers, because they are
written before any later request is executed.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias

from kohort.broker.core.transaction.effects import Mark
from kohort.broker.core.transaction.records import DurableTransaction, TransactionRecord
from kohort.broker.core.transaction.requests import TopicPartition
from kohort.broker.core.transaction.transactional_id import TransactionalId
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Deferred, Tasks
from kohort.broker.runtime.slices import RoundRobin, Slice
from kohort.broker.topics.internal_log import InternalLog
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.control import ControlType


class EndsOffsets(Protocol):
    """Applies or drops a transaction's offset commits for groups when the transaction ends."""

    def end_transaction(self, offsets_partition: int, producer_id: int, *, commit: bool) -> None:
        """Called when the marker in this partition of __consumer_offsets is durable."""
        ...


class PartitionMarkers:
    """Writes transaction markers to the broker's partitions, and notifies its groups."""

    def __init__(
        self,
        find: Callable[[str, int], Partition | None],
        groups: EndsOffsets,
        clock: Clock,
    ) -> None:
        """`find` returns a partition, opened if necessary; None if it does not exist."""
        self._find = find
        self._groups = groups
        self._clock = clock
        self._tasks: Tasks = set()

    def write(
        self,
        topic: str,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        result: ControlType,
        *,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Deferred[ErrorCode] | ErrorCode:
        """Append the marker; the result is set when it is durable and has been applied.

        Args:
            transaction_version: 2 if the marker's epoch is one above that of the batches; below 2,
                the epochs are equal.

        Returns:
            UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist; INVALID_PRODUCER_EPOCH or
            TRANSACTION_COORDINATOR_FENCED if a later marker was written; KAFKA_STORAGE_ERROR if the
            disk failed: retry later.
        """
        try:
            opened = self._find(topic, partition)
            if opened is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            appended = opened.append_marker(
                producer_id,
                producer_epoch,
                result,
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
                wall_ms=self._clock.wall_ms(),
            )
        except KafkaError as error:
            return error.code
        is_commit = result is ControlType.COMMIT
        if opened.high_watermark >= appended.next_offset:
            self._end_offsets(topic, partition, producer_id, is_commit=is_commit)
            return ErrorCode.NONE
        return Deferred.from_coroutine(
            self._wait(opened, appended.next_offset, producer_id, is_commit=is_commit),
            self._tasks,
            name=f"marker in {opened!r}",
        )

    def may_wait(self, topic: str, partition: int) -> bool:
        """Whether a marker in this partition may have to wait for an fsync."""
        opened = self._find(topic, partition)
        return opened is not None and opened.may_wait

    async def _wait(
        self, opened: Partition, next_offset: int, producer_id: int, *, is_commit: bool
    ) -> ErrorCode:
        try:
            await opened.wait_committed(next_offset)
        except KafkaError as error:
            return error.code
        self._end_offsets(opened.topic_name, opened.index, producer_id, is_commit=is_commit)
        return ErrorCode.NONE

    def _end_offsets(
        self, topic: str, partition: int, producer_id: int, *, is_commit: bool
    ) -> None:
        if topic == CONSUMER_OFFSETS:
            self._groups.end_transaction(partition, producer_id, commit=is_commit)


logger = logging.getLogger(__name__)

ANSWERED_FIRST_MAX: Final = 10
"""Maximum number of partitions of a transaction whose markers are written after the response. More
markers may need several event loop iterations.
"""

Work: TypeAlias = Callable[[], None]
RunStep: TypeAlias = Callable[[TransactionalId, Work], None]


class Marking:
    """Writes markers, and tracks transactions whose EndTxn was answered before their markers."""

    def __init__(
        self,
        writer: PartitionMarkers,
        log: InternalLog,
        clock: Clock,
        slices: RoundRobin,
        run_step: RunStep,
    ) -> None:
        """`run_step` calls a function that changes a transaction, and executes the effects."""
        self.writer = writer
        self.after_answers: Callable[[Work], object] = lambda work: work()
        """Runs work after the responses of this event loop iteration have been sent, and
        before any later request is executed."""
        self._log = log
        self._clock = clock
        self._slices = slices
        self._run_step = run_step
        self._answered: dict[TransactionalId, Mark] = {}
        """Markers to be written after the responses of this event loop iteration."""

    @property
    def answered_count(self) -> int:
        """Number of transactions whose EndTxn was answered before their markers are written."""
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
        """Write the markers of transactions with an answered EndTxn, in the order of responses."""
        for txn in list(self._answered):
            self.finish_one(txn)

    def finish_one(self, txn: TransactionalId) -> None:
        """Write the scheduled markers of this transactional id now, before its next request."""
        mark = self._answered.pop(txn, None)
        if mark is not None:
            # Pass no time slice, so that all markers are written before anything else runs.
            self._run_step(txn, lambda: self._mark(txn, mark, 0, None))

    def forget(self, txn: TransactionalId) -> None:
        """Drop the markers of an unusable transactional id; the broker's next start writes them."""
        self._answered.pop(txn, None)

    def _mark(self, txn: TransactionalId, mark: Mark, begin: int, time_slice: Slice | None) -> None:
        """Write the markers from index `begin` on. When `time_slice` is over, leave the rest to the
        next slice; without `time_slice`, write all.
        """
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

"""Makes partitions and the coordinator agree on transactions at startup after an unclean stop."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, assert_never

from kohort.broker.core.transaction.reconcile import (
    AddLost,
    Leave,
    OpenInPartition,
    WriteMarker,
    decide_repair,
)
from kohort.broker.core.transaction.transactional_id import TransactionalId
from kohort.broker.topics.partition import Partition
from kohort.broker.transactions.markers import PartitionMarkers
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.transactions.host import TransactionHost

logger = logging.getLogger(__name__)


def find_open(partitions: Iterable[Partition]) -> Iterator[OpenInPartition]:
    """Return every open transaction of these partitions; offline partitions are skipped."""
    for partition in partitions:
        try:
            opened = partition.open_transactions()
        except KafkaError as error:
            logger.warning("%r: open transactions cannot be checked: %s", partition, error)
            continue
        for transaction in opened:
            yield OpenInPartition(
                partition.topic_name,
                partition.index,
                transaction.producer_id,
                transaction.producer_epoch,
            )


def find_epochs(partitions: Iterable[Partition]) -> Iterator[tuple[int, int]]:
    for partition in partitions:
        if partition.failure is None:
            for producer in partition.producers_seen():
                yield producer.producer_id, producer.producer_epoch


class Reconciler:
    """Repairs open transactions by the rules of :mod:`kohort.broker.core.transaction.reconcile`."""

    def __init__(self, host: TransactionHost, markers: PartitionMarkers) -> None:
        self._host = host
        self._markers = markers
        self._doubtful: dict[int, int] = {}
        """By producer id, the highest epoch to fence; `fence` explains when this is needed."""

    async def repair(self, opened: Iterable[OpenInPartition]) -> None:
        """Repair the transactions on which a partition and the coordinator disagree."""
        by_producer: dict[int, TransactionalId] | None = None
        for transaction in opened:
            if by_producer is None:
                by_producer = self._by_producer()
            owner = by_producer.get(transaction.producer_id)
            if await self._repair(transaction, owner):
                self._host.counts.note_reconciled(None if owner is None else owner.transactional_id)

    async def fence(self, known: Iterable[tuple[int, int]]) -> None:
        """Fence producers that may continue a transaction that the coordinator has lost. Call this
        once the transactions in Prepare* are completed.

        If a partition has a higher epoch than the coordinator, the coordinator would assign this
        epoch again, and the new producer's first batch would look like a duplicate. A producer
        whose transaction was aborted because the outcome was unknown must not continue the
        transaction and commit it.

        Args:
            known: (producer id, epoch) in the partitions.
        """
        by_producer = {
            txn.record.producer_id: txn for txn in self._host.ids.all() if txn.record is not None
        }
        doubtful = self._doubtful
        for producer_id, epoch in known:
            owner = by_producer.get(producer_id)
            if owner is not None and owner.record and epoch > owner.record.producer_epoch:
                doubtful[producer_id] = max(epoch, doubtful.get(producer_id, epoch))
        for producer_id, epoch in doubtful.items():
            owner = by_producer.get(producer_id)
            if owner is not None:
                await self._fence(owner, epoch)

    async def _fence(self, owner: TransactionalId, epoch: int) -> None:
        # Twice if a transaction is open: the first step aborts it.
        for _ in range(2):
            record = owner.record
            if record is None or record.state.is_prepared or record.producer_epoch > epoch:
                return
            logger.warning("Fenced epoch %d of %r at startup", epoch, owner.transactional_id)
            self._host.fence(owner, epoch + 1)
            await self._host.wait_settled(owner)

    def check(self, opened: Iterable[OpenInPartition]) -> None:
        """Log an internal error for each open transaction that still needs a repair."""
        by_producer = self._by_producer()
        for transaction in opened:
            owner = by_producer.get(transaction.producer_id)
            record = None if owner is None else owner.record
            if not isinstance(decide_repair(record, transaction), Leave):
                logger.error(
                    "The coordinator does not know of the open transaction %r", transaction
                )

    def _by_producer(self) -> dict[int, TransactionalId]:
        """Return the transactional ids by current, and by previous (exhausted), producer id."""
        present: dict[int, TransactionalId] = {}
        former: dict[int, TransactionalId] = {}
        for txn in self._host.ids.all():
            if txn.record is not None:
                present[txn.record.producer_id] = txn
                former[txn.record.previous_producer_id] = txn
        return former | present

    async def _repair(self, opened: OpenInPartition, owner: TransactionalId | None) -> bool:
        repair = decide_repair(None if owner is None else owner.record, opened)
        match repair:
            case Leave():
                return False
            case AddLost():
                assert owner is not None
                logger.warning("%r continues its transaction: %r", owner.transactional_id, opened)
                self._host.add_lost(owner, opened.place)
                await self._host.wait_settled(owner)
            case WriteMarker():
                await self._mark(opened, owner, repair)
                if repair.is_guess:
                    epoch = self._doubtful.get(opened.producer_id, opened.producer_epoch)
                    self._doubtful[opened.producer_id] = max(epoch, opened.producer_epoch)
            case _:
                assert_never(repair)
        return True

    async def _mark(
        self, opened: OpenInPartition, owner: TransactionalId | None, repair: WriteMarker
    ) -> None:
        name = "" if owner is None else owner.transactional_id
        written = self._markers.write(
            opened.topic,
            opened.partition,
            opened.producer_id,
            repair.producer_epoch,
            repair.result,
            coordinator_epoch=self._host.coordinator_epoch(name),
            transaction_version=repair.client_version,
        )
        error = written if isinstance(written, ErrorCode) else await written
        logger.warning(
            "Missing %s marker for %r of transactional id %r at startup%s: %s",
            repair.result.name,
            opened,
            name,
            " (outcome unknown)" if repair.is_guess else "",
            f"write failed with {error.name}" if error else "written",
        )

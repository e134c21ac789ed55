"""Makes partitions and coordinator agree after an unclean stop, before requests are served."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Protocol, assert_never

from kohort.broker.core.transaction.reconcile import (
    AddLost,
    Leave,
    OpenInPartition,
    WriteMarker,
    judge_open,
)
from kohort.broker.core.transaction.requests import TopicPartition
from kohort.broker.core.transaction.transactional_id import TransactionalId
from kohort.broker.topics.partition import Partition
from kohort.broker.transactions.events import EventCounts
from kohort.broker.transactions.markers import MarkerWriter
from kohort.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


def find_open(partitions: Iterable[Partition]) -> Iterator[OpenInPartition]:
    """Every transaction that is open in these partitions; what is offline has to wait."""
    for partition in partitions:
        try:
            found = partition.open_transactions()
        except KafkaError as error:
            logger.warning("%r is not reconciled with its transactions: %s", partition, error)
            continue
        for one in found:
            yield OpenInPartition(
                partition.topic_name, partition.index, one.producer_id, one.producer_epoch
            )


class ReconciledIds(Protocol):
    """The ids, as the reconciler needs them."""

    def known(self) -> Iterable[TransactionalId]: ...

    def add_lost(self, one: TransactionalId, partition: TopicPartition) -> None: ...

    async def wait_settled(self, one: TransactionalId) -> None: ...

    def coordinator_epoch(self, transactional_id: str) -> int: ...

    @property
    def counts(self) -> EventCounts: ...


class Reconciler:
    """See :mod:`kohort.broker.core.transaction.reconcile` for the rules."""

    def __init__(self, ids: ReconciledIds, markers: MarkerWriter) -> None:
        self._ids = ids
        self._markers = markers

    async def repair(self, found: Iterable[OpenInPartition]) -> int:
        """Repair what is open and should not be, or is not known; how much that was."""
        repair_count = 0
        by_producer: dict[int, TransactionalId] | None = None
        for one in found:
            if by_producer is None:
                by_producer = self._by_producer()
            owner = by_producer.get(one.producer_id)
            if await self._repair(one, owner):
                repair_count += 1
                self._ids.counts.note_reconciled(None if owner is None else owner.transactional_id)
        return repair_count

    def check(self, found: Iterable[OpenInPartition]) -> bool:
        """Whether the coordinator knows all that is open now; what it does not is told."""
        by_producer = self._by_producer()
        is_well = True
        for one in found:
            owner = by_producer.get(one.producer_id)
            record = None if owner is None else owner.record
            if not isinstance(judge_open(record, one), Leave):
                is_well = False
                logger.error("The coordinator does not know of the open transaction %r", one)
        return is_well

    def _by_producer(self) -> dict[int, TransactionalId]:
        """Ids by their producers, and by those before whose epochs are used up."""
        present: dict[int, TransactionalId] = {}
        former: dict[int, TransactionalId] = {}
        for one in self._ids.known():
            if one.record is not None:
                present[one.record.producer_id] = one
                former[one.record.previous_producer_id] = one
        return former | present

    async def _repair(self, found: OpenInPartition, owner: TransactionalId | None) -> bool:
        repair = judge_open(None if owner is None else owner.record, found)
        match repair:
            case Leave():
                return False
            case AddLost():
                assert owner is not None
                logger.warning("%r goes on in its transaction: %r", owner.transactional_id, found)
                self._ids.add_lost(owner, found.place)
                await self._ids.wait_settled(owner)
            case WriteMarker():
                await self._mark(found, owner, repair)
            case _:
                assert_never(repair)
        return True

    async def _mark(
        self, found: OpenInPartition, owner: TransactionalId | None, repair: WriteMarker
    ) -> None:
        name = "" if owner is None else owner.transactional_id
        written = self._markers.write(
            found.topic,
            found.partition,
            found.producer_id,
            repair.producer_epoch,
            repair.result,
            coordinator_epoch=self._ids.coordinator_epoch(name),
            transaction_version=repair.client_version,
        )
        error = written if isinstance(written, ErrorCode) else await written
        logger.warning(
            "%s by the start: %r of %r%s%s",
            repair.result.name,
            found,
            name,
            ", which may be torn" if repair.is_guess else "",
            f" failed: {error.name}" if error else "",
        )

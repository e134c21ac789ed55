"""Transactional ids on a virtual clock: the log in memory, and partitions that are markers only."""

import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from kohort.broker.core.partition.producers import ProducerState
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.core.transaction.reconcile import OpenInPartition
from kohort.broker.core.transaction.requests import (
    AddRequest,
    ClientVersion,
    EndRequest,
    InitRequest,
    TopicPartition,
)
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.purgatory_shell import PurgatoryShell
from kohort.broker.transactions.host import TransactionHost, TransactionsConfig
from kohort.broker.transactions.markers import PartitionMarkers
from kohort.broker.transactions.transactions import Transactions
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.control import ControlType
from kohort.testing.virtual_clock import VirtualClock
from tests.support.memory_logs import MemoryTransactionLog

FIRST_PRODUCER = 1_000
TIMEOUT_MS = 60_000


class Written(NamedTuple):
    """A marker in a partition."""

    result: ControlType
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    transaction_version: int


class MarkedPartitions(PartitionMarkers):
    """Markers whose partitions keep the real rules of producers, and no records."""

    def __init__(self, *partitions: TopicPartition) -> None:
        self.markers: dict[TopicPartition, list[Written]] = {one: [] for one in partitions}
        self.offline: set[TopicPartition] = set()
        self.producers = {one: ProducerState() for one in partitions}
        self._held: list[tuple[Deferred[ErrorCode], TopicPartition, Written]] | None = None

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
        place = TopicPartition(topic, partition)
        written = Written(
            result, producer_id, producer_epoch, coordinator_epoch, transaction_version
        )
        if self._held is not None:
            later: Deferred[ErrorCode] = Deferred()
            self._held.append((later, place, written))
            return later
        return self._write(place, written)

    def _write(self, place: TopicPartition, written: Written) -> ErrorCode:
        if place not in self.markers:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if place in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        producers = self.producers[place]
        try:
            producers.check_marker(
                written.producer_id,
                written.producer_epoch,
                coordinator_epoch=written.coordinator_epoch,
                transaction_version=written.transaction_version,
            )
        except KafkaError as error:
            return error.code
        producers.note_marker(
            written.producer_id,
            written.producer_epoch,
            is_commit=written.result is ControlType.COMMIT,
            coordinator_epoch=written.coordinator_epoch,
            offset=len(self.markers[place]),
            timestamp=0,
        )
        self.markers[place].append(written)
        return ErrorCode.NONE

    def may_wait(self, topic: str, partition: int) -> bool:
        return self._held is not None

    def hold(self) -> None:
        """Markers from now on wait for `release`."""
        self._held = []

    def release(self) -> None:
        """What waits is written, and what comes at once."""
        held, self._held = self._held or [], None
        for later, place, written in held:
            later.set_result(self._write(place, written))


class TransactionsHarness:
    """One broker's transactional ids."""

    def __init__(
        self,
        clock: VirtualClock,
        log: MemoryTransactionLog,
        partitions: MarkedPartitions,
        config: TransactionsConfig,
    ) -> None:
        self.clock = clock
        self.log = log
        self.partitions = partitions
        self.purgatory = Purgatory(report=_report)
        self.shell = PurgatoryShell(self.purgatory, clock)
        fresh = itertools.count(FIRST_PRODUCER + log.batch_count * 1_000)
        self.host = TransactionHost(
            config,
            log=log,
            markers=partitions,
            purgatory=self.purgatory,
            clock=clock,
            new_producer_id=lambda: next(fresh),
        )
        self.transactions = Transactions(self.host)

    def init(
        self, name: str = "t", producer_id: int = -1, epoch: int = -1, timeout_ms: int = TIMEOUT_MS
    ) -> Any:  # noqa: ANN401 - an answer, or a Deferred of one.
        request = InitRequest(timeout_ms, producer_id, epoch)
        return self.transactions.init_producer_id(name, request).map(_same)

    def add(
        self,
        *partitions: TopicPartition,
        name: str = "t",
        producer_id: int = FIRST_PRODUCER,
        epoch: int = 0,
        version: ClientVersion = ClientVersion.V1,
    ) -> Any:  # noqa: ANN401 - as above.
        request = AddRequest(producer_id, epoch, partitions, version)
        return self.transactions.add_partitions(name, request).map(_same)

    def end(
        self,
        result: ControlType,
        *,
        name: str = "t",
        producer_id: int = FIRST_PRODUCER,
        epoch: int = 0,
        version: ClientVersion = ClientVersion.V2,
    ) -> Any:  # noqa: ANN401 - as above.
        request = EndRequest(producer_id, epoch, result, version)
        return self.transactions.end(name, request).map(_same)

    def state(self, name: str = "t") -> str | None:
        one = self.host.transactional_id(name)
        return None if one is None or one.record is None else one.record.state.value

    def producer(self, name: str = "t") -> tuple[int, int]:
        one = self.host.transactional_id(name)
        assert one is not None
        assert one.record is not None
        return one.record.producer_id, one.record.producer_epoch


@asynccontextmanager
async def running(
    clock: VirtualClock,
    log: MemoryTransactionLog | None = None,
    partitions: MarkedPartitions | None = None,
    config: TransactionsConfig | None = None,
    found_open: Iterable[OpenInPartition] = (),
) -> AsyncIterator[TransactionsHarness]:
    """Started at the beginning, closed at the end."""
    harness = TransactionsHarness(
        clock,
        log or MemoryTransactionLog(),
        partitions or MarkedPartitions(),
        config or TransactionsConfig(),
    )
    rounds = iter([tuple(found_open), ()])
    await harness.host.start(lambda: next(rounds))
    try:
        yield harness
    finally:
        await harness.host.close()
        harness.shell.close()


def _same(value: Any) -> Any:  # noqa: ANN401 - passes on what it is given.
    return value


def _report(doing: str, error: Exception) -> None:
    raise AssertionError(doing) from error

"""The APIs of transactions in front of a coordinator, groups and real topics, without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kohort.broker.coordinator.coordinator import GroupCoordinator
from kohort.broker.coordinator.log.topic_log import TopicOffsetsLog
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.runtime.clock import SystemClock
from kohort.broker.runtime.purgatory_shell import PurgatoryShell
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.broker.topics.internal_log import InternalLog
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import TRANSACTION_STATE
from kohort.broker.transactions.host import TransactionHost, TransactionsConfig
from kohort.broker.transactions.log import TopicTransactionLog
from kohort.broker.transactions.markers import PartitionMarkers
from kohort.broker.transactions.transactions import Transactions
from kohort.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.brokers.running_topics import running_topics
from tests.support.groups.coordinators import group_coordinator, report
from tests.support.groups.running_groups import RunningGroups
from tests.support.records.storage_tools import memory_store

TIMEOUT_MS = 60_000


class RunningTransactions(RunningGroups):
    """A broker as far as transactions need one, with the topics "t" and "u" of three partitions."""

    def __init__(
        self, topics: TopicManager, groups: GroupCoordinator, transactions: Transactions
    ) -> None:
        super().__init__(topics, groups)
        self.transactions = transactions
        self.services.transactions = transactions

    async def init(
        self,
        name: str | None = "id",
        version: int = 5,
        **changes: Any,  # noqa: ANN401
    ) -> InitProducerIdResponse:
        fields = {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS} | changes
        response: InitProducerIdResponse = await self.ask(InitProducerIdRequest(**fields), version)
        return response

    def produce(self, producer_id: int, epoch: int, sequence: int = 0, *, index: int = 0) -> None:
        """Append a record of a transaction to the topic "t", as Produce does at its end."""
        batch = encode_batch(
            [Record(b"value", timestamp=1_700_000_000_000)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        partition = self.topics.partition("t", index)
        assert partition is not None
        partition.append(batch, read_header(batch), wall_ms=self.topics.clock.wall_ms())


@asynccontextmanager
async def running_transactions(
    *overrides: str,
    files: FileSystem | None = None,
    store: MetadataStore | None = None,
    config: TransactionsConfig | None = None,
) -> AsyncIterator[RunningTransactions]:
    """Started at the beginning, closed at the end; `files` and `store` may be those of another."""

    clock = SystemClock()
    async with running_topics(
        Path("/data"),
        *overrides,
        clock=clock,
        files=files or SimulatedFileSystem(),
        store=store or memory_store(),
    ) as topics:
        for name in ("t", "u"):
            if topics.get(name) is None:
                await topics.changes.create_topic(name, partition_count=3)
        purgatory = Purgatory(report=report)
        shell = PurgatoryShell(purgatory, clock)
        offsets = TopicOffsetsLog(topics, topics.settings.config)
        groups = group_coordinator(purgatory, clock, log=offsets)
        log = InternalLog(topics, TRANSACTION_STATE, partition_count=5, configs={})
        host = TransactionHost(
            config or TransactionsConfig(),
            log=TopicTransactionLog(log),
            markers=PartitionMarkers(topics.partition, groups, clock),
            purgatory=purgatory,
            clock=clock,
            new_producer_id=topics.next_producer_id,
        )
        await groups.host.start()
        await host.start()
        try:
            yield RunningTransactions(topics, groups, Transactions(host))
        finally:
            await host.close()
            await groups.host.close()
            shell.close()

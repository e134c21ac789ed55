"""The APIs of transactions in front of a coordinator, groups and real topics, without a network."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kohort.broker.coordinator.coordinator import GroupCoordinator
from kohort.broker.coordinator.offsets_log import TopicOffsetsLog
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.runtime.clock import SystemClock
from kohort.broker.runtime.purgatory_shell import PurgatoryShell
from kohort.broker.topics.internal_log import InternalLog
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import TRANSACTION_STATE
from kohort.broker.transactions.host import TransactionHost, TransactionsConfig
from kohort.broker.transactions.markers import PartitionMarkers
from kohort.broker.transactions.reconciling import find_epochs, find_open
from kohort.broker.transactions.transactions import Transactions
from kohort.protocol.records.batch import read_header, split_batches
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing.inline_executor import InlineExecutor
from kohort.testing.lasting_metadata import LastingMetadata
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support import messages as m
from tests.support.brokers.running_topics import running_topics
from tests.support.groups.coordinators import group_coordinator, report
from tests.support.groups.running_groups import RunningGroups

TIMEOUT_MS = 60_000
DIRECTORY = Path("/data")


class Disk:
    """What brokers leave to the next one, in memory."""

    def __init__(self) -> None:
        self.files = SimulatedFileSystem()
        self.store = LastingMetadata()

    def cut(self, topic: str, index: int, *, batches: int = 1) -> None:
        """Take the last batches of a partition away, as a loss of power does."""
        directory = f"{DIRECTORY}/{topic}-{index}"
        names = [entry.name for entry in self.files.entries(directory)]
        (log,) = (name for name in names if name.endswith(".log"))
        file = self.files.file(f"{directory}/{log}")
        ends = [0]
        for header, _ in split_batches(file.pread(file.size(), 0)):
            ends.append(ends[-1] + header.size_bytes)
        file.truncate(ends[-1 - batches])


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
    ) -> m.InitProducerIdResponse:
        fields = {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS} | changes
        response: m.InitProducerIdResponse = await self.ask(
            m.InitProducerIdRequest(**fields), version
        )
        return response

    def produce(self, producer_id: int, epoch: int, sequence: int = 0, *, index: int = 0) -> None:
        """Append a record of a transaction to the topic "t", as Produce does at its end."""
        now = self.topics.clock.wall_ms()
        batch = encode_batch(
            [Record(b"value", timestamp=now)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        partition = self.topics.partition("t", index)
        assert partition is not None
        partition.append(batch, read_header(batch), wall_ms=now)


async def transaction_host(
    topics: TopicManager,
    groups: GroupCoordinator,
    purgatory: Purgatory,
    config: TransactionsConfig,
    *,
    partition_count: int,
) -> TransactionHost:
    """Started on what is on the disk."""
    host = TransactionHost(
        config,
        log=InternalLog(topics, TRANSACTION_STATE, partition_count=partition_count, configs={}),
        markers=PartitionMarkers(topics.partition, groups, topics.clock),
        purgatory=purgatory,
        clock=topics.clock,
        new_producer_id=topics.next_producer_id,
    )
    was_clean = topics.disk.data.was_clean
    await host.start(
        lambda: () if was_clean else find_open(list(topics.disk.opened())),
        lambda: () if was_clean else find_epochs(list(topics.disk.opened())),
    )
    return host


@asynccontextmanager
async def running_transactions(
    *overrides: str,
    disk: Disk | None = None,
    stop_cleanly: bool = True,
    config: TransactionsConfig | None = None,
) -> AsyncIterator[RunningTransactions]:
    """Started at the beginning, closed at the end.

    Args:
        disk: what another has left, or a new one.
        stop_cleanly: else it ends as if the process were killed.
    """
    clock, disk = SystemClock(), disk or Disk()
    async with running_topics(
        DIRECTORY,
        "offsets.topic.num.partitions=3",
        *overrides,
        clock=clock,
        files=disk.files,
        store=disk.store,
        stop_cleanly=stop_cleanly,
        # The disk is nothing for several threads at once.
        executor=InlineExecutor(),
    ) as topics:
        for name in ("t", "u"):
            if topics.get(name) is None:
                await topics.changes.create_topic(name, partition_count=3)
        purgatory = Purgatory(report=report)
        shell = PurgatoryShell(purgatory, clock)
        offsets = TopicOffsetsLog(topics, topics.settings.config)
        groups = group_coordinator(purgatory, clock, log=offsets)
        await groups.host.start()
        host = await transaction_host(
            topics, groups, purgatory, config or TransactionsConfig(), partition_count=5
        )
        try:
            yield RunningTransactions(topics, groups, Transactions(host))
        finally:
            if not stop_cleanly:
                for task in host._tasks:
                    task.cancel()
            await host.close()
            await groups.host.close()
            shell.close()

"""The inputs of a scrape, imported at the first scrape. Does not import prometheus-client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor

    from kohort.broker.coordinator.host import GroupHost
    from kohort.broker.core.purgatory import Purgatory
    from kohort.broker.groups_seen import SharesSeen
    from kohort.broker.history.history import RebalanceHistory
    from kohort.broker.metrics.broker_metrics import BrokerMetrics
    from kohort.broker.metrics.rebalances import RebalanceMetrics
    from kohort.broker.network.server.server import NetworkServer
    from kohort.broker.runtime.background_tasks import BackgroundTasks
    from kohort.broker.runtime.clock import Clock
    from kohort.broker.topics.manager import TopicManager
    from kohort.broker.topics.startup_progress import StartupProgress
    from kohort.broker.transactions.host import TransactionHost


@dataclass(frozen=True)
class BrokerSource:
    """The parts of a broker that a scrape and the console read, on the event loop."""

    metrics: BrokerMetrics
    topics: TopicManager
    groups: GroupHost
    transactions: TransactionHost
    shares: SharesSeen
    history: RebalanceHistory
    rebalances: RebalanceMetrics
    purgatory: Purgatory
    network: NetworkServer
    tasks: BackgroundTasks
    clock: Clock
    node_id: int
    address: str
    """Address as advertised: host:port."""
    version: str
    startup: StartupProgress
    executor: Executor
    """Runs blocking reads."""
    offloaded_reads: asyncio.Semaphore
    """Acquired while another thread reads a log."""

"""The meters of one broker, and the other inputs of a scrape. Light: no prometheus-client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.metrics.stalls import GcPauseMeter, LoopLagMeter
from kohort.broker.metrics.tally import HistogramTally
from kohort.protocol.records.control import ControlType

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor

    from kohort.broker.coordinator.host import GroupHost
    from kohort.broker.core.purgatory import Purgatory
    from kohort.broker.groups_seen import SharesSeen
    from kohort.broker.history.history import RebalanceHistory
    from kohort.broker.metrics.rebalances import RebalanceMetrics
    from kohort.broker.network.server.server import NetworkServer
    from kohort.broker.runtime.background_tasks import BackgroundTasks
    from kohort.broker.runtime.clock import Clock
    from kohort.broker.topics.manager import TopicManager
    from kohort.broker.topics.startup_progress import StartupProgress
    from kohort.broker.transactions.host import TransactionHost


TRANSACTION_BOUNDS_S: Final = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Bounds of the buckets, in seconds: 60 is the usual transaction timeout, 900 the default of the
longest allowed one."""

RESULTS: Final = {ControlType.COMMIT: "commit", ControlType.ABORT: "abort"}


class TransactionMetrics:
    """Counts durations since the start, as an observer of the transactions; `TransactionHost` has
    the other counters.
    """

    def __init__(self) -> None:
        self.durations: Final = {result: HistogramTally(TRANSACTION_BOUNDS_S) for result in RESULTS}

    def on_transaction_ended(self, result: ControlType, duration_ms: int) -> None:
        """Count a transaction whose markers have all been written."""
        self.durations[result].observe(duration_ms / 1_000)


class BrokerMetrics:
    """Meters that count while the broker runs."""

    def __init__(self) -> None:
        self.edge = EdgeMetrics()
        self.transactions = TransactionMetrics()
        self.loop_lag = LoopLagMeter()
        self.gc_pauses = GcPauseMeter()

    def start(self) -> None:
        """Start the meters with timers or callbacks. Call it on the event loop to be measured."""
        self.loop_lag.start()
        self.gc_pauses.start()

    def stop(self) -> None:
        self.loop_lag.stop()
        self.gc_pauses.stop()


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


class MetricsConfig(Protocol):
    @property
    def kohort_metrics_partitions_max(self) -> int: ...
    @property
    def kohort_metrics_groups_max(self) -> int: ...
    @property
    def kohort_metrics_group_partitions_max(self) -> int: ...

"""The parts of a broker that the console reads."""

import asyncio
from concurrent.futures import Executor
from typing import NamedTuple

from kohort.broker.coordinator import GroupCoordinator
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.history.history import RebalanceHistory
from kohort.broker.metrics.loop_lag import LoopLagMeter
from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.network.server.server import NetworkServer
from kohort.broker.runtime.clock import Clock
from kohort.broker.topics.manager import TopicManager


class ConsoleSource(NamedTuple):
    """The parts of a broker. All are used from the event loop's thread only."""

    groups: GroupCoordinator
    history: RebalanceHistory
    topics: TopicManager
    clock: Clock
    executor: Executor
    offloaded_reads: asyncio.Semaphore
    """Acquired while a log is read on another thread."""
    network: NetworkServer
    purgatory: Purgatory
    edge: EdgeMetrics
    loop_lag: LoopLagMeter
    node_id: int
    cluster_id: str
    address: str
    """Address as advertised: host:port."""
    version: str
    began_ms: int
    """Wall time at which the broker began to serve."""

"""The registry of one broker's metrics with the collectors of its edge and its process, and the
writing of a scrape.

Imports prometheus-client, which takes 50 ms and 5 MiB: import this module when it is needed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector as ClientProcessCollector
from prometheus_client.registry import CollectorRegistry

from kohort.broker.metrics import catalogue
from kohort.broker.metrics.broker_metrics import BrokerMetrics, MetricsConfig, MetricsSource
from kohort.broker.metrics.families import Family, counted, single
from kohort.broker.metrics.groups import GroupCollector, LoadTimeCollector
from kohort.broker.metrics.lag_times import LagTimeCollector, OldestUnread
from kohort.broker.metrics.partitions import readable
from kohort.broker.metrics.rebalance_collector import HistoryCollector, RebalanceCollector
from kohort.broker.metrics.requests import DURATION_BOUNDS_S, EdgeMetrics
from kohort.broker.metrics.stalls import GcPauseMeter, LoopLagMeter
from kohort.broker.metrics.tally import HistogramTally
from kohort.broker.metrics.text_format import TextFormat, write
from kohort.broker.metrics.topics import TopicCollector
from kohort.broker.metrics.transaction_collector import TransactionCollector
from kohort.broker.runtime.slices import Slice
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from kohort.broker.core.purgatory import Purgatory
    from kohort.broker.network.server.server import NetworkServer
    from kohort.broker.runtime.background_tasks import BackgroundTasks
    from kohort.broker.topics.startup_progress import StartupProgress

_ERROR_NAMES = {code.value: code.name for code in ErrorCode}


class EdgeCollector:
    def __init__(self, edge: EdgeMetrics) -> None:
        self._edge = edge

    def collect(self) -> Iterator[Metric]:
        yield from self._collect_requests()
        edge = self._edge
        yield counted(catalogue.REQUESTS_REJECTED, edge.rejected)
        yield counted(catalogue.ACCESS_DENIED, edge.denied)
        yield single(catalogue.REQUESTS_WAITING, edge.waiting_count)
        yield single(catalogue.CONNECTIONS, edge.connection_count)
        yield single(catalogue.CONNECTIONS_OPENED, edge.opened_count)
        yield counted(catalogue.CONNECTIONS_REFUSED, edge.refused)
        yield counted(catalogue.CONNECTIONS_CLOSED, edge.closed)
        yield counted(catalogue.AUTHENTICATIONS, edge.authentications)
        expiry = Family(catalogue.CERTIFICATE_EXPIRY)
        failures = Family(catalogue.TLS_RELOAD_FAILURES)
        for certificate in edge.certificates:
            expiry.add(certificate.expires_s, certificate.listener)
            failures.add(certificate.reload_failures, certificate.listener)
        yield expiry
        yield failures
        users_file_failures = Family(catalogue.USERS_FILE_FAILURES)
        if edge.users_file is not None:
            users_file_failures.add(edge.users_file.reload_failures)
        yield users_file_failures
        yield single(catalogue.RECEIVED_BYTES, edge.received_bytes)
        yield single(catalogue.SENT_BYTES, edge.sent_bytes)

    def _collect_requests(self) -> Iterator[Metric]:
        requests = Family(catalogue.REQUESTS)
        durations: dict[str, HistogramTally] = {}
        errors: Counter[tuple[str, str]] = Counter()
        for meter in self._edge.request_meters():
            requests.add(sum(meter.duration.counts), meter.api, str(meter.version))
            total = durations.setdefault(meter.api, HistogramTally(DURATION_BOUNDS_S))
            total.add(meter.duration)
            for code, count in meter.errors.items():
                errors[meter.api, _ERROR_NAMES.get(int(code), str(int(code)))] += count
        yield requests
        duration = Family(catalogue.REQUEST_DURATION)
        for api, total in durations.items():
            duration.add_histogram(total, api)
        yield duration
        yield counted(catalogue.REQUEST_ERRORS, errors)
        storage_errors = (
            count
            for (_, name), count in errors.items()
            if name == ErrorCode.KAFKA_STORAGE_ERROR.name
        )
        yield single(catalogue.STORAGE_ERRORS, sum(storage_errors))


class MemoryCollector:
    def __init__(self, network: NetworkServer) -> None:
        self._network = network

    def collect(self) -> Iterator[Metric]:
        yield single(catalogue.REQUEST_BYTES_HELD, self._network.memory.used_bytes)
        yield single(catalogue.RESPONSE_BYTES_HELD, self._network.unsent.total_bytes)


class PurgatoryCollector:
    """Collector of waiting operations, by Kafka's name of the operation type."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory

    def collect(self) -> Iterator[Metric]:
        size = Family(catalogue.PURGATORY_SIZE)
        delayed = Family(catalogue.NUM_DELAYED_OPERATIONS)
        for kind, counts in self._purgatory.stats().items():
            size.add(counts["watched"], kind)
            delayed.add(counts["delayed"], kind)
        yield size
        yield delayed
        yield single(catalogue.PURGATORY_HELD_BYTES, self._purgatory.held_bytes)


class ProcessCollector:
    """Collects the event loop's lag, garbage collector pauses, background tasks, the version."""

    def __init__(
        self,
        loop_lag: LoopLagMeter,
        gc_pauses: GcPauseMeter,
        tasks: BackgroundTasks,
        *,
        version: str,
    ) -> None:
        self._loop_lag = loop_lag
        self._gc_pauses = gc_pauses
        self._tasks = tasks
        self._version = version

    def collect(self) -> Iterator[Metric]:
        lag = Family(catalogue.LOOP_LAG)
        lag.add_histogram(self._loop_lag.lag)
        yield lag
        yield single(catalogue.LOOP_LAG_MAX, self._loop_lag.recent_maximum_s)
        pauses = Family(catalogue.GC_PAUSE)
        for generation, tally in enumerate(self._gc_pauses.pauses):
            pauses.add_histogram(tally, str(generation))
        yield pauses
        yield counted(catalogue.TASK_FAILURES, self._tasks.failure_counts)
        yield single(catalogue.TASKS_FAILING, len(self._tasks.failing()))
        yield counted(catalogue.BUILD_INFO, {self._version: 1})


class ClusterCollector:
    def __init__(self, *, node_id: int, address: str) -> None:
        self._node_id = node_id
        self._address = address

    def collect(self) -> Iterator[Metric]:
        yield single(catalogue.BROKERS, 1)
        yield counted(catalogue.BROKER_INFO, {(str(self._node_id), self._address): 1})


class DiskCollector:
    def __init__(self, executor: Executor, directory: Path) -> None:
        self._executor = executor
        self._directory = directory
        self._status: os.statvfs_result | None = None

    async def refresh(self) -> None:
        """Read the sizes on another thread: a network file system may not respond."""
        loop = asyncio.get_running_loop()
        try:
            self._status = await loop.run_in_executor(self._executor, os.statvfs, self._directory)
        except OSError:
            self._status = None

    def collect(self) -> Iterator[Metric]:
        size, free = Family(catalogue.DISK_BYTES), Family(catalogue.DISK_FREE_BYTES)
        if self._status is not None:
            size.add(self._status.f_blocks * self._status.f_frsize)
            free.add(self._status.f_bavail * self._status.f_frsize)
        yield size
        yield free


class StartupCollector:
    def __init__(self, startup: StartupProgress) -> None:
        self._startup = startup

    def collect(self) -> Iterator[Metric]:
        startup = self._startup
        yield single(catalogue.STARTING, 1 if startup.phase else 0)
        yield single(catalogue.STARTUP_PARTITIONS, startup.partitions_total)
        yield single(catalogue.STARTUP_PARTITIONS_VERIFIED, startup.partitions_verified)
        yield single(catalogue.STARTUP_BYTES, startup.bytes_total)
        yield single(catalogue.STARTUP_BYTES_VERIFIED, startup.bytes_verified)


class StartupExposition:
    """The metrics of a broker that is starting."""

    def __init__(self, startup: StartupProgress) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(StartupCollector(startup))
        ClientProcessCollector(registry=self._registry)

    async def write(self, text_format: TextFormat) -> list[bytes]:
        """Return the exposition in parts."""
        return list(write(self._registry.collect(), text_format))


class ScrapeCollector:
    def __init__(self) -> None:
        self.folded: dict[str, int] = {}
        """Number of label sets without their own series, by kind."""
        self.seconds = 0.0

    def collect(self) -> Iterator[Metric]:
        yield counted(catalogue.FOLDED, self.folded)
        yield single(catalogue.SCRAPE_SECONDS, self.seconds)


SLICE_MS: Final = 1
"""Time budget per event loop iteration: short, because a scrape is not urgent."""


class Exposition:
    def __init__(
        self,
        metrics: BrokerMetrics,
        source: MetricsSource,
        config: MetricsConfig,
        oldest_unread: OldestUnread,
    ) -> None:
        self._clock = source.clock
        self._topics = TopicCollector(
            source.topics,
            node_id=source.node_id,
            partitions_max=config.kohort_metrics_partitions_max,
            late_before_ms=lambda: source.transactions.late_before_ms,
        )
        self._groups = GroupCollector(
            source.groups,
            partial(readable, source.topics),
            groups_max=config.kohort_metrics_groups_max,
            group_partitions_max=config.kohort_metrics_group_partitions_max,
        )
        self._lag_times = LagTimeCollector(
            source.groups, oldest_unread, source.clock, groups_max=config.kohort_metrics_groups_max
        )
        self._disk = DiskCollector(source.executor, source.topics.directory)
        self._scrape = ScrapeCollector()
        # A registry of its own: the global one would include metrics of everything imported into
        # the process.
        self.registry = CollectorRegistry()
        for collector in (
            ClusterCollector(node_id=source.node_id, address=source.address),
            self._topics,
            self._groups,
            self._lag_times,
            LoadTimeCollector(source.groups),
            EdgeCollector(metrics.edge),
            MemoryCollector(source.network),
            RebalanceCollector(source.rebalances),
            HistoryCollector(source.history),
            TransactionCollector(source.transactions, metrics.transactions),
            PurgatoryCollector(source.purgatory),
            self._disk,
            StartupCollector(source.startup),
            ProcessCollector(
                metrics.loop_lag, metrics.gc_pauses, source.tasks, version=source.version
            ),
            self._scrape,
        ):
            self.registry.register(collector)
        ClientProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    async def write(self, text_format: TextFormat) -> list[bytes]:
        """Return the exposition in parts. Must not be called again before it returns."""
        began = time.perf_counter()
        time_slice = Slice(self._clock, SLICE_MS)
        try:
            await self._topics.refresh(time_slice)
            await self._groups.refresh(time_slice)
            await self._lag_times.refresh(time_slice)
            await self._disk.refresh()
            self._scrape.folded = self._topics.folded | self._groups.folded
            parts = []
            for text in write(self.registry.collect(), text_format):
                parts.append(text)
                await time_slice.pause()
        finally:
            self._topics.forget()
            self._groups.forget()
        self._scrape.seconds = time.perf_counter() - began
        return parts

"""The exposition of one broker's metrics.

Imports prometheus-client, which takes 50 ms and 5 MiB: import this module when it is needed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from kohort.broker.core.transaction.effects import EndCause
from kohort.broker.metrics.broker_metrics import BrokerMetrics
from kohort.broker.metrics.families import COORDINATOR, Family, counted, load_times, single
from kohort.broker.metrics.groups import GroupCollector, LagTimeCollector, OldestUnread
from kohort.broker.metrics.partitions import readable
from kohort.broker.metrics.rebalance_collector import RebalanceCollector, history_metrics
from kohort.broker.metrics.requests import DURATION_BOUNDS_S, EdgeMetrics
from kohort.broker.metrics.share import ShareCollector
from kohort.broker.metrics.source import BrokerSource
from kohort.broker.metrics.tally import HistogramTally
from kohort.broker.metrics.text_format import write
from kohort.broker.metrics.topics import TopicCollector
from kohort.broker.metrics.transactions import RESULTS, TransactionMetrics
from kohort.broker.runtime.slices import Slice
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.broker.config import BrokerConfig
    from kohort.broker.core.purgatory import Purgatory
    from kohort.broker.network.server.server import NetworkServer
    from kohort.broker.runtime.background_tasks import BackgroundTasks
    from kohort.broker.topics.startup_progress import StartupProgress
    from kohort.broker.transactions.host import TransactionHost


_ERROR_NAMES = {code.value: code.name for code in ErrorCode}


def edge_metrics(edge: EdgeMetrics) -> Iterator[Metric]:
    """Yield the metrics of requests and connections."""
    yield from _request_metrics(edge)
    yield counted("kohort_requests_rejected_total", edge.rejected)
    yield counted("kohort_access_denied_total", edge.denied)
    yield single("kohort_requests_waiting", edge.waiting_count)
    yield single("kohort_connections", edge.connection_count)
    yield single("kohort_connections_opened_total", edge.opened_count)
    yield counted("kohort_connections_refused_total", edge.refused)
    yield counted("kohort_connections_closed_total", edge.closed)
    yield counted("kohort_authentications_total", edge.authentications)
    tls = edge.certificates
    expiries = {each.listener: each.expires_s for each in tls}
    yield counted("kohort_tls_certificate_expiry_timestamp_seconds", expiries)
    failures = {each.listener: each.reload_failures for each in tls}
    yield counted("kohort_tls_reload_failures_total", failures)
    users = edge.users_file
    users_failures = {} if users is None else {(): users.reload_failures}
    yield counted("kohort_users_file_reload_failures_total", users_failures)
    yield single("kohort_received_bytes_total", edge.received_bytes)
    yield single("kohort_sent_bytes_total", edge.sent_bytes)


def _request_metrics(edge: EdgeMetrics) -> Iterator[Metric]:
    requests = Family("kohort_requests_total")
    durations: dict[str, HistogramTally] = {}
    errors: Counter[tuple[str, str]] = Counter()
    for meter in edge.request_meters():
        requests.add(sum(meter.duration.counts), meter.api, str(meter.version))
        total = durations.setdefault(meter.api, HistogramTally(DURATION_BOUNDS_S))
        total.add(meter.duration)
        for code, count in meter.errors.items():
            errors[meter.api, _ERROR_NAMES.get(int(code), str(int(code)))] += count
    yield requests
    duration = Family("kohort_request_duration_seconds")
    for api, total in durations.items():
        duration.add_histogram(total, api)
    yield duration
    yield counted("kohort_request_errors_total", errors)
    storage_errors = (
        count for (_, name), count in errors.items() if name == ErrorCode.KAFKA_STORAGE_ERROR.name
    )
    yield single("kohort_storage_errors_total", sum(storage_errors))


def memory_metrics(network: NetworkServer) -> Iterator[Metric]:
    yield single("kohort_request_bytes_held", network.memory.used_bytes)
    yield single("kohort_response_bytes_held", network.unsent.total_bytes)


def transaction_metrics(host: TransactionHost, metrics: TransactionMetrics) -> Iterator[Metric]:
    opened = host.ids.open()
    yield single("kohort_transactions_open", len(opened))
    oldest = Family("kohort_transactions_oldest_since_seconds")
    first = next(iter(opened), None)
    if first is not None and first.record is not None:
        oldest.add(first.record.start_ms / 1_000)
    yield oldest
    yield single("kohort_transactions_stuck", host.stuck_count)
    yield single("kohort_transactional_ids", len(host.ids))
    counts = host.counts
    yield single("kohort_transactions_started_total", counts.get("started", 0))
    yield single("kohort_transaction_markers_superseded_total", counts.get("superseded_markers", 0))
    yield single("kohort_transactions_reconciled_total", counts.get("reconciled", 0))
    yield single("kohort_transaction_append_failures_total", counts.get("append_failures", 0))
    forgotten = {cause: counts.get(cause, 0) for cause in ("expired", "evicted")}
    yield counted("kohort_transactional_ids_forgotten_total", forgotten)
    ended = {
        (result, ending.value): counts.get(f"{result}_by_{ending.value}", 0)
        for result in RESULTS.values()
        for ending in EndCause
    }
    yield counted("kohort_transactions_ended_total", ended)
    durations = Family("kohort_transaction_seconds")
    for result, tally in metrics.durations.items():
        durations.add_histogram(tally, RESULTS[result])
    yield durations
    yield from load_times("kafka_server_transaction_coordinator_metrics", host.load_times_ms)


def purgatory_metrics(purgatory: Purgatory) -> Iterator[Metric]:
    """Yield the numbers of waiting operations, by Kafka's name of the operation type."""
    stats = purgatory.stats()
    watched = {kind: counts["watched"] for kind, counts in stats.items()}
    yield counted("kafka_server_delayedoperationpurgatory_purgatorysize", watched)
    delayed = {kind: counts["delayed"] for kind, counts in stats.items()}
    yield counted("kafka_server_delayedoperationpurgatory_numdelayedoperations", delayed)
    yield single("kohort_purgatory_held_bytes", purgatory.held_bytes)


def _disk_metrics(status: os.statvfs_result | None) -> Iterator[Metric]:
    size, free = Family("kohort_disk_bytes"), Family("kohort_disk_free_bytes")
    if status is not None:
        size.add(status.f_blocks * status.f_frsize)
        free.add(status.f_bavail * status.f_frsize)
    yield size
    yield free


def _startup_metrics(startup: StartupProgress) -> Iterator[Metric]:
    yield single("kohort_starting", 1 if startup.phase else 0)
    yield single("kohort_startup_partitions", startup.partitions_total)
    yield single("kohort_startup_partitions_verified", startup.partitions_verified)
    yield single("kohort_startup_bytes", startup.bytes_total)
    yield single("kohort_startup_bytes_verified", startup.bytes_verified)


def _process_metrics(
    metrics: BrokerMetrics, tasks: BackgroundTasks, version: str
) -> Iterator[Metric]:
    lag = Family("kohort_event_loop_lag_seconds")
    lag.add_histogram(metrics.loop_lag.lag)
    yield lag
    yield single("kohort_event_loop_lag_max_seconds", metrics.loop_lag.recent_maximum_s)
    pauses = Family("kohort_gc_pause_seconds")
    for generation, tally in enumerate(metrics.gc_pauses.pauses):
        pauses.add_histogram(tally, str(generation))
    yield pauses
    yield counted("kohort_task_failures_total", tasks.failure_counts)
    yield single("kohort_tasks_failing", len(tasks.failing()))
    yield counted("kohort_build_info", {version: 1})


def scrape_metrics(folded: Mapping[str, int], seconds: float) -> Iterator[Metric]:
    """Yield the metrics of the scrape itself.

    Args:
        folded: how many topics, partitions or groups have no series of their own, by kind.
        seconds: the duration of the previous scrape.
    """
    yield counted("kohort_metrics_folded", folded)
    yield single("kohort_scrape_seconds", seconds)


class StartupExposition:
    """The metrics of a broker that is starting."""

    def __init__(self, startup: StartupProgress) -> None:
        self._startup = startup
        self._process = ProcessCollector(registry=None)

    async def write(self) -> list[bytes]:
        """Return the exposition in parts."""
        metrics = [*_startup_metrics(self._startup), *self._process.collect()]
        return list(write(metrics))


SLICE_MS: Final = 1
"""Time budget per event loop iteration: short, because a scrape is not urgent."""


class Exposition:
    def __init__(
        self,
        source: BrokerSource,
        config: BrokerConfig,
        oldest_unread: OldestUnread,
    ) -> None:
        self._source = source
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
        self._rebalances = RebalanceCollector(source.rebalances)
        self._share_groups = ShareCollector(source.shares, config.kohort_metrics_groups_max)
        self._disk: os.statvfs_result | None = None
        self._seconds = 0.0
        # A registry of its own: the global one would include metrics of everything imported into
        # the process.
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    async def write(self) -> list[bytes]:
        """Return the exposition in parts. Must not be called again before it returns."""
        began = time.perf_counter()
        time_slice = Slice(self._source.clock, SLICE_MS)
        try:
            await self._topics.refresh(time_slice)
            await self._groups.refresh(time_slice)
            await self._lag_times.refresh(time_slice)
            await self._share_groups.refresh(time_slice)
            await self._refresh_disk()
            parts = []
            for text in write(self._collect()):
                parts.append(text)
                await time_slice.pause()
        finally:
            self._topics.forget()
            self._groups.forget()
        self._seconds = time.perf_counter() - began
        return parts

    async def _refresh_disk(self) -> None:
        """Read the disk's size in another thread: a network file system may not respond."""
        loop, directory = asyncio.get_running_loop(), self._source.topics.directory
        try:
            self._disk = await loop.run_in_executor(self._source.executor, os.statvfs, directory)
        except OSError:
            self._disk = None

    def _collect(self) -> Iterator[Metric]:
        source = self._source
        metrics = source.metrics
        yield single("kafka_brokers", 1)
        yield counted("kafka_broker_info", {(str(source.node_id), source.address): 1})
        yield from self._topics.collect()
        yield from self._groups.collect()
        yield from self._lag_times.collect()
        yield from load_times(COORDINATOR, source.groups.load_times_ms)
        yield from edge_metrics(metrics.edge)
        yield from memory_metrics(source.network)
        yield from self._rebalances.collect()
        yield from history_metrics(source.history)
        yield from transaction_metrics(source.transactions, metrics.transactions)
        yield from self._share_groups.collect()
        yield from purgatory_metrics(source.purgatory)
        yield from _disk_metrics(self._disk)
        yield from _startup_metrics(source.startup)
        yield from _process_metrics(metrics, source.tasks, source.version)
        yield from scrape_metrics(self._topics.folded | self._groups.folded, self._seconds)
        yield from self._process.collect()

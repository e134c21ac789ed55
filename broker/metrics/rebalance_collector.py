"""Collects what the coordinator's groups went through."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from broker.metrics import catalogue
from broker.metrics.families import Family, single
from broker.metrics.rebalances import RebalanceMetrics


class RebalanceCollector:
    """Collector of what happened in groups since the start."""

    def __init__(self, rebalances: RebalanceMetrics) -> None:
        self._rebalances = rebalances

    def collect(self) -> Iterator[Metric]:
        counts = self._rebalances
        yield single(catalogue.COMPLETED_REBALANCES, counts.completed_count)
        yield single(catalogue.OFFSET_COMMITS, counts.offsets_stored)
        yield single(catalogue.OFFSET_EXPIRATIONS, counts.offsets_expired)
        yield single(catalogue.OFFSET_DELETIONS, counts.offsets_deleted)
        started = Family(catalogue.REBALANCES_STARTED)
        for cause, count in counts.started.items():
            started.add(count, cause)
        yield started
        avoided = Family(catalogue.REBALANCES_AVOIDED)
        for (cause, reason), count in counts.avoided.items():
            avoided.add(count, cause, reason)
        yield avoided
        removed = Family(catalogue.MEMBERS_REMOVED)
        for cause, count in counts.members_removed.items():
            removed.add(count, cause)
        yield removed
        phases = Family(catalogue.REBALANCE_PHASE)
        phases.add_histogram(counts.join_phase, "join")
        phases.add_histogram(counts.sync_phase, "sync")
        yield phases

"""The metrics of a watcher. Import this module lazily, because it imports prometheus-client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from kohort.broker.metrics.exposition import SLICE_MS, scrape_metrics
from kohort.broker.metrics.families import counted, family_name, single
from kohort.broker.metrics.group_counts import OTHER
from kohort.broker.metrics.groups import GroupCollector
from kohort.broker.metrics.rebalance_collector import RebalanceCollector, history_metrics
from kohort.broker.metrics.rebalances import GROUPS_MAX_DEFAULT, RebalanceMetrics
from kohort.broker.metrics.text_format import write
from kohort.broker.runtime.slices import Slice
from kohort.version import VERSION
from kohort.watch import catalogue
from kohort.watch.seen import WatchedGroups, WatchedRebalances

GROUP_PARTITIONS_MAX: Final = 10_000

_RUNNING: Final = frozenset(
    map(
        family_name,
        ("kohort_rebalances_running", "kohort_consumergroup_rebalance_waiting_since_seconds"),
    )
)
"""Metrics of running rebalances: computed from polls, because events report only stored ones."""

_SHOWN: Final = frozenset(map(family_name, catalogue.OF_BROKER)) - _RUNNING


class WatchExposition:
    """All metrics of a watcher; implements `Scraped`."""

    def __init__(
        self,
        cluster_id: str,
        groups: WatchedGroups,
        history: WatchedRebalances,
        metrics: RebalanceMetrics,
        *,
        unclear: Callable[[], int],
        lag: Callable[[], int],
    ) -> None:
        """`unclear` returns the number of rebalances without a clear cause, `lag` the number of
        records that are not read yet.
        """
        self._labels = {catalogue.CLUSTER: cluster_id}
        self._watched = groups
        self._unclear = unclear
        self._lag = lag
        self._groups = GroupCollector(
            groups,
            groups.readable,
            groups_max=GROUPS_MAX_DEFAULT,
            group_partitions_max=GROUP_PARTITIONS_MAX,
        )
        self._history = history
        # The events have the time of the coordinators, which is wall-clock time.
        self._rebalances = RebalanceCollector(metrics, time.time)
        self._seconds = 0.0
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)

    async def write(self) -> list[bytes]:
        """Return the exposition in parts. Must not be called again before it returns."""
        began = time.perf_counter()
        time_slice = Slice(self._watched, SLICE_MS)
        parts = []
        try:
            await self._groups.refresh(time_slice)
            for text in write(self._collect(), self._labels):
                parts.append(text)
                await time_slice.pause()
        finally:
            self._groups.forget()
        self._seconds = time.perf_counter() - began
        return parts

    def _collect(self) -> Iterator[Metric]:
        of_broker = chain(
            self._groups.collect(),
            self._rebalances.collect(),
            history_metrics(self._history),
            scrape_metrics(self._groups.folded, self._seconds),
        )
        yield from (metric for metric in of_broker if metric.name in _SHOWN)
        yield single(catalogue.LAG, self._lag())
        yield single(catalogue.UNCLEAR, self._unclear())
        yield counted("kohort_build_info", {VERSION: 1})
        yield from self._running()
        yield from self._process.collect()

    def _running(self) -> Iterator[Metric]:
        since: dict[str, int] = {}
        running = 0
        for group_id, waiting in self._watched.waiting():
            running += 1
            label = group_id if len(since) < GROUPS_MAX_DEFAULT else OTHER
            since[label] = min(waiting.since_ms, since.get(label, waiting.since_ms))
        yield single("kohort_rebalances_running", running)
        since_s = {group_id: since_ms / 1000 for group_id, since_ms in since.items()}
        yield counted("kohort_consumergroup_rebalance_waiting_since_seconds", since_s)

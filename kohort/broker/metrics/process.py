"""Collectors of the process as a whole, and of the scrape itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric

from kohort.broker.metrics import catalogue
from kohort.broker.metrics.families import Family, single
from kohort.broker.metrics.gc_pauses import GcPauseMeter
from kohort.broker.metrics.loop_lag import LoopLagMeter

if TYPE_CHECKING:
    from kohort.broker.runtime.background_tasks import BackgroundTasks


class ProcessCollector:
    """Collector of the event loop's lag, pauses of the garbage collector, the broker's own tasks
    and the version.
    """

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
        failures = Family(catalogue.TASK_FAILURES)
        for name, count in self._tasks.failure_counts.items():
            failures.add(count, name)
        yield failures
        yield single(catalogue.TASKS_FAILING, len(self._tasks.failing()))
        build = Family(catalogue.BUILD_INFO)
        build.add(1, self._version)
        yield build


class ClusterCollector:
    """Collector of the number of brokers, which is one."""

    def __init__(self, *, node_id: int, address: str) -> None:
        self._node_id = node_id
        self._address = address

    def collect(self) -> Iterator[Metric]:
        yield single(catalogue.BROKERS, 1)
        info = Family(catalogue.BROKER_INFO)
        info.add(1, str(self._node_id), self._address)
        yield info


class ScrapeCollector:
    """Collector of the scrapes themselves."""

    def __init__(self) -> None:
        self.folded: dict[str, int] = {}
        """Number of label sets without their own series, by kind."""
        self.seconds = 0.0

    def collect(self) -> Iterator[Metric]:
        folded = Family(catalogue.FOLDED)
        for kind, count in self.folded.items():
            folded.add(count, kind)
        yield folded
        yield single(catalogue.SCRAPE_SECONDS, self.seconds)

"""Collects states and outcomes of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import Metric

from kohort.broker.core.transaction.effects import EndCause
from kohort.broker.metrics import transaction_catalogue as catalogue
from kohort.broker.metrics.broker_metrics import RESULTS, TransactionMetrics
from kohort.broker.metrics.families import Family, counted, single
from kohort.broker.metrics.metric_info import MetricInfo

if TYPE_CHECKING:
    from kohort.broker.transactions.host import TransactionHost

_COUNTS: Final[tuple[tuple[MetricInfo, str], ...]] = (
    (catalogue.STARTED, "started"),
    (catalogue.SUPERSEDED, "superseded_markers"),
    (catalogue.RECONCILED, "reconciled"),
    (catalogue.APPEND_FAILURES, "append_failures"),
)
FORGOTTEN: Final = ("expired", "evicted")


class TransactionCollector:
    """Collector of the transactional ids and the outcomes of transactions."""

    def __init__(self, transactions: TransactionHost, metrics: TransactionMetrics) -> None:
        self._transactions = transactions
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        transactions = self._transactions
        opened = transactions.ids.open()
        yield single(catalogue.OPEN, len(opened))
        oldest = Family(catalogue.OLDEST_SINCE)
        first = next(iter(opened), None)
        if first is not None and first.record is not None:
            oldest.add(first.record.start_ms / 1_000)
        yield oldest
        yield single(catalogue.STUCK, transactions.stuck_count)
        yield single(catalogue.IDS, len(transactions.ids))
        yield from self._collect_counts()
        durations = Family(catalogue.DURATION)
        for result, tally in self._metrics.durations.items():
            durations.add_histogram(tally, RESULTS[result])
        yield durations
        load_times_ms = transactions.load_times_ms
        average_ms = sum(load_times_ms) / len(load_times_ms) if load_times_ms else 0
        yield single(catalogue.PARTITION_LOAD_MAX, max(load_times_ms, default=0))
        yield single(catalogue.PARTITION_LOAD_AVG, average_ms)

    def _collect_counts(self) -> Iterator[Metric]:
        counts = self._transactions.counts
        for info, name in _COUNTS:
            yield single(info, counts.get(name, 0))
        yield counted(catalogue.IDS_FORGOTTEN, {cause: counts.get(cause, 0) for cause in FORGOTTEN})
        ended = {
            (result, ending.value): counts.get(f"{result}_by_{ending.value}", 0)
            for result in RESULTS.values()
            for ending in EndCause
        }
        yield counted(catalogue.ENDED, ended)

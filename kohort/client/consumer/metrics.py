"""Exports a consumer's health and statistics to Prometheus, under the Java consumer's metric names.

The names are those that the Prometheus JMX exporter gives to a Java consumer's MBeans without any
rules, and also Strimzi's metrics reporter:
`kafka_consumer_consumer_coordinator_metrics_rebalance_total{client_id="..."}`. So dashboards and
alerts for Java consumers work with this one. Metrics that the Java consumer lacks begin with
`kohort_consumer_`.

Only this module of the client imports prometheus-client, so programs that do not import it do not
pay for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple, Protocol

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kohort.client.consumer.health import Health
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.statistics import NEVER, Figures, RebalancePhase

RUN_PREFIX: Final = "kohort_consumer_run_"


class _RunFigure(NamedTuple):
    name: str
    field: str
    text: str


RUN_COUNTERS: Final = (
    _RunFigure("records_handled", "handled", "Records whose handler returned."),
    _RunFigure("attempts_failed", "failed", "Failed attempts to handle a record."),
    _RunFigure("attempts_retried", "retried", "Attempts that were retried."),
    _RunFigure("dead_letters", "dead_lettered", "Records that were stored as dead letters."),
    _RunFigure(
        "dead_letters_failed",
        "dead_letter_failures",
        "Failed attempts to store a dead letter.",
    ),
    _RunFigure("records_skipped", "skipped", "Records that were skipped after their last attempt."),
    _RunFigure(
        "handlers_dropped",
        "dropped",
        "Handlers that were cancelled or returned too late; their records are read again.",
    ),
)
RUN_GAUGES: Final = (
    _RunFigure("records_in_flight", "in_flight", "Records that were started but are not done."),
    _RunFigure("records_waiting", "waiting", "Records that were taken but not started."),
    _RunFigure("held_bytes", "held_bytes", "Bytes of the in-flight and waiting records."),
    _RunFigure(
        "oldest_in_flight_seconds",
        "oldest_in_flight_seconds",
        "Seconds since the first attempt at the oldest record in flight; -1: none.",
    ),
    _RunFigure(
        "dead_letters_failing_seconds",
        "dead_letters_failing_seconds",
        "How long storing dead letters has been failing; -1: it is not failing.",
    ),
)


COORDINATOR: Final = "kafka_consumer_consumer_coordinator_metrics_"
FETCH: Final = "kafka_consumer_consumer_fetch_manager_metrics_"
CONSUMER: Final = "kafka_consumer_consumer_metrics_"
OWN: Final = "kohort_consumer_"


class Measured(Protocol):
    """The methods of a consumer that the collector uses. Neither waits."""

    def health(self) -> Health: ...

    def metrics(self) -> Figures:
        """The coordinator metrics under Java's names."""


class Figure(NamedTuple):
    name: str
    """The metric's Java name."""
    text: str


FIGURES: Final = (
    Figure("heartbeat-rate", "Recent heartbeat responses per second."),
    Figure("heartbeat-total", "Heartbeat responses."),
    Figure("heartbeat-response-time-max", "Longest recent heartbeat response time, ms."),
    Figure("last-heartbeat-seconds-ago", "Seconds since the last heartbeat response; -1: never."),
    Figure("join-time-avg", "Average recent JoinGroup response time, ms."),
    Figure("join-time-max", "Longest such wait recently, ms."),
    Figure("join-rate", "Recent JoinGroup responses per second."),
    Figure("join-total", "JoinGroup responses."),
    Figure("sync-time-avg", "Average recent SyncGroup response time, ms."),
    Figure("sync-time-max", "Longest such wait recently, ms."),
    Figure("sync-rate", "Recent SyncGroup responses per second."),
    Figure("sync-total", "SyncGroup responses."),
    Figure(
        "rebalance-latency-avg",
        "Average recent rebalance duration, from JoinGroup to assignment, ms.",
    ),
    Figure("rebalance-latency-max", "Longest recent rebalance, ms."),
    Figure("rebalance-latency-total", "Total time of all rebalances, ms."),
    Figure("rebalance-total", "Rebalances that ended with an assignment."),
    Figure("rebalance-rate-per-hour", "The same per hour, recently."),
    Figure("failed-rebalance-total", "Failed attempts to join."),
    Figure("failed-rebalance-rate-per-hour", "The same per hour, recently."),
    Figure("last-rebalance-seconds-ago", "Seconds since the last rebalance completed; -1: never."),
    Figure("commit-latency-avg", "Average recent OffsetCommit response time, ms."),
    Figure("commit-latency-max", "Longest such wait recently, ms."),
    Figure("commit-rate", "Recent successful commits per second."),
    Figure("commit-total", "Successful commits."),
    Figure("assigned-partitions", "Partitions that the consumer reads."),
)
"""All coordinator metrics in exposition order. "Recent" means the last 30 to 60 seconds, as in
Java."""


class ConsumerCollector(Collector):
    """Exports one or several consumers.
    `prometheus_client.REGISTRY.register(ConsumerCollector(consumer))`.

    Series are distinguished by `client_id`, so give each consumer its own. Per-partition series can
    be left out where there are many partitions. A closed consumer is reported as such until it is
    removed. Nothing is locked: scraping from another thread than the consumer's event loop may give
    slightly outdated values.
    """

    def __init__(self, *consumers: Measured, partitions: bool = True) -> None:
        """`partitions`: whether to export the lag of each partition."""
        self._consumers: list[Measured] = list(consumers)
        self._partitions = partitions

    def add(self, consumer: Measured) -> None:
        self._consumers.append(consumer)

    def remove(self, consumer: Measured) -> None:
        """Stop exporting this consumer; unknown ones are ignored."""
        self._consumers = [exported for exported in self._consumers if exported is not consumer]

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not query the consumers."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; called by prometheus-client for each scrape."""
        seen = [(consumer.health(), consumer.metrics()) for consumer in tuple(self._consumers)]
        healths = [health for health, _ in seen]
        for name, text in FIGURES:
            full = COORDINATOR + name.replace("-", "_")
            values = [(health, figures.get(name)) for health, figures in seen]
            yield _family(full, text, values, unknown=math.nan)
        yield from self._lags(healths)
        for name, text, value_of in _VALUES:
            yield _family(name, text, [(health, value_of(health)) for health in healths])
        states = [(health, health.member_state) for health in healths]
        yield _choice("member_state", "1 for the member's current state.", MemberState, states)
        yield _choice(
            "rebalance_phase",
            "1 for the current rebalance phase; none: no rebalance.",
            RebalancePhase,
            [(health, health.rebalance_phase) for health in healths],
        )
        # A consumer without a run has no series.
        runs = [(health, health.run) for health in healths if health.run is not None]
        for figures, ending in ((RUN_COUNTERS, "_total"), (RUN_GAUGES, "")):
            for name, field, text in figures:
                values = [(health, getattr(run, field)) for health, run in runs]
                yield _family(f"{RUN_PREFIX}{name}{ending}", text, values)

    def _lags(self, seen: list[Health]) -> Iterator[Metric]:
        highest = [
            (health, max((lag for lag in health.lag.values() if lag is not None), default=None))
            for health in seen
        ]
        name, text = f"{FETCH}records_lag_max", "Largest lag of any partition, in records."
        yield _family(name, text, highest, unknown=math.nan)
        if not self._partitions:
            return
        single = GaugeMetricFamily(
            f"{FETCH}records_lag",
            "Records behind the end of the partition.",
            labels=["client_id", "topic", "partition"],
        )
        for health in seen:
            for partition, lag in health.lag.items():
                if lag is not None:
                    labels = [health.client_id, partition.topic, str(partition.partition)]
                    single.add_metric(labels, lag)
        yield single


_VALUES: Final[tuple[tuple[str, str, Callable[[Health], float | None]], ...]] = (
    (
        f"{CONSUMER}last_poll_seconds_ago",
        "Seconds since the application last polled; -1: never.",
        lambda health: health.last_poll_seconds_ago,
    ),
    (
        f"{OWN}healthy",
        "1 if the consumer is healthy; health() says why not.",
        lambda health: health.is_healthy,
    ),
    (
        f"{OWN}ready",
        "1 if the consumer is reading all its partitions.",
        lambda health: health.is_ready,
    ),
    (
        f"{OWN}generation",
        "The generation that this member is in; -1: none.",
        lambda health: health.generation,
    ),
    (
        f"{OWN}unanswered_seconds_max",
        "Longest time that fetches of a partition have gone unanswered; 0: all answered.",
        lambda health: max(health.unanswered_seconds.values(), default=0),
    ),
    (
        f"{OWN}unread_partitions",
        "Partitions that cannot be read until the application seeks.",
        lambda health: len(health.unread),
    ),
    (
        f"{OWN}failed_commits_total",
        "Failed commit attempts.",
        lambda health: health.failed_commits,
    ),
    (
        f"{OWN}rebalance_seconds",
        "Seconds since the current rebalance began; -1: none.",
        lambda health: health.rebalance_seconds,
    ),
)


def _family(
    name: str,
    text: str,
    values: Iterable[tuple[Health, float | None]],
    *,
    unknown: float = NEVER,
) -> Metric:
    """Return a counter if the name ends in `total`, else a gauge."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(name, text, labels=["client_id"])
    for health, value in values:
        family.add_metric([health.client_id], unknown if value is None else value)
    return family


def _choice(
    name: str, text: str, options: type[Enum], values: Iterable[tuple[Health, Enum]]
) -> Metric:
    """Return a gauge with a series for each option, 1 for the current one."""
    family = GaugeMetricFamily(OWN + name, text, labels=["client_id", name.rpartition("_")[2]])
    for health, current in values:
        for option in options:
            family.add_metric([health.client_id, option.value], option is current)
    return family

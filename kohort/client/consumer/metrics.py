"""A consumer's health and statistics for Prometheus, under the names of the Java consumer's
metrics.

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
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kohort.client.consumer.health import Health
from kohort.client.core.group.membership import MemberState
from kohort.client.core.group.statistics import NEVER, Figures, RebalancePhase
from kohort.client.processing.metrics import run_metrics

COORDINATOR: Final = "kafka_consumer_consumer_coordinator_metrics_"
FETCH: Final = "kafka_consumer_consumer_fetch_manager_metrics_"
CONSUMER: Final = "kafka_consumer_consumer_metrics_"
OWN: Final = "kohort_consumer_"


class Measured(Protocol):
    """The interface that the collector needs of a consumer. Neither method waits."""

    def health(self) -> Health: ...

    def metrics(self) -> Figures:
        """The coordinator metrics under Java's names."""


class Figure(NamedTuple):
    """One of the coordinator metrics."""

    name: str
    """Java's name of it."""
    text: str


FIGURES: Final = (
    Figure("heartbeat-rate", "Heartbeats answered per second, recently."),
    Figure("heartbeat-total", "Heartbeats answered."),
    Figure("heartbeat-response-time-max", "Longest wait for a heartbeat's answer recently, ms."),
    Figure("last-heartbeat-seconds-ago", "Seconds since a heartbeat was last answered; -1: never."),
    Figure("join-time-avg", "Average wait for the answer to JoinGroup recently, ms."),
    Figure("join-time-max", "Longest such wait recently, ms."),
    Figure("join-rate", "JoinGroups answered per second, recently."),
    Figure("join-total", "JoinGroups answered."),
    Figure("sync-time-avg", "Average wait for the answer to SyncGroup recently, ms."),
    Figure("sync-time-max", "Longest such wait recently, ms."),
    Figure("sync-rate", "SyncGroups answered per second, recently."),
    Figure("sync-total", "SyncGroups answered."),
    Figure(
        "rebalance-latency-avg", "Average rebalance recently, from JoinGroup to assignment, ms."
    ),
    Figure("rebalance-latency-max", "Longest rebalance recently, ms."),
    Figure("rebalance-latency-total", "Total time of all rebalances, ms."),
    Figure("rebalance-total", "Rebalances that ended with an assignment."),
    Figure("rebalance-rate-per-hour", "The same per hour, recently."),
    Figure("failed-rebalance-total", "Attempts to join that failed."),
    Figure("failed-rebalance-rate-per-hour", "The same per hour, recently."),
    Figure("last-rebalance-seconds-ago", "Seconds since the last rebalance completed; -1: never."),
    Figure("commit-latency-avg", "Average wait for the answer to OffsetCommit recently, ms."),
    Figure("commit-latency-max", "Longest such wait recently, ms."),
    Figure("commit-rate", "Successful commits per second, recently."),
    Figure("commit-total", "Successful commits."),
    Figure("assigned-partitions", "Partitions that the consumer reads."),
)
"""All figures in the order of their exposition; recently means the last 30 to 60 seconds, as in
Java."""


class ConsumerCollector(Collector):
    """Exports one or several consumers.
    `prometheus_client.REGISTRY.register(ConsumerCollector(consumer))`.

    Series are distinguished by `client_id`, so give each consumer its own. Per-partition series can
    be left out where there are many partitions. A closed consumer is reported as such until it is
    removed. Nothing is locked: scraping from another thread than the consumer's event loop may give
    figures that are a moment old.
    """

    def __init__(self, *consumers: Measured, partitions: bool = True) -> None:
        """`partitions`: whether to export the lag of each partition."""
        self._consumers: list[Measured] = list(consumers)
        self._partitions = partitions

    def add(self, consumer: Measured) -> None:
        """Export this consumer as well."""
        self._consumers.append(consumer)

    def remove(self, consumer: Measured) -> None:
        """Stop exporting this consumer; unknown ones are ignored."""
        self._consumers = [one for one in self._consumers if one is not consumer]

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not query the consumers."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; called by prometheus-client for each scrape."""
        seen = [(consumer.health(), consumer.metrics()) for consumer in tuple(self._consumers)]
        yield from _figures(seen)
        yield _seconds(
            f"{CONSUMER}last_poll_seconds_ago",
            "Seconds since the application last polled; -1: never.",
            [(health, health.last_poll_seconds_ago) for health, _ in seen],
        )
        yield from self._lags([health for health, _ in seen])
        yield from _own([health for health, _ in seen])
        yield from run_metrics([(health.client_id, health.run) for health, _ in seen])

    def _lags(self, seen: list[Health]) -> Iterator[Metric]:
        highest = GaugeMetricFamily(
            f"{FETCH}records_lag_max",
            "Lag of the partition that is furthest behind, in records.",
            labels=["client_id"],
        )
        single = GaugeMetricFamily(
            f"{FETCH}records_lag",
            "Records behind the end of the partition.",
            labels=["client_id", "topic", "partition"],
        )
        for health in seen:
            known = [lag for lag in health.lag.values() if lag is not None]
            highest.add_metric([health.client_id], max(known, default=math.nan))
            if not self._partitions:
                continue
            for partition, lag in health.lag.items():
                if lag is not None:
                    labels = [health.client_id, partition.topic, str(partition.partition)]
                    single.add_metric(labels, lag)
        yield highest
        if self._partitions:
            yield single


def _figures(seen: list[tuple[Health, Figures]]) -> Iterator[Metric]:
    for name, text in FIGURES:
        full = COORDINATOR + name.replace("-", "_")
        kind = CounterMetricFamily if name.endswith("-total") else GaugeMetricFamily
        family = kind(full, text, labels=["client_id"])
        for health, figures in seen:
            value = figures.get(name)
            family.add_metric([health.client_id], math.nan if value is None else value)
        yield family


def _own(seen: list[Health]) -> Iterator[Metric]:
    healthy = GaugeMetricFamily(
        f"{OWN}healthy",
        "1 if the consumer does its work; health() says why not.",
        labels=["client_id"],
    )
    generation = GaugeMetricFamily(
        f"{OWN}generation",
        "The group's generation, as this member knows it; -1: none.",
        labels=["client_id"],
    )
    state = GaugeMetricFamily(
        f"{OWN}member_state",
        "1 for the state that the member is in.",
        labels=["client_id", "state"],
    )
    phase = GaugeMetricFamily(
        f"{OWN}rebalance_phase",
        "1 for the phase that the rebalance under way is in; none: there is none.",
        labels=["client_id", "phase"],
    )
    ready = GaugeMetricFamily(
        f"{OWN}ready", "1 if it reads all its partitions at this moment.", labels=["client_id"]
    )
    silent = GaugeMetricFamily(
        f"{OWN}unanswered_seconds_max",
        "The longest time that no broker has answered for a partition; 0: all answer.",
        labels=["client_id"],
    )
    unread = GaugeMetricFamily(
        f"{OWN}unread_partitions",
        "Partitions that cannot be read until the application seeks past the cause.",
        labels=["client_id"],
    )
    failed = CounterMetricFamily(
        f"{OWN}failed_commits_total", "Attempts to commit that failed.", labels=["client_id"]
    )
    for health in seen:
        failed.add_metric([health.client_id], health.failed_commits)
        healthy.add_metric([health.client_id], health.is_healthy)
        ready.add_metric([health.client_id], health.is_ready)
        silent.add_metric([health.client_id], max(health.unanswered_seconds.values(), default=0))
        unread.add_metric([health.client_id], len(health.unread))
        generation.add_metric([health.client_id], health.generation)
        for one in MemberState:
            state.add_metric([health.client_id, one.value], one is health.member_state)
        for each in RebalancePhase:
            phase.add_metric([health.client_id, each.value], each is health.rebalance_phase)
    yield from (healthy, ready, generation, state, phase, silent, unread, failed)
    yield _seconds(
        f"{OWN}rebalance_seconds",
        "Seconds since the current rebalance began; -1: there is none.",
        [(health, health.rebalance_seconds) for health in seen],
    )


def _seconds(name: str, text: str, values: list[tuple[Health, float | None]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["client_id"])
    for health, seconds in values:
        family.add_metric([health.client_id], NEVER if seconds is None else seconds)
    return family

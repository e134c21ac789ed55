"""A consumer's health and statistics for Prometheus, under the names of Java's consumer.

The names are those that the Prometheus JMX exporter gives to the MBeans of a Java consumer without
any rules, and Strimzi's metrics reporter as well:
`kafka_consumer_consumer_coordinator_metrics_rebalance_total{client_id="..."}`. Dashboards and
alerts for Java's consumers thus work with this one. What Java does not have begins with
`kohort_consumer_`.

prometheus-client is imported here and nowhere else in the client: a program that does not import
this module does not pay for it.
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

from kohort.client.core.group.membership import MemberState
from kohort.client.core.group.statistics import NEVER, Figures, RebalancePhase
from kohort.client.health import Health
from kohort.client.processing.metrics import run_metrics

COORDINATOR: Final = "kafka_consumer_consumer_coordinator_metrics_"
FETCH: Final = "kafka_consumer_consumer_fetch_manager_metrics_"
CONSUMER: Final = "kafka_consumer_consumer_metrics_"
OWN: Final = "kohort_consumer_"


class Measured(Protocol):
    """What is asked of a consumer. Both answers are made from memory, without waiting."""

    def health(self) -> Health: ...

    def metrics(self) -> Figures:
        """The coordinator's figures under Java's names."""


class Figure(NamedTuple):
    """One of the coordinator's figures."""

    name: str
    """Java's."""
    text: str


FIGURES: Final = (
    Figure("heartbeat-rate", "Heartbeats answered per second, lately."),
    Figure("heartbeat-total", "Heartbeats answered."),
    Figure("heartbeat-response-time-max", "Longest wait for such an answer lately, ms."),
    Figure("last-heartbeat-seconds-ago", "Since a heartbeat was last answered; -1: never."),
    Figure("join-time-avg", "Average wait for the answer to JoinGroup lately, ms."),
    Figure("join-time-max", "Longest such wait lately, ms."),
    Figure("join-rate", "JoinGroups answered per second, lately."),
    Figure("join-total", "JoinGroups answered."),
    Figure("sync-time-avg", "Average wait for the answer to SyncGroup lately, ms."),
    Figure("sync-time-max", "Longest such wait lately, ms."),
    Figure("sync-rate", "SyncGroups answered per second, lately."),
    Figure("sync-total", "SyncGroups answered."),
    Figure("rebalance-latency-avg", "Average rebalance lately, first JoinGroup to assignment, ms."),
    Figure("rebalance-latency-max", "Longest rebalance lately, ms."),
    Figure("rebalance-latency-total", "All rebalances together, ms."),
    Figure("rebalance-total", "Rebalances that came to an assignment."),
    Figure("rebalance-rate-per-hour", "The same per hour, lately."),
    Figure("failed-rebalance-total", "Attempts to join that failed."),
    Figure("failed-rebalance-rate-per-hour", "The same per hour, lately."),
    Figure("last-rebalance-seconds-ago", "Since the last rebalance was complete; -1: never."),
    Figure("commit-latency-avg", "Average wait for the answer to OffsetCommit lately, ms."),
    Figure("commit-latency-max", "Longest such wait lately, ms."),
    Figure("commit-rate", "Commits that were stored per second, lately."),
    Figure("commit-total", "Commits that were stored."),
    Figure("assigned-partitions", "Partitions that the consumer reads."),
)
"""In the order of their exposition; lately is half a minute to a minute, as in Java."""


class ConsumerCollector(Collector):
    """One or many consumers. `prometheus_client.REGISTRY.register(ConsumerCollector(consumer))`.

    Series are told apart by `client_id`, so give each consumer its own. Those of single partitions
    can be left out where there are many. A consumer that was removed has no series any more; one
    that is closed reports so until then. Not to be scraped from another thread than the consumer's
    loop runs in, unless a figure that is a moment old does no harm: nothing is locked.
    """

    def __init__(self, *consumers: Measured, partitions: bool = True) -> None:
        """`partitions`: whether each partition has a series for its lag."""
        self._consumers: list[Measured] = list(consumers)
        self._partitions = partitions

    def add(self, consumer: Measured) -> None:
        """Report this one, too."""
        self._consumers.append(consumer)

    def remove(self, consumer: Measured) -> None:
        """Do not report this one any more; unknown ones are ignored."""
        self._consumers = [one for one in self._consumers if one is not consumer]

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering asks no consumer."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus-client for each scrape."""
        seen = [(consumer.health(), consumer.metrics()) for consumer in tuple(self._consumers)]
        yield from _figures(seen)
        yield _seconds(
            f"{CONSUMER}last_poll_seconds_ago",
            "Since the application has last polled; -1: never.",
            [(health, health.last_poll_seconds_ago) for health, _ in seen],
        )
        yield from self._lags([health for health, _ in seen])
        yield from _own([health for health, _ in seen])
        yield from run_metrics([(health.client_id, health.run) for health, _ in seen])

    def _lags(self, seen: list[Health]) -> Iterator[Metric]:
        highest = GaugeMetricFamily(
            f"{FETCH}records_lag_max",
            "Records behind the end, of the partition that is furthest behind.",
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
        f"{OWN}generation", "Of the group, as this member knows it; -1: none.", labels=["client_id"]
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
        f"{OWN}ready", "1 if it reads all that it was given, at this moment.", labels=["client_id"]
    )
    silent = GaugeMetricFamily(
        f"{OWN}unanswered_seconds_max",
        "For how long no broker has answered for a partition that was asked for; 0: all answer.",
        labels=["client_id"],
    )
    unread = GaugeMetricFamily(
        f"{OWN}unread_partitions",
        "Partitions that cannot be read on, until the application seeks past the cause.",
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
        "How long the rebalance under way takes by now; -1: there is none.",
        [(health, health.rebalance_seconds) for health in seen],
    )


def _seconds(name: str, text: str, values: list[tuple[Health, float | None]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["client_id"])
    for health, seconds in values:
        family.add_metric([health.client_id], NEVER if seconds is None else seconds)
    return family

"""Prometheus metrics of runs. A part of `kohort.client.consumer.metrics.ConsumerCollector`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from kohort.client.core.group.statistics import NEVER
from kohort.client.processing.figures import RunFigures

PREFIX: Final = "kohort_consumer_run_"

Seen: TypeAlias = list[tuple[str, RunFigures | None]]
"""Pairs of `client_id` and the figures of its run."""


class _Family(NamedTuple):
    name: str
    field: str
    text: str


COUNTERS: Final = (
    _Family("records_handled", "handled", "Records whose handler returned."),
    _Family("attempts_failed", "failed", "Failed attempts to handle a record."),
    _Family("attempts_retried", "retried", "Attempts that were retried."),
    _Family("dead_letters", "dead_lettered", "Records that were stored as dead letters."),
    _Family(
        "dead_letters_failed",
        "dead_letter_failures",
        "Failed attempts to store a dead letter.",
    ),
    _Family("records_skipped", "skipped", "Records that were skipped after their last attempt."),
    _Family(
        "handlers_dropped",
        "dropped",
        "Handlers that were cancelled or returned too late; their records are read again.",
    ),
)
GAUGES: Final = (
    _Family("records_in_flight", "in_flight", "Records that were started but are not done."),
    _Family("records_waiting", "waiting", "Records that were taken but not started."),
    _Family("held_bytes", "held_bytes", "Bytes of the in-flight and waiting records."),
    _Family(
        "oldest_in_flight_seconds",
        "oldest_in_flight_seconds",
        "Seconds since the first attempt at the oldest record in flight; -1: none.",
    ),
    _Family(
        "dead_letters_failing_seconds",
        "dead_letters_failing_seconds",
        "How long storing dead letters has been failing; -1: it is not failing.",
    ),
)


def run_metrics(seen: Seen) -> Iterator[Metric]:
    """Yield the metrics of all runs; a consumer without a run has no series."""
    for each in COUNTERS:
        yield _filled(
            CounterMetricFamily(PREFIX + each.name, each.text, labels=["client_id"]), each, seen
        )
    for each in GAUGES:
        yield _filled(
            GaugeMetricFamily(PREFIX + each.name, each.text, labels=["client_id"]), each, seen
        )


def _filled(family: CounterMetricFamily | GaugeMetricFamily, each: _Family, seen: Seen) -> Metric:
    for client_id, figures in seen:
        if figures is not None:
            value = getattr(figures, each.field)
            family.add_metric([client_id], NEVER if value is None else value)
    return family

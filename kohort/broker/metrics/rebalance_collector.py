"""Collectors of rebalances, offset commits and the rebalance history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import Metric

from kohort.broker.metrics.families import (
    COORDINATOR,
    Family,
    Labels,
    Rows,
    WideFamily,
    counted,
    single,
)
from kohort.broker.metrics.group_counts import OTHER, GroupCounts
from kohort.broker.metrics.rebalances import RebalanceMetrics
from kohort.broker.metrics.tally import RecentRate

if TYPE_CHECKING:
    from kohort.broker.groups_seen import RebalancesSeen

RATE_PERIOD_S = 30.0
"""The period of Kafka's own rates (`metrics.sample.window.ms`)."""

_RATES: Final = {
    "completed_count": f"{COORDINATOR}_group_completed_rebalance",
    "bump_count": f"{COORDINATOR}_consumer_group_rebalance",
    "share_bump_count": f"{COORDINATOR}_share_group_rebalance",
    "offsets_stored": f"{COORDINATOR}_offset_commit",
    "offsets_expired": f"{COORDINATOR}_offset_expiration",
    "offsets_deleted": f"{COORDINATOR}_offset_deletion",
}
"""The counters of `RebalanceMetrics` that have a rate in Kafka, each with the prefix of its
metrics."""

_BY_LABEL: Final = (
    ("kohort_consumergroup_rebalances_avoided_total", "reason", attrgetter("avoided")),
    ("kohort_consumergroup_members_removed_total", "cause", attrgetter("removed")),
    ("kohort_consumergroup_epoch_bumps_total", "cause", attrgetter("bumps")),
)

_BY_GROUP: Final[dict[str, Callable[[GroupCounts], float]]] = {
    "kohort_consumergroup_stopped_seconds_total": lambda counts: counts.stopped_ms / 1000,
    "kohort_consumergroup_partitions_moved_total": attrgetter("partitions_moved"),
    "kohort_consumergroup_poll_timeouts_total": attrgetter("poll_timeouts"),
}

Shown = list[tuple[str, GroupCounts]]


class RebalanceCollector:
    def __init__(
        self, rebalances: RebalanceMetrics, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock_s` is the monotonic clock that stamps the events, in seconds."""
        self._rebalances = rebalances
        self._clock_s = clock_s
        began_s = clock_s()
        self._rates = {
            name: RecentRate(RATE_PERIOD_S, getattr(rebalances, name), began_s) for name in _RATES
        }

    def collect(self) -> Iterator[Metric]:
        yield from self._collect_kafka()
        yield from self._collect_totals()
        yield from self._collect_groups()

    def _collect_kafka(self) -> Iterator[Metric]:
        now_s = self._clock_s()
        for name, metric in _RATES.items():
            count = getattr(self._rebalances, name)
            yield single(f"{metric}_count", count)
            yield single(f"{metric}_rate", self._rates[name].rate_at(count, now_s))

    def _collect_totals(self) -> Iterator[Metric]:
        counts = self._rebalances
        yield counted("kohort_rebalances_started_total", counts.started)
        yield counted("kohort_rebalances_avoided_total", counts.avoided)
        yield counted("kohort_group_members_removed_total", counts.members_removed)
        phases = Family("kohort_rebalance_phase_seconds")
        phases.add_histogram(counts.join_phase, "join")
        phases.add_histogram(counts.sync_phase, "sync")
        phases.add_histogram(counts.whole, "whole")
        for phase, tally in counts.of_consumers.items():
            phases.add_histogram(tally, phase)
        yield phases
        yield single("kohort_rebalance_stopped_seconds_total", counts.stopped_ms / 1000)
        yield single("kohort_rebalance_partitions_moved_total", counts.partitions_moved)
        yield single("kohort_rebalances_running", len(counts.running))

    def _collect_groups(self) -> Iterator[Metric]:
        # Groups are added and removed while a scrape is written, so the collection is copied before
        # iterating.
        shown = self._rebalances.by_group.shown(int(self._clock_s() * 1000))
        yield WideFamily("kafka_consumergroup_rebalances_total", _rebalance_rows(shown))
        for metric, label, labelled in _BY_LABEL:
            yield _by_label(metric, label, shown, labelled)
        for metric, value_of in _BY_GROUP.items():
            yield WideFamily(metric, _group_rows(shown, value_of))
        since = self._waiting_since()
        yield WideFamily(
            "kohort_consumergroup_rebalance_waiting_since_seconds",
            lambda: ((Labels({"consumergroup": name}), value) for name, value in since.items()),
        )

    def _waiting_since(self) -> dict[str, float]:
        """Return the start of each group's running rebalance, as wall time in seconds; under OTHER,
        the earliest start among the groups without their own counters.

        Visits at most twice as many groups as have their own counters.
        """
        running, by_group = self._rebalances.running, self._rebalances.by_group
        since = {
            group_id: rebalance.since_wall_ms / 1000
            for group_id in by_group.own()
            if (rebalance := running.get(group_id)) is not None
        }
        # `running` is in the order of the starts, so the first group of `rest` has the earliest.
        rest = (
            rebalance for group_id, rebalance in running.items() if not by_group.has_own(group_id)
        )
        longest = next(rest, None)
        if longest is not None:
            since[OTHER] = longest.since_wall_ms / 1000
        return since


def history_metrics(history: RebalancesSeen) -> Iterator[Metric]:
    stats = history.stats()
    yield single("kohort_rebalance_history_records", stats["records"])
    yield single("kohort_rebalance_history_memory_bytes", stats["memory_bytes"])
    yield single("kohort_rebalance_history_waiting", stats["waiting"])
    yield single("kohort_rebalance_history_lost_total", stats["lost"])
    yield single("kohort_rebalance_history_dropped_total", stats["dropped"])


def _rebalance_rows(shown: Shown) -> Rows:
    return lambda: (
        (Labels({"consumergroup": group_id, "cause": cause, "protocol": kind}), count)
        for group_id, counts in shown
        for (cause, kind), count in list(counts.rebalances.items())
    )


def _by_label(
    name: str, label: str, shown: Shown, choose: Callable[[GroupCounts], Mapping[str, int]]
) -> WideFamily:
    def rows() -> Iterator[tuple[Labels, float]]:
        for group_id, counts in shown:
            for value, count in list(choose(counts).items()):
                yield Labels({"consumergroup": group_id, label: value}), count

    return WideFamily(name, rows)


def _group_rows(shown: Shown, choose: Callable[[GroupCounts], float]) -> Rows:
    return lambda: (
        (Labels({"consumergroup": group_id}), choose(counts))
        for group_id, counts in shown
        if counts.rebalances
    )

"""Collectors of rebalances, offset commits and the rebalance history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import Metric

from kohort.broker.metrics import rebalance_catalogue as catalogue
from kohort.broker.metrics.families import Family, Labels, Rows, WideFamily, counted, single
from kohort.broker.metrics.group_counts import GroupCounts
from kohort.broker.metrics.metric_info import OTHER, MetricInfo
from kohort.broker.metrics.rebalances import RebalanceMetrics
from kohort.broker.metrics.tally import RecentRate

if TYPE_CHECKING:
    from kohort.broker.groups_seen import RebalancesSeen

RATE_PERIOD_S = 30.0
"""The period of Kafka's own rates (`metrics.sample.window.ms`)."""

_RATES: Final = {
    "completed_count": (catalogue.COMPLETED_REBALANCES, catalogue.COMPLETED_REBALANCE_RATE),
    "bump_count": (catalogue.CONSUMER_GROUP_REBALANCES, catalogue.CONSUMER_GROUP_REBALANCE_RATE),
    "share_bump_count": (catalogue.SHARE_GROUP_REBALANCES, catalogue.SHARE_GROUP_REBALANCE_RATE),
    "offsets_stored": (catalogue.OFFSET_COMMITS, catalogue.OFFSET_COMMIT_RATE),
    "offsets_expired": (catalogue.OFFSET_EXPIRATIONS, catalogue.OFFSET_EXPIRATION_RATE),
    "offsets_deleted": (catalogue.OFFSET_DELETIONS, catalogue.OFFSET_DELETION_RATE),
}
"""Counters of `RebalanceMetrics` with a rate, as in Kafka."""

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
        for name, (total, rate) in _RATES.items():
            count = getattr(self._rebalances, name)
            yield single(total, count)
            yield single(rate, self._rates[name].rate_at(count, now_s))

    def _collect_totals(self) -> Iterator[Metric]:
        counts = self._rebalances
        yield counted(catalogue.STARTED, counts.started)
        yield counted(catalogue.AVOIDED, counts.avoided)
        yield counted(catalogue.MEMBERS_REMOVED, counts.members_removed)
        phases = Family(catalogue.PHASES)
        phases.add_histogram(counts.join_phase, "join")
        phases.add_histogram(counts.sync_phase, "sync")
        phases.add_histogram(counts.whole, "whole")
        for phase, tally in counts.of_consumers.items():
            phases.add_histogram(tally, phase)
        yield phases
        yield single(catalogue.STOPPED, counts.stopped_ms / 1000)
        yield single(catalogue.PARTITIONS_MOVED, counts.partitions_moved)
        yield single(catalogue.RUNNING, len(counts.running))

    def _collect_groups(self) -> Iterator[Metric]:
        # Groups are added and removed while a scrape is written, so the collection is copied before
        # iterating.
        shown = self._rebalances.by_group.shown(int(self._clock_s() * 1000))
        yield WideFamily(catalogue.GROUP_REBALANCES, _rebalance_rows(shown))
        yield _by_label(catalogue.GROUP_AVOIDED, "reason", shown, lambda counts: counts.avoided)
        yield _by_label(catalogue.GROUP_REMOVED, "cause", shown, lambda counts: counts.removed)
        yield _by_label(catalogue.GROUP_EPOCH_BUMPS, "cause", shown, lambda counts: counts.bumps)
        stopped = _group_rows(shown, lambda counts: counts.stopped_ms / 1000)
        yield WideFamily(catalogue.GROUP_STOPPED, stopped)
        moved = _group_rows(shown, lambda counts: counts.partitions_moved)
        yield WideFamily(catalogue.GROUP_MOVED, moved)
        poll_timeouts = _group_rows(shown, lambda counts: counts.poll_timeouts)
        yield WideFamily(catalogue.GROUP_POLL_TIMEOUTS, poll_timeouts)
        since = self._waiting_since()
        yield WideFamily(
            catalogue.GROUP_WAITING_SINCE,
            lambda: ((Labels({"consumergroup": name}), value) for name, value in since.items()),
        )

    def _waiting_since(self) -> dict[str, float]:
        """Return the start of running rebalances as wall time in seconds, by group; for groups
        beyond the limit, the earliest.

        Visits at most twice as many groups as have their own counters.
        """
        running, by_group = self._rebalances.running, self._rebalances.by_group
        since = {
            group_id: rebalance.since_wall_ms / 1000
            for group_id in by_group.own()
            if (rebalance := running.get(group_id)) is not None
        }
        # `running` has the earliest first.
        rest = (
            rebalance for group_id, rebalance in running.items() if not by_group.has_own(group_id)
        )
        longest = next(rest, None)
        if longest is not None:
            since[OTHER] = longest.since_wall_ms / 1000
        return since


def history_metrics(history: RebalancesSeen) -> Iterator[Metric]:
    stats = history.stats()
    yield single(catalogue.HISTORY_RECORDS, stats["records"])
    yield single(catalogue.HISTORY_BYTES, stats["memory_bytes"])
    yield single(catalogue.HISTORY_WAITING, stats["waiting"])
    yield single(catalogue.HISTORY_LOST, stats["lost"])
    yield single(catalogue.HISTORY_DROPPED, stats["dropped"])


def _rebalance_rows(shown: Shown) -> Rows:
    return lambda: (
        (Labels({"consumergroup": group_id, "cause": cause, "protocol": kind}), count)
        for group_id, counts in shown
        for (cause, kind), count in list(counts.rebalances.items())
    )


def _by_label(
    info: MetricInfo, label: str, shown: Shown, choose: Callable[[GroupCounts], Mapping[str, int]]
) -> WideFamily:
    def rows() -> Iterator[tuple[Labels, float]]:
        for group_id, counts in shown:
            for value, count in list(choose(counts).items()):
                yield Labels({"consumergroup": group_id, label: value}), count

    return WideFamily(info, rows)


def _group_rows(shown: Shown, choose: Callable[[GroupCounts], float]) -> Rows:
    return lambda: (
        (Labels({"consumergroup": group_id}), choose(counts))
        for group_id, counts in shown
        if counts.rebalances
    )

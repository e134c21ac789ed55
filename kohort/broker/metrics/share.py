"""Collects the metrics of share groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import Metric

from kohort.broker.groups_seen import SharesSeen
from kohort.broker.metrics.families import counted, single
from kohort.broker.metrics.group_counts import OTHER
from kohort.broker.runtime.slices import Slice

if TYPE_CHECKING:
    from kohort.broker.share.counts import GroupCounts

_TYPES = ("gap", "accept", "release", "reject", "renew")
"""Acknowledgement types by number."""

_BY_GROUP: Final = {
    "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total": attrgetter("dead_letters"),
    "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total": attrgetter(
        "dead_letter_batches"
    ),
    "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total": attrgetter(
        "dead_letter_batches_failed"
    ),
    "kohort_sharegroup_deliveries_total": attrgetter("deliveries"),
    "kohort_sharegroup_redeliveries_total": attrgetter("redeliveries"),
    "kohort_sharegroup_archived_at_limit_total": attrgetter("archived_at_limit"),
    "kohort_sharegroup_lock_timeouts_total": attrgetter("lock_timeouts"),
}
"""Metrics with the label of the group, and the function that reads the metric from
`GroupCounts`."""


@dataclass(slots=True)
class _State:
    """Gauges of one group, or of all groups beyond `groups_max` together."""

    lag: int = 0
    oldest_lock_ms: int = 0


class ShareCollector:
    """Collects metrics of all share groups: `refresh` samples them, `collect` returns them."""

    def __init__(self, shares: SharesSeen, groups_max: int) -> None:
        self._shares = shares
        self._groups_max = groups_max
        self._states: dict[str, _State] = {}
        self._in_flight = 0

    async def refresh(self, time_slice: Slice) -> None:
        """Sample all share-partitions in time slices, so at slightly different times."""
        delivery = self._shares()
        states: dict[str, _State] = {}
        in_flight = 0
        if delivery is not None:
            partitions = delivery.partitions
            for group_id, of_group in partitions.groups():
                name = group_id if len(states) < self._groups_max else OTHER
                state = states.setdefault(name, _State())
                for share in of_group:
                    in_flight += partitions.in_flight(share)
                    state.lag += partitions.lag(share)
                    age_ms = partitions.oldest_lock_ms(share)
                    state.oldest_lock_ms = max(state.oldest_lock_ms, age_ms)
                    await time_slice.pause()
        self._states, self._in_flight = states, in_flight

    def collect(self) -> Iterator[Metric]:
        by_group: dict[str, GroupCounts] = {}
        acknowledged = dict.fromkeys(_TYPES, 0)
        session_count = session_partitions = partition_count = 0
        delivery = self._shares()
        if delivery is not None:
            of_shares, sessions = delivery.partitions.counts, delivery.sessions
            by_group = {name or OTHER: counts for name, counts in of_shares.by_group.items()}
            acknowledged = of_shares.acknowledged()
            session_count, session_partitions = len(sessions), sessions.partition_count
            partition_count = len(delivery.partitions)
        timeouts = sum(of_group.lock_timeouts for of_group in by_group.values())
        yield counted("kafka_server_sharegroupmetrics_recordacknowledgements_total", acknowledged)
        yield single("kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total", timeouts)
        yield single("kafka_server_sharepartitionmetrics_inflightmessagecount", self._in_flight)
        yield single("kafka_server_sharesessioncache_sharesessionscount", session_count)
        yield single("kafka_server_sharesessioncache_sharepartitionscount", session_partitions)
        yield single("kohort_share_partitions", partition_count)
        for metric, value_of in _BY_GROUP.items():
            yield counted(metric, {name: value_of(counts) for name, counts in by_group.items()})
        of_types = {
            (name, _TYPES[kind]): count
            for name, of_group in by_group.items()
            for kind, count in of_group.acknowledgements.items()
        }
        yield counted("kohort_sharegroup_acknowledgements_total", of_types)
        oldest = {name: state.oldest_lock_ms / 1_000 for name, state in self._states.items()}
        yield counted("kohort_sharegroup_oldest_lock_seconds", oldest)
        lags = {name: state.lag for name, state in self._states.items()}
        yield counted("kohort_sharegroup_lag", lags)

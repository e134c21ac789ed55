"""Collects the metrics of share groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric

from kohort.broker.metrics import share_catalogue as catalogue
from kohort.broker.metrics.families import Family, counted, single
from kohort.broker.metrics.metric_info import OTHER

if TYPE_CHECKING:
    from kohort.broker.share.counts import GroupCounts
    from kohort.broker.share.delivery import ShareDelivery

_TYPES = ("gap", "accept", "release", "reject", "renew")
"""Acknowledgement types by number."""


def share_metrics(delivery: ShareDelivery | None, groups_max: int) -> Iterator[Metric]:
    """Yield the metrics; `delivery` is None if the broker has no share group."""
    by_group: dict[str, GroupCounts] = {}
    acknowledged = dict.fromkeys(_TYPES, 0)
    in_flight = session_count = session_partitions = partition_count = 0
    if delivery is not None:
        partitions, sessions = delivery.partitions, delivery.sessions
        counts = partitions.counts
        by_group = {group_id or OTHER: of_group for group_id, of_group in counts.by_group.items()}
        acknowledged = counts.acknowledged()
        in_flight = sum(map(partitions.in_flight, partitions))
        session_count, session_partitions = len(sessions), sessions.partition_count
        partition_count = len(partitions)
    timeouts = {group_id: of_group.lock_timeouts for group_id, of_group in by_group.items()}
    yield counted(catalogue.ACKNOWLEDGEMENTS, acknowledged)
    yield single(catalogue.LOCK_TIMEOUTS, sum(timeouts.values()))
    yield single(catalogue.IN_FLIGHT, in_flight)
    yield single(catalogue.SESSIONS, session_count)
    yield single(catalogue.SESSION_PARTITIONS, session_partitions)
    yield single(catalogue.PARTITIONS, partition_count)
    deliveries, redeliveries = Family(catalogue.DELIVERIES), Family(catalogue.REDELIVERIES)
    of_types = Family(catalogue.GROUP_ACKNOWLEDGEMENTS)
    for group_id, of_group in by_group.items():
        deliveries.add(of_group.deliveries, group_id)
        redeliveries.add(of_group.redeliveries, group_id)
        for kind, count in of_group.acknowledgements.items():
            of_types.add(count, group_id, _TYPES[kind])
    yield deliveries
    yield redeliveries
    yield of_types
    yield counted(catalogue.GROUP_LOCK_TIMEOUTS, timeouts)
    yield _lags(delivery, groups_max)


def _lags(delivery: ShareDelivery | None, groups_max: int) -> Family:
    family = Family(catalogue.LAG)
    if delivery is None:
        return family
    partitions = delivery.partitions
    rest = 0
    for number, (group_id, of_group) in enumerate(partitions.groups()):
        lag = sum(map(partitions.lag, of_group))
        if number < groups_max:
            family.add(lag, group_id)
        else:
            rest += lag
    if rest:
        family.add(rest, OTHER)
    return family

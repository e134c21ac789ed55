"""Collects the metrics of share groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric

from kohort.broker.groups_seen import SharesSeen
from kohort.broker.metrics import share_catalogue as catalogue
from kohort.broker.metrics.families import Family, counted, single
from kohort.broker.metrics.metric_info import OTHER
from kohort.broker.runtime.slices import Slice

if TYPE_CHECKING:
    from kohort.broker.share.counts import GroupCounts

_TYPES = ("gap", "accept", "release", "reject", "renew")
"""Acknowledgement types by number."""


@dataclass(slots=True)
class _State:
    """Of one group, or of all beyond the limit."""

    lag: int = 0
    oldest_lock_ms: int = 0


class ShareCollector:
    """Collector of all share groups; `refresh` takes the samples, `collect` returns them."""

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
            counts, sessions = delivery.partitions.counts, delivery.sessions
            by_group = {name or OTHER: of_group for name, of_group in counts.by_group.items()}
            acknowledged = counts.acknowledged()
            session_count, session_partitions = len(sessions), sessions.partition_count
            partition_count = len(delivery.partitions)
        timeouts = {name: of_group.lock_timeouts for name, of_group in by_group.items()}
        yield counted(catalogue.ACKNOWLEDGEMENTS, acknowledged)
        yield single(catalogue.LOCK_TIMEOUTS, sum(timeouts.values()))
        yield single(catalogue.IN_FLIGHT, self._in_flight)
        yield single(catalogue.SESSIONS, session_count)
        yield single(catalogue.SESSION_PARTITIONS, session_partitions)
        yield single(catalogue.PARTITIONS, partition_count)
        yield counted(
            catalogue.DEAD_LETTERS,
            {name: of_group.dead_letters for name, of_group in by_group.items()},
        )
        yield counted(
            catalogue.DEAD_LETTER_BATCHES,
            {name: of_group.dead_letter_batches for name, of_group in by_group.items()},
        )
        yield counted(
            catalogue.DEAD_LETTER_BATCHES_FAILED,
            {name: of_group.dead_letter_batches_failed for name, of_group in by_group.items()},
        )
        deliveries, redeliveries = Family(catalogue.DELIVERIES), Family(catalogue.REDELIVERIES)
        of_types = Family(catalogue.GROUP_ACKNOWLEDGEMENTS)
        at_limit = Family(catalogue.GROUP_ARCHIVED_AT_LIMIT)
        for name, of_group in by_group.items():
            deliveries.add(of_group.deliveries, name)
            redeliveries.add(of_group.redeliveries, name)
            at_limit.add(of_group.archived_at_limit, name)
            for kind, count in of_group.acknowledgements.items():
                of_types.add(count, name, _TYPES[kind])
        yield from (deliveries, redeliveries, of_types, at_limit)
        yield counted(catalogue.GROUP_LOCK_TIMEOUTS, timeouts)
        states = self._states.items()
        yield counted(
            catalogue.OLDEST_LOCK, {name: state.oldest_lock_ms / 1_000 for name, state in states}
        )
        yield counted(catalogue.LAG, {name: state.lag for name, state in states})

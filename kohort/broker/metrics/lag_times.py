"""Collects how far groups are behind, in time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from prometheus_client.metrics_core import Metric

from kohort.broker.groups_seen import GroupSeen, GroupsSeen
from kohort.broker.metrics import catalogue
from kohort.broker.metrics.families import Family
from kohort.broker.metrics.metric_info import OTHER
from kohort.broker.runtime.slices import Monotonic, Slice

OldestUnread: TypeAlias = Callable[[GroupSeen, Slice], Awaitable[int | None]]
"""Returns the age in milliseconds of a group's oldest unread record, 0 without one; None if it is
unknown."""

BUDGET_MS: Final = 2_000
"""Time per scrape for reading timestamps of records, which may come from a slow disk."""


class LagTimeCollector:
    def __init__(
        self,
        groups: GroupsSeen,
        oldest_unread: OldestUnread,
        clock: Monotonic,
        *,
        groups_max: int,
    ) -> None:
        self._groups = groups
        self._oldest_unread = oldest_unread
        self._clock = clock
        self._groups_max = groups_max
        self._ages_ms: dict[str, int] = {}
        self._start = 0
        """Index of the group with which the next refresh begins, modulo their number."""

    async def refresh(self, time_slice: Slice) -> None:
        """Read the ages of the first groups, until the time for it is used up. The next refresh
        continues there; until then, the remaining groups keep their values.
        """
        ends_ms = self._clock.monotonic_ms() + BUDGET_MS
        groups = list(islice(self._groups.groups(), self._groups_max))
        present = {group.group_id for group in groups if group.group_id != OTHER}
        self._ages_ms = {name: age for name, age in self._ages_ms.items() if name in present}
        start = self._start % len(groups) if groups else 0
        for group in groups[start:] + groups[:start]:
            self._start += 1
            age_ms = await self._oldest_unread(group, time_slice) if group.offsets.count else None
            if age_ms is None:
                self._ages_ms.pop(group.group_id, None)
            elif group.group_id in present:
                self._ages_ms[group.group_id] = age_ms
            if self._clock.monotonic_ms() > ends_ms:
                break
            await time_slice.pause()

    def collect(self) -> Iterator[Metric]:
        lag = Family(catalogue.GROUP_LAG_SECONDS)
        for group_id, age_ms in self._ages_ms.items():
            lag.add(age_ms / 1_000, group_id)
        yield lag

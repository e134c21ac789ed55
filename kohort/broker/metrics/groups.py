"""Collects consumer groups: members, states, committed offsets and lag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Final, TypeAlias

from prometheus_client.metrics_core import Metric

from kohort.broker.groups_seen import GroupSeen, GroupsSeen, ReadableOf, positions
from kohort.broker.metrics.families import (
    COORDINATOR,
    GROUPS,
    Family,
    Labels,
    Rows,
    SeriesBudget,
    WideFamily,
    counted,
    rows,
    single,
)
from kohort.broker.metrics.group_counts import OTHER
from kohort.broker.runtime.slices import Monotonic, Slice
from kohort.groups.classic.membership import PARKED_JOINS, PARKED_SYNCS, UNUSED_IDS
from kohort.groups.classic.states import ClassicState
from kohort.groups.consumer.data import ASSIGNING, RECONCILING, STABLE
from kohort.groups.consumer.describe import ASSIGNMENT_EPOCH, EPOCH, UNRECONCILED
from kohort.groups.description import GroupDescription
from kohort.groups.kinds import DEAD, EMPTY, GroupKind

_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager"


@dataclass(slots=True, eq=False)
class OffsetSample:
    """The sample of one committed offset, or the sums over several."""

    labels: Labels
    offset: int = 0
    lag: int | None = None
    """The lag, or the sum of several lags; None if the partition does not exist."""

    def add(self, offset: int, lag: int | None) -> None:
        self.offset += offset
        if lag is not None:
            self.lag = (self.lag or 0) + lag


@dataclass(slots=True, eq=False)
class GroupSample:
    """The sample of one group, or the sums over groups without their own series."""

    labels: Labels
    member_count: int = 0
    state_labels: Labels | None = None
    """Labels with the group's state; None for sums over several groups."""
    gauges: Counter[str] = field(default_factory=Counter)
    """Gauges that only some kinds of groups have, by name."""


@dataclass(slots=True, eq=False)
class _Seen:
    groups: list[GroupSample] = field(default_factory=list)
    offsets: list[OffsetSample] = field(default_factory=list)
    topic_sums: list[OffsetSample] = field(default_factory=list)
    states: Counter[tuple[GroupKind, str]] = field(default_factory=Counter)
    offset_count: int = 0
    gauges: Counter[str] = field(default_factory=Counter)
    """Sums over all groups of the gauges that only some kinds of groups have, by name."""
    folded: int = 0


class GroupCollector:
    """Collector of all groups; `refresh` takes the samples, `collect` returns them."""

    def __init__(
        self,
        groups: GroupsSeen,
        readable: ReadableOf,
        *,
        groups_max: int,
        group_partitions_max: int,
    ) -> None:
        self._groups = groups
        self._readable = readable
        self._groups_max = groups_max
        self._group_partitions_max = group_partitions_max
        self._seen = _Seen()

    @property
    def folded(self) -> dict[str, int]:
        """By GROUPS: how many groups are only in the sums, without series of their own."""
        return {GROUPS: self._seen.folded}

    async def refresh(self, time_slice: Slice) -> None:
        """Sample every group in time slices, so at slightly different times."""
        seen = _Seen()
        group_budget = SeriesBudget(self._groups_max)
        offset_budget = SeriesBudget(self._group_partitions_max)
        rest = GroupSample(Labels({"consumergroup": OTHER}))
        rest_offsets = OffsetSample(_labels(OTHER, OTHER, OTHER), lag=0)
        for group in list(self._groups.groups()):
            described = group.describe()
            seen.states[described.kind, described.state] += 1
            seen.offset_count += group.offsets.count
            gauges = group.gauges()
            seen.gauges.update(gauges)
            has_series = (
                # A group with this id would have the same label value as the sums.
                described.group_id != OTHER
                and group_budget.take(1)
                and offset_budget.take(group.offsets.count)
            )
            if has_series:
                seen.groups.append(_sample(described, gauges))
                await self._sample_offsets(group, seen, time_slice)
            else:
                seen.folded += 1
                rest.member_count += described.member_count
                rest.gauges.update(gauges)
                for position in positions(group, self._readable):
                    rest_offsets.add(position.committed.offset, position.lag)
                    await time_slice.pause()
            await time_slice.pause()
        if seen.folded:
            seen.groups.append(rest)
            seen.offsets.append(rest_offsets)
            total = OffsetSample(Labels({"consumergroup": OTHER, "topic": OTHER}))
            total.add(rest_offsets.offset, rest_offsets.lag)
            seen.topic_sums.append(total)
        self._seen = seen

    def forget(self) -> None:
        """Drop the samples; `collect` returns none until the next refresh."""
        self._seen = _Seen()

    def collect(self) -> Iterator[Metric]:
        seen = self._seen
        yield from self._collect_totals()
        yield WideFamily(
            "kafka_consumergroup_members", rows(seen.groups, attrgetter("member_count"))
        )
        yield WideFamily("kohort_consumergroup_state", _state_rows(seen.groups))
        yield WideFamily("kohort_consumergroup_epoch", _gauge_rows(seen.groups, EPOCH))
        yield WideFamily(
            "kohort_consumergroup_assignment_epoch", _gauge_rows(seen.groups, ASSIGNMENT_EPOCH)
        )
        yield WideFamily("kohort_consumergroup_members_reconciling", _reconciling_rows(seen.groups))
        for samples, offset, lag in (
            (seen.offsets, "kafka_consumergroup_current_offset", "kafka_consumergroup_lag"),
            (
                seen.topic_sums,
                "kafka_consumergroup_current_offset_sum",
                "kafka_consumergroup_lag_sum",
            ),
        ):
            yield WideFamily(offset, rows(samples, attrgetter("offset")))
            known = [sample for sample in samples if sample.lag is not None]
            yield WideFamily(lag, rows(known, attrgetter("lag")))

    def _collect_totals(self) -> Iterator[Metric]:
        seen = self._seen
        kinds = dict.fromkeys(GroupKind, 0)
        for (kind, _), group_count in seen.states.items():
            kinds[kind] = kinds.get(kind, 0) + group_count
        yield single(f"{_MANAGER}_numgroups", kinds[GroupKind.CLASSIC])
        for state in ClassicState:
            in_state = seen.states[GroupKind.CLASSIC, state.value]
            yield single(f"{_MANAGER}_numgroups{state.value.lower()}", in_state)
        yield single(f"{_MANAGER}_numoffsets", seen.offset_count)
        by_kind = {kind.value: group_count for kind, group_count in kinds.items()}
        yield counted(f"{COORDINATOR}_group_count", by_kind)
        by_state = {
            state.lower(): seen.states[GroupKind.CONSUMER, state]
            for state in (EMPTY, ASSIGNING, RECONCILING, STABLE, DEAD)
        }
        yield counted(f"{COORDINATOR}_consumer_group_count", by_state)
        by_state = {
            state.lower(): seen.states[GroupKind.SHARE, state] for state in (EMPTY, STABLE, DEAD)
        }
        yield counted(f"{COORDINATOR}_share_group_count", by_state)
        yield single("kohort_group_parked_joins", seen.gauges[PARKED_JOINS])
        yield single("kohort_group_parked_syncs", seen.gauges[PARKED_SYNCS])
        yield single("kohort_group_pending_ids", seen.gauges[UNUSED_IDS])

    async def _sample_offsets(self, group: GroupSeen, seen: _Seen, time_slice: Slice) -> None:
        group_id = group.group_id
        sums: dict[str, OffsetSample] = {}
        for position in positions(group, self._readable):
            topic, offset, lag = position.topic, position.committed.offset, position.lag
            labels = _labels(group_id, topic, str(position.partition))
            seen.offsets.append(OffsetSample(labels, offset, lag))
            if topic not in sums:
                sums[topic] = OffsetSample(Labels({"consumergroup": group_id, "topic": topic}))
            sums[topic].add(offset, lag)
            await time_slice.pause()
        seen.topic_sums += sums.values()


def _sample(group: GroupDescription, gauges: Mapping[str, int]) -> GroupSample:
    return GroupSample(
        Labels({"consumergroup": group.group_id}),
        group.member_count,
        Labels({"consumergroup": group.group_id, "state": group.state}),
        Counter(gauges),
    )


def _state_rows(samples: list[GroupSample]) -> Rows:
    return lambda: ((group.state_labels, 1) for group in samples if group.state_labels is not None)


def _gauge_rows(samples: list[GroupSample], name: str) -> Rows:
    """Return the values of the groups that have the gauge, without a sum: sums of epochs are
    meaningless.
    """
    return lambda: (
        (sample.labels, sample.gauges[name])
        for sample in samples
        if sample.state_labels is not None and name in sample.gauges
    )


def _reconciling_rows(samples: list[GroupSample]) -> Rows:
    return lambda: (
        (Labels({"consumergroup": sample.labels["consumergroup"], "state": state}), count)
        for sample in samples
        for name, state in UNRECONCILED.items()
        if (count := sample.gauges.get(name)) is not None
    )


def _labels(group_id: str, topic: str, partition: str) -> Labels:
    return Labels({"consumergroup": group_id, "topic": topic, "partition": partition})


OldestUnread: TypeAlias = Callable[[GroupSeen, Slice], Awaitable[int | None]]
"""Returns the age in milliseconds of a group's oldest unread record: 0 if there is none, None if it
is unknown."""

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
        """Index of the group with which the next refresh begins, modulo the number of groups."""

    async def refresh(self, time_slice: Slice) -> None:
        """Read the age of each group's oldest unread record until `BUDGET_MS` has passed. The next
        refresh begins with the remaining groups, which keep their values until then.
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
        lag = Family("kohort_consumergroup_lag_seconds")
        for group_id, age_ms in self._ages_ms.items():
            lag.add(age_ms / 1_000, group_id)
        yield lag

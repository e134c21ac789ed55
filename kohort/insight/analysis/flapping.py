"""Finds partitions that change owners frequently."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from kohort.insight.analysis.ownership import OWNED
from kohort.insight.analysis.rows import between_ms
from kohort.insight.tables.findings import Flapping, Interval

_Sets: TypeAlias = dict[tuple[str, tuple[int, ...]], list[Interval]]


class OwnershipIntervals:
    """Collects the ownership intervals of each partition; `add` may be called many times."""

    def __init__(self) -> None:
        self._by_set: _Sets | None = None
        self._by_partition: _Sets = defaultdict(list)
        """Intervals by single partition, used from the second call of `add` on, because each call
        may group partitions into different sets."""

    def add(self, intervals: Iterable[Interval]) -> None:
        by_set: _Sets = defaultdict(list)
        for interval in intervals:
            if interval.state == OWNED:
                by_set[interval.topic, interval.partitions].append(interval)
        stints = {key: _without_stops(owned) for key, owned in by_set.items()}
        if self._by_set is None:
            self._by_set = stints
            return
        if not self._by_partition:
            self._split(self._by_set)
        self._split(stints)

    def flapping(self, *, moves: int, window_ms: int) -> list[Flapping]:
        """Return a row for each partition that moved `moves` times or more within `window_ms`."""
        return [
            Flapping(topic, partition, *figures)
            for (topic, partitions), owned in (self._by_partition or self._by_set or {}).items()
            if (figures := _moves(_stints(owned), window_ms)) is not None and figures[1] >= moves
            for partition in partitions
        ]

    def _split(self, by_set: _Sets) -> None:
        for (topic, partitions), stints in by_set.items():
            for partition in partitions:
                self._by_partition[topic, (partition,)] += stints


def _without_stops(owned: Sequence[Interval]) -> list[Interval]:
    """Omit intervals whose predecessor has the same owner: `_stints` would ignore them anyway.
    Intervals without an owner are returned.
    """
    ordered = sorted(owned, key=lambda interval: interval.sequence)
    return [
        interval
        for index, interval in enumerate(ordered)
        if index == 0 or interval.owner is None or interval.owner != ordered[index - 1].owner
    ]


def _stints(owned: Iterable[Interval]) -> list[Interval]:
    """Return the first interval of each ownership; pauses of the owner begin further intervals."""
    stints: list[Interval] = []
    before: str | None = None
    for interval in sorted(owned, key=lambda interval: interval.sequence):
        if before is None or (interval.owner is not None and interval.owner != before):
            stints.append(interval)
        before = interval.owner
    return stints


def _moves(
    stints: Sequence[Interval], window_ms: int
) -> tuple[int, int, int, int, int, int] | None:
    """Return the fields of Flapping that follow `partition`; None if the partition never moved."""
    moved = list(pairwise(stints))
    if not moved:
        return None
    times = sorted(after.from_at for _, after in moved)
    windows = [(bisect_right(times, at) - bisect_left(times, at - window_ms), at) for at in times]
    in_window, ended_at = max(windows)
    returns = sum(
        stints[index].owner == stints[index - 2].owner and stints[index].owner is not None
        for index in range(2, len(stints))
    )
    return (
        len(moved),
        in_window,
        ended_at,
        len({interval.owner for interval in stints if interval.owner is not None}),
        returns,
        min(between_ms(before.from_at, after.from_at) for before, after in moved),
    )

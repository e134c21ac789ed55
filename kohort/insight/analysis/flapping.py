"""Partitions that keep changing hands."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from kohort.insight.analysis.ownership import OWNED, Interval
from kohort.insight.analysis.rows import between_ms


class Flapping(NamedTuple):
    """A row of the table `flapping`, without its group."""

    topic: str
    partition: int
    moves: int
    moves_in_window: int
    window_ended_at: int
    owner_count: int
    returns: int
    shortest_ms: int


_Sets: TypeAlias = dict[tuple[str, tuple[int, ...]], list[Interval]]


class OwnershipIntervals:
    """How long each partition was with whom, of rows of `partitions`, in whichever portions."""

    def __init__(self) -> None:
        self._by_set: _Sets | None = None
        self._by_partition: _Sets = defaultdict(list)
        """Intervals by single partition, used from the second portion on: it may group partitions
        differently."""

    def take(self, found: Iterable[Interval]) -> None:
        """Some more of them."""
        by_set: _Sets = defaultdict(list)
        for one in found:
            if one.state == OWNED:
                by_set[one.topic, one.partitions].append(one)
        stints = {key: _without_stops(owned) for key, owned in by_set.items()}
        if self._by_set is None:
            self._by_set = stints
            return
        if not self._by_partition:
            self._part(self._by_set)
        self._part(stints)

    def flapping(self, *, moves: int, window_ms: int) -> list[Flapping]:
        """What moved at least `moves` times within `window_ms`, one row for each partition."""
        return [
            Flapping(topic, partition, *said)
            for (topic, partitions), owned in (self._by_partition or self._by_set or {}).items()
            if (said := _moves(_stints(owned), window_ms)) is not None and said[1] >= moves
            for partition in partitions
        ]

    def _part(self, by_set: _Sets) -> None:
        for (topic, partitions), stints in by_set.items():
            for partition in partitions:
                self._by_partition[topic, (partition,)] += stints


def _without_stops(owned: Sequence[Interval]) -> list[Interval]:
    """The first of each run with one owner, which is all that `_stints` looks at."""
    ordered = sorted(owned, key=lambda interval: interval.sequence)
    return [
        one
        for index, one in enumerate(ordered)
        if index == 0 or one.owner is None or one.owner != ordered[index - 1].owner
    ]


def _stints(owned: Iterable[Interval]) -> list[Interval]:
    """One for each time with one owner, however often that one stopped in between."""
    stints: list[Interval] = []
    before: str | None = None
    for one in sorted(owned, key=lambda interval: interval.sequence):
        if before is None or (one.owner is not None and one.owner != before):
            stints.append(one)
        before = one.owner
    return stints


def _moves(
    stints: Sequence[Interval], window_ms: int
) -> tuple[int, int, int, int, int, int] | None:
    """The figures of Flapping; None for what never moved."""
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
        len({one.owner for one in stints if one.owner is not None}),
        returns,
        min(between_ms(before.from_at, after.from_at) for before, after in moved),
    )

"""What is counted for each group, for a bounded number of groups.

The first groups get counters of their own; those beyond the limit are counted in those of the
rest. A count is made in one place and stays there: when a group of the rest gets counters of its
own because another one is gone, they begin at zero, and the rest keeps what it has. So no counter
ever goes back, and sums of rates are right.

Counters of a removed group are kept until another needs their place, for a group that comes
back should go on where it was.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from kohort.broker.metrics.metric_info import OTHER

SHOWN_AFTER_REMOVAL_MS: Final = 15 * 60_000
"""Long enough for every scraper to see the last counts."""

_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
"""What all groups share that have nothing to count: most of them, of most things."""


class GroupCounts:
    """Counts of one group, or of all that have none of their own."""

    __slots__ = (
        "avoided",
        "partitions_moved",
        "rebalances",
        "removed",
        "removed_at_ms",
        "stopped_ms",
    )

    def __init__(self) -> None:
        self.rebalances = _NOTHING
        """By cause."""
        self.avoided = _NOTHING
        """By stated reason."""
        self.removed = _NOTHING
        """Members, by cause."""
        self.stopped_ms = 0
        self.partitions_moved = 0
        self.removed_at_ms = 0
        """Monotonic; when the group was removed, if it was."""

    def count_rebalance(self, cause: str) -> None:
        self.rebalances = _one_more(self.rebalances, cause)

    def count_avoided(self, reason: str) -> None:
        self.avoided = _one_more(self.avoided, reason)

    def count_removed(self, cause: str) -> None:
        """A member."""
        self.removed = _one_more(self.removed, cause)


class CountsByGroup:
    """The counts of at most `groups_max` groups, and those of the rest."""

    def __init__(self, groups_max: int) -> None:
        self._groups_max = groups_max
        self._live: dict[str, GroupCounts] = {}
        self._removed: dict[str, GroupCounts] = {}
        """Oldest removal first."""
        self.rest = GroupCounts()

    def __len__(self) -> int:
        return len(self._live) + len(self._removed)

    def has_own(self, group_id: str) -> bool:
        """Has a group that was not removed counters of its own?"""
        return group_id in self._live

    def own(self) -> Iterable[str]:
        """Groups that were not removed and have counters of their own; at most `groups_max`."""
        return self._live.keys()

    def of(self, group_id: str) -> GroupCounts:
        """Where to count what happens in a group."""
        counts = self._live.get(group_id)
        return self._place(group_id) if counts is None else counts

    def of_past(self, group_id: str) -> GroupCounts:
        """Where to count what is learnt later: the group may be gone, and does not come back."""
        return self._live.get(group_id) or self._removed.get(group_id) or self.rest

    def remove(self, group_id: str, now_ms: int) -> None:
        """The group is gone."""
        counts = self._live.pop(group_id, None)
        if counts is not None:
            counts.removed_at_ms = now_ms
            self._removed[group_id] = counts

    def shown(self, now_ms: int) -> list[tuple[str, GroupCounts]]:
        """Group id and counts of each group to be shown, the rest last."""
        since_ms = now_ms - SHOWN_AFTER_REMOVAL_MS
        removed = [one for one in self._removed.items() if one[1].removed_at_ms > since_ms]
        return [*self._live.items(), *removed, (OTHER, self.rest)]

    def _place(self, group_id: str) -> GroupCounts:
        if group_id == OTHER:
            return self.rest  # The id that stands for all others must be theirs alone.
        counts = self._removed.pop(group_id, None)
        if counts is None:
            if len(self) >= self._groups_max:
                if not self._removed:
                    return self.rest
                del self._removed[next(iter(self._removed))]
            counts = GroupCounts()
        self._live[group_id] = counts
        return counts


def _one_more(counts: Mapping[str, int], label: str) -> Mapping[str, int]:
    """`counts` with one more of that, in the same object if it has one of its own."""
    if not isinstance(counts, dict):
        return {label: 1}
    counts[label] = counts.get(label, 0) + 1
    return counts

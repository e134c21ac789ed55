"""Counters for each group, for a bounded number of groups.

The first groups get their own counters; groups beyond the limit share one set of counters, the
rest. An event is counted in one place only: if a group of the rest gets its own counters because
another group was removed, they begin at zero, and the rest keeps the earlier counts. So no counter
ever decreases, and sums of rates are correct.

Counters of a removed group are kept until another group needs their place, so that a group that
is created again continues with them.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

OTHER: Final = "(other)"
"""Label value under which everything beyond a limit is summed. No topic can have this name."""

SHOWN_AFTER_REMOVAL_MS: Final = 15 * 60_000
"""How long a removed group is shown: long enough for every scraper to read its last counts."""

_NOTHING: Final[Mapping[Any, int]] = MappingProxyType({})
"""Shared by all empty counters: most groups count few kinds of events."""


class GroupCounts:
    """Counts of one group, or of all groups without counts of their own."""

    __slots__ = (
        "avoided",
        "bumps",
        "partitions_moved",
        "poll_timeouts",
        "rebalances",
        "removed",
        "removed_at_ms",
        "stopped_ms",
    )

    def __init__(self) -> None:
        self.rebalances: Mapping[tuple[str, str], int] = _NOTHING
        self.avoided: Mapping[str, int] = _NOTHING
        """Avoided rebalances by stated reason."""
        self.removed: Mapping[str, int] = _NOTHING
        self.bumps: Mapping[str, int] = _NOTHING
        """Epoch bumps of a consumer group by cause."""
        self.stopped_ms = 0
        self.partitions_moved = 0
        self.poll_timeouts = 0
        self.removed_at_ms = 0
        """Monotonic time at which the group was removed, if it was."""

    def count(self, counter: str, label: object) -> None:
        """Increment the count of `label` in the counter of this name, such as `removed`."""
        counts = getattr(self, counter)
        if counts is _NOTHING:
            setattr(self, counter, {label: 1})
        else:
            counts[label] = counts.get(label, 0) + 1


class CountsByGroup:
    """Counts of at most `groups_max` groups, and of the rest."""

    def __init__(self, groups_max: int) -> None:
        self._groups_max = groups_max
        self._live: dict[str, GroupCounts] = {}
        self._removed: dict[str, GroupCounts] = {}
        """Counts of removed groups, the oldest removal first."""
        self.rest = GroupCounts()

    def __len__(self) -> int:
        return len(self._live) + len(self._removed)

    def has_own(self, group_id: str) -> bool:
        """Whether the group has its own counters; False if it was removed."""
        return group_id in self._live

    def own(self) -> Iterable[str]:
        """Return the existing groups that have their own counters; at most `groups_max`."""
        return self._live.keys()

    def of(self, group_id: str) -> GroupCounts:
        counts = self._live.get(group_id)
        return self._place(group_id) if counts is None else counts

    def of_past(self, group_id: str) -> GroupCounts:
        """Return the counters for a late event; its group may have been removed since."""
        return self._live.get(group_id) or self._removed.get(group_id) or self.rest

    def remove(self, group_id: str, now_ms: int) -> None:
        counts = self._live.pop(group_id, None)
        if counts is not None:
            counts.removed_at_ms = now_ms
            self._removed[group_id] = counts

    def shown(self, now_ms: int) -> list[tuple[str, GroupCounts]]:
        """Return the id and counts of each group to be shown; last, the counts of the rest."""
        since_ms = now_ms - SHOWN_AFTER_REMOVAL_MS
        removed = [item for item in self._removed.items() if item[1].removed_at_ms > since_ms]
        return [*self._live.items(), *removed, (OTHER, self.rest)]

    def _place(self, group_id: str) -> GroupCounts:
        if group_id == OTHER:
            return self.rest  # A group with this id would have the label value of the rest.
        counts = self._removed.pop(group_id, None)
        if counts is None:
            if len(self) >= self._groups_max:
                if not self._removed:
                    return self.rest
                del self._removed[next(iter(self._removed))]
            counts = GroupCounts()
        self._live[group_id] = counts
        return counts

"""The topics that the leader of a group watches: those of all members, with the partition counts
on which its assignment is based.

When a count changes, the assignment no longer covers the topic, and the leader has to rejoin.
"""

from collections.abc import Collection, Mapping
from typing import Final

CHANGES_MAX: Final = 10
"""How many changes the reason for a rejoin lists."""


class WatchedTopics:
    """The topics of one generation's leader; none for a member that does not lead."""

    def __init__(self) -> None:
        self._counts: Mapping[str, int] | None = None
        """Partition counts on which the assignment is based."""
        self._counts_meanwhile: Mapping[str, int] | None = None
        """The latest partition counts that arrived while that assignment was in flight."""

    @property
    def names(self) -> Collection[str]:
        """The topics whose metadata the leader needs."""
        return () if self._counts is None else self._counts.keys()

    def assigned(self, partition_counts: Mapping[str, int]) -> None:
        self._counts = dict(partition_counts)

    def clear(self) -> None:
        """Watch nothing: the assignment is void, or another member makes it."""
        self._counts = self._counts_meanwhile = None

    def changed(self, partition_counts: Mapping[str, int]) -> str:
        """Compare with new metadata, which lacks topics that do not exist. Returns the changes as
        text; empty if there are none, or nothing is watched.
        """
        changes = [
            f"{topic}, {count} -> {partition_counts.get(topic, 0)}"
            for topic, count in sorted((self._counts or {}).items())
            if partition_counts.get(topic, 0) != count
        ]
        return "; ".join(changes[:CHANGES_MAX])

    def keep(self, partition_counts: Mapping[str, int]) -> None:
        """Keep new metadata until the assignment arrives: the next may take minutes."""
        if self._counts is not None:
            self._counts_meanwhile = partition_counts

    def changed_meanwhile(self) -> str:
        """Compare with the metadata kept last. Returns as `changed`."""
        kept = self._counts_meanwhile
        return "" if kept is None else self.changed(kept)

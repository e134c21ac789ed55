"""Counts of deliveries and acknowledgements, for the metrics."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kohort.groups.share.window import AcknowledgeType
from kohort.protocol.messages.share_acknowledge import AcknowledgementBatch

REST: Final = ""
"""The id under which groups beyond the limit are counted; no group has this id."""


class GroupCounts:
    """Counts of one group since the broker's start, in records unless the name says otherwise."""

    __slots__ = (
        "acknowledgements",
        "archived_at_limit",
        "dead_letter_batches",
        "dead_letter_batches_failed",
        "dead_letters",
        "deliveries",
        "lock_timeouts",
        "redeliveries",
    )

    def __init__(self) -> None:
        self.deliveries = 0
        self.redeliveries = 0
        """Deliveries other than the first of a record."""
        self.lock_timeouts = 0
        self.archived_at_limit = 0
        self.dead_letters = 0
        self.dead_letter_batches = 0
        """Attempts to append a batch of dead letters."""
        self.dead_letter_batches_failed = 0
        self.acknowledgements: Counter[int] = Counter()
        """Acknowledged records, by `AcknowledgeType`."""

    def note_acknowledged(self, batches: Iterable[AcknowledgementBatch]) -> None:
        counts = self.acknowledgements
        for batch in batches:
            types = batch.acknowledge_types
            if len(types) == 1:
                counts[types[0]] += batch.last_offset - batch.first_offset + 1
            else:
                counts.update(types)


class ShareCounts:
    """Counts of a bounded number of groups, and one sum for all further groups. Counts never
    decrease.
    """

    def __init__(self, groups_max: int) -> None:
        self._groups_max = groups_max
        self.by_group: dict[str, GroupCounts] = {}
        """Counts by group id; those of deleted groups are kept."""

    def of(self, group_id: str) -> GroupCounts:
        """Return the group's counts, or those shared by all groups beyond the limit."""
        known = self.by_group.get(group_id)
        if known is None:
            if len(self.by_group) >= self._groups_max:
                group_id = REST
            known = self.by_group.setdefault(group_id, GroupCounts())
        return known

    def acknowledged(self) -> dict[str, int]:
        """Return the acknowledgements of all groups, by the name of the type."""
        total: Counter[int] = Counter()
        for counts in self.by_group.values():
            total.update(counts.acknowledgements)
        return {kind.name.lower(): total[kind] for kind in AcknowledgeType}

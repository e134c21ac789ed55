"""Rebalances that are stored in the groups' log and missing in the history: told by a start.

A generation is in the group's log before any member hears of its assignment. The history's record
of it follows when all have it, so whatever kills the process in between leaves a generation without
a record. A start compares the two while it loads the groups, and writes what is missing.

What it reads of the history is its end. Of a generation that is older than that it cannot tell, and
leaves it: it has its record, unless thousands of others were written within the seconds between.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kohort.broker.core.group.begun import Begun, decode_begun
from kohort.broker.core.group.records import GroupRecord
from kohort.broker.history.topic import Entry

logger = logging.getLogger(__name__)


class RecordedGenerations:
    """What the end of the history has."""

    def __init__(self, *, is_whole: bool = False) -> None:
        self.is_whole = is_whole
        """Nothing was ever written that was not read."""
        self._oldest_ms: int | None = None
        self._written_ms: dict[str, dict[int, int]] = {}

    def add(self, entry: Entry) -> None:
        """Note an entry that was read."""
        if self._oldest_ms is None:
            self._oldest_ms = entry.wall_ms
        if entry.generation is not None:
            self._written_ms.setdefault(entry.group_id, {})[entry.generation] = entry.wall_ms

    def missing(self, generations: Iterable[GroupRecord]) -> list[tuple[GroupRecord, Begun]]:
        """Generations of one group that have no record, in their order."""
        found: list[tuple[GroupRecord, Begun]] = []
        for stored in generations:
            if stored.begun is None or self._has(stored):
                continue
            try:
                found.append((stored, decode_begun(stored.begun)))
            except ValueError as error:
                logger.warning(
                    "Generation %d of group %r has no record in the history, and none can be "
                    "made: %s",
                    stored.generation,
                    stored.group_id,
                    error,
                )
        return found

    def _has(self, stored: GroupRecord) -> bool:
        """Is there a record, or may there be one before what was read?

        A group that was deleted counts its generations from 1 again: one that was written before
        this one was stored is of another life.
        """
        stored_ms = stored.state_timestamp_ms
        written_ms = self._written_ms.get(stored.group_id, {}).get(stored.generation)
        if written_ms is not None and written_ms >= stored_ms:
            return True
        if self.is_whole:
            return False
        return self._oldest_ms is None or stored_ms < self._oldest_ms

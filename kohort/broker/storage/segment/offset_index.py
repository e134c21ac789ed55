"""The .index file of a segment: positions of batches, one entry for every few KB of log.

An entry has the last offset of a batch and the position where that batch starts, as in Kafka's
OffsetIndex. Offsets are stored relative to the segment's base offset.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from kohort.broker.storage.segment.entry_file import SegmentIndex

ENTRY = Struct(">II")
ENTRY_BYTES = ENTRY.size
RELATIVE_OFFSET_MAX = (1 << 31) - 1
"""A segment is rolled before an offset is further than this from its base offset."""

_OFFSET, _POSITION = 0, 1


class IndexEntry(NamedTuple):
    """A hint that the batch with this `last_offset` starts at `position`."""

    last_offset: int
    position: int


class OffsetIndex(SegmentIndex):
    __slots__ = ()

    entry = ENTRY

    def __getitem__(self, number: int) -> IndexEntry:
        relative, position = self._entries[number]
        return IndexEntry(self._base_offset + relative, position)

    def append(self, last_offset: int, position: int) -> None:
        """Add an entry for a batch after all others."""
        self._entries.append(last_offset - self._base_offset, position)

    def find_offset(self, offset: int) -> int:
        """Return the index of the last entry with `last_offset` <= offset; -1 if there is none."""
        return self._entries.find_last(_OFFSET, offset - self._base_offset)

    def find_position(self, position: int) -> int:
        """Return the index of the last entry with `position` <= position; -1 if there is none."""
        return self._entries.find_last(_POSITION, position)

    def cached_entry(self, position: int) -> IndexEntry | None:
        """Return the entry that `find_position` finds, if one memory access suffices; else None.

        Raises OSError if it is not in memory.
        """
        entry = self._entries.last_cached(_POSITION, position)
        return None if entry is None else IndexEntry(self._base_offset + entry[0], entry[1])

    def replace_all(self, entries: Iterable[IndexEntry]) -> None:
        """Rewrite the file. Raises OSError, having changed nothing."""
        self._entries.replace_all(
            [(entry.last_offset - self._base_offset, entry.position) for entry in entries]
        )

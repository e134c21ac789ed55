"""The .index file of a segment: where batches lie, one entry for every few KB of log.

An entry holds the last offset of a batch and the position where that batch starts, as Kafka's
OffsetIndex does. Offsets are stored relative to the segment's base offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from kohort.broker.storage.segment.segment_index import SegmentIndex

ENTRY = Struct(">II")
ENTRY_BYTES = ENTRY.size
RELATIVE_OFFSET_MAX = (1 << 31) - 1
"""A segment is rolled before an offset is further than this from its base offset."""

_OFFSET, _POSITION = 0, 1


class IndexEntry(NamedTuple):
    """A hint: at `position` starts the batch whose last offset is `last_offset`."""

    last_offset: int
    position: int


class OffsetIndex(SegmentIndex):
    """See the module."""

    __slots__ = ()

    entry = ENTRY

    def __getitem__(self, number: int) -> IndexEntry:
        relative, position = self._entries[number]
        return IndexEntry(self._base_offset + relative, position)

    def append(self, last_offset: int, position: int) -> None:
        """Note a batch behind all others."""
        self._entries.append(last_offset - self._base_offset, position)

    def find_offset(self, offset: int) -> int:
        """The number of the last entry with `last_offset` <= offset; -1 if there is none."""
        return self._entries.find_last(_OFFSET, offset - self._base_offset)

    def find_position(self, position: int) -> int:
        """The number of the last entry with `position` <= position; -1 if there is none."""
        return self._entries.find_last(_POSITION, position)

    def replace_all(self, entries: Iterable[IndexEntry]) -> None:
        """Rewrite the file. Raises OSError; then nothing has changed."""
        self._entries.replace_all(
            [(entry.last_offset - self._base_offset, entry.position) for entry in entries]
        )

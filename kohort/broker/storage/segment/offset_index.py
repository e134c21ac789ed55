"""The .index file of a segment: where batches lie, one entry for every few KB of log.

An entry holds the last offset of a batch and the position where that batch starts, as Kafka's
OffsetIndex does. Offsets are stored relative to the segment's base offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from struct import Struct
from typing import NamedTuple, Self

from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.segment.entry_file import EntryFile

ENTRY = Struct(">II")
ENTRY_BYTES = ENTRY.size
RELATIVE_OFFSET_MAX = (1 << 31) - 1
"""A segment is rolled before an offset is further than this from its base offset."""

_OFFSET, _POSITION = 0, 1


class IndexEntry(NamedTuple):
    """A hint: at `position` starts the batch whose last offset is `last_offset`."""

    last_offset: int
    position: int


class OffsetIndex:
    """See the module. Searches tolerate any content of the file and then find something useless."""

    __slots__ = ("_base_offset", "_entries")

    def __init__(
        self, files: FileSystem, path: str, base_offset: int, size_bytes: int | None
    ) -> None:
        """`size_bytes` of the file as it is, None if there is none."""
        self._base_offset = base_offset
        self._entries = EntryFile(files, path, ENTRY, size_bytes)

    def twin(self) -> Self:
        """The same entries on the same file, for searches in another thread; never to be saved."""
        twin = copy(self)
        twin._entries = self._entries.twin()  # noqa: SLF001 - its own.
        return twin

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, number: int) -> IndexEntry:
        relative, position = self._entries[number]
        return IndexEntry(self._base_offset + relative, position)

    def is_cached(self) -> bool:
        """Whether a search waits for no disk, as far as that is known. Raises OSError."""
        return self._entries.is_cached()

    @property
    def unsaved_count(self) -> int:
        """How many entries wait in memory."""
        return self._entries.unsaved_count

    def append(self, last_offset: int, position: int) -> None:
        """Note a batch behind all others."""
        self._entries.append(last_offset - self._base_offset, position)

    def find_offset(self, offset: int) -> int:
        """The number of the last entry with `last_offset` <= offset; -1 if there is none."""
        return self._entries.find_last(_OFFSET, offset - self._base_offset)

    def find_position(self, position: int) -> int:
        """The number of the last entry with `position` <= position; -1 if there is none."""
        return self._entries.find_last(_POSITION, position)

    def keep_first(self, count: int) -> None:
        """Drop all entries but the first `count`. Raises OSError."""
        self._entries.keep_first(count)

    def replace_all(self, entries: Iterable[IndexEntry]) -> None:
        """Write the file anew. Raises OSError; then nothing has changed."""
        self._entries.replace_all(
            [(entry.last_offset - self._base_offset, entry.position) for entry in entries]
        )

    def save(self) -> None:
        """Write out what waits in memory. Raises OSError."""
        self._entries.save()

    def sync(self) -> None:
        """Return once all saved entries are on the disk. Raises OSError."""
        self._entries.sync()

    def close(self) -> None:
        """Give the descriptor back."""
        self._entries.close()

"""The common part of a segment's two indexes: entries in a file, with offsets relative to the
segment.
"""

from copy import copy
from struct import Struct
from typing import ClassVar, Self

from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.segment.entry_file import EntryFile


class SegmentIndex:
    """The part that does not depend on the meaning of entries.

    Searches tolerate any content of the file, but then return useless results.
    """

    __slots__ = ("_base_offset", "_entries")

    entry: ClassVar[Struct]
    """The layout of an entry; each kind of index has its own."""

    def __init__(
        self, files: FileSystem, path: str, base_offset: int, size_bytes: int | None
    ) -> None:
        """`size_bytes`: the present size of the file, None if it does not exist."""
        self._base_offset = base_offset
        self._entries = EntryFile(files, path, self.entry, size_bytes)

    def twin(self) -> Self:
        """Return the same entries on the same file, for searches in another thread; never to be
        saved.
        """
        twin = copy(self)
        twin._entries = self._entries.twin()  # noqa: SLF001 - its own.
        return twin

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def unsaved_count(self) -> int:
        """How many entries are not saved yet."""
        return self._entries.unsaved_count

    def is_cached(self) -> bool:
        """Whether a search is known not to wait for the disk. Raises OSError."""
        return self._entries.is_cached()

    def keep_first(self, count: int) -> None:
        """Drop all entries but the first `count`. Raises OSError."""
        self._entries.keep_first(count)

    def save(self) -> None:
        """Write unsaved entries. Raises OSError."""
        self._entries.save()

    def sync(self) -> None:
        """Return once all saved entries are on disk. Raises OSError."""
        self._entries.sync()

    def close(self) -> None:
        """Close the descriptor."""
        self._entries.close()

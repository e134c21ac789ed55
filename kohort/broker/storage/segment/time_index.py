"""The .timeindex file of a segment: how far timestamps have risen by which offset.

An entry (timestamp, offset) says: no record up to `offset` is later than `timestamp`, and the batch
that ends at `offset` is the first that holds a record of that time. Both columns rise strictly.
Kafka calls it TimeIndex. When a segment is rolled or closed, a last entry notes its maximum.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from struct import Struct
from typing import NamedTuple, Self

from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.segment.entry_file import EntryFile

ENTRY = Struct(">qI")
ENTRY_BYTES = ENTRY.size

_TIMESTAMP, _OFFSET = 0, 1


class TimestampOffset(NamedTuple):
    """A timestamp in milliseconds and the offset it belongs to."""

    timestamp: int
    offset: int


class TimeIndex:
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

    def __getitem__(self, number: int) -> TimestampOffset:
        timestamp, relative = self._entries[number]
        return TimestampOffset(timestamp, self._base_offset + relative)

    def last(self) -> TimestampOffset | None:
        """The newest entry, None if there is none."""
        return self[len(self) - 1] if len(self) else None

    def append_if_later(self, timestamp: int, offset: int) -> None:
        """Note a maximum, unless it is no later than the one noted last."""
        last = self.last()
        if timestamp >= 0 and (last is None or (timestamp > last[0] and offset > last[1])):
            self._entries.append(timestamp, offset - self._base_offset)

    def find_timestamp(self, timestamp: int) -> int:
        """The number of the last entry with `timestamp` <= timestamp; -1 if there is none."""
        return self._entries.find_last(_TIMESTAMP, timestamp)

    def find_offset(self, offset: int) -> int:
        """The number of the last entry with `offset` <= offset; -1 if there is none."""
        return self._entries.find_last(_OFFSET, offset - self._base_offset)

    def keep_up_to(self, offset: int) -> None:
        """Drop the entries of later offsets. Raises OSError."""
        self._entries.keep_first(self.find_offset(offset) + 1)

    def replace_all(self, entries: Iterable[TimestampOffset]) -> None:
        """Write the file anew. Raises OSError; then nothing has changed."""
        self._entries.replace_all(
            [(entry.timestamp, entry.offset - self._base_offset) for entry in entries]
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

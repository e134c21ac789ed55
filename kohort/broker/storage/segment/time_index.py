"""The .timeindex file of a segment: how timestamps increase with offsets.

An entry (timestamp, offset) says: no record up to `offset` is later than `timestamp`, and the batch
that ends at `offset` is the first that contains a record with that timestamp. Both columns are
strictly ascending. Kafka calls it TimeIndex. When a segment is rolled or closed, a last entry has
its maximum.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from kohort.broker.storage.segment.entry_file import SegmentIndex

ENTRY = Struct(">qI")
ENTRY_BYTES = ENTRY.size

_TIMESTAMP, _OFFSET = 0, 1


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class TimeIndex(SegmentIndex):
    __slots__ = ()

    entry = ENTRY

    def __getitem__(self, number: int) -> TimestampOffset:
        timestamp, relative = self._entries[number]
        return TimestampOffset(timestamp, self._base_offset + relative)

    def last(self) -> TimestampOffset | None:
        """The latest entry, None if there is none."""
        return self[len(self) - 1] if len(self) else None

    def append_if_later(self, timestamp: int, offset: int) -> None:
        """Add a maximum, unless it is no later than the last one."""
        last = self.last()
        if timestamp >= 0 and (last is None or (timestamp > last[0] and offset > last[1])):
            self._entries.append(timestamp, offset - self._base_offset)

    def find_timestamp(self, timestamp: int) -> int:
        """Return the index of the last entry with `timestamp` <= timestamp; -1 if there is none."""
        return self._entries.find_last(_TIMESTAMP, timestamp)

    def find_offset(self, offset: int) -> int:
        """Return the index of the last entry with `offset` <= offset; -1 if there is none."""
        return self._entries.find_last(_OFFSET, offset - self._base_offset)

    def keep_up_to(self, offset: int) -> None:
        """Drop entries with later offsets. Raises OSError."""
        self._entries.keep_first(self.find_offset(offset) + 1)

    def replace_all(self, entries: Iterable[TimestampOffset]) -> None:
        """Rewrite the file. Raises OSError, having changed nothing."""
        self._entries.replace_all(
            [(entry.timestamp, entry.offset - self._base_offset) for entry in entries]
        )

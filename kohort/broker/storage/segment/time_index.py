"""The .timeindex file of a segment: how far timestamps have risen by which offset.

An entry (timestamp, offset) says: no record up to `offset` is later than `timestamp`, and the batch
that ends at `offset` is the first that holds a record of that time. Both columns rise strictly.
Kafka calls it TimeIndex. When a segment is rolled or closed, a last entry notes its maximum.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from kohort.broker.storage.segment.segment_index import SegmentIndex

ENTRY = Struct(">qI")
ENTRY_BYTES = ENTRY.size

_TIMESTAMP, _OFFSET = 0, 1


class TimestampOffset(NamedTuple):
    """A timestamp in milliseconds and the offset it belongs to."""

    timestamp: int
    offset: int


class TimeIndex(SegmentIndex):
    """See the module."""

    __slots__ = ()

    entry = ENTRY

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
        """Rewrite the file. Raises OSError; then nothing has changed."""
        self._entries.replace_all(
            [(entry.timestamp, entry.offset - self._base_offset) for entry in entries]
        )

"""The .index and .timeindex files of a segment: fixed-size entries in ascending order, searched in
place.

Nothing is loaded: a search reads a few entries from the page cache (13 to 18 reads of a microsecond
each in a segment of 1 GB; one read if the entry follows the one found last, as for a consumer that
continues), so a broker with a terabyte of logs needs no memory for their indexes. New entries are
kept encoded in memory until the segment saves them, without fsync, because whatever an unclean
shutdown leaves is checked or rebuilt. For the same reason entries are hints: code that uses one
compares it with the batch it points to.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from struct import Struct
from typing import ClassVar, Final, NamedTuple, Self

from kohort.broker.storage.checked_file import replace_file
from kohort.broker.storage.filesystem import File, FileSystem, write_fully

RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1
"""A segment is rolled before an offset is further than this from its base offset."""

_BLOCK_ENTRIES: Final = 64
"""The last step of a search reads this many entries at once."""
_NEAR_ENTRIES: Final = 512
"""A search first reads this many entries from its last result on: a page, at least 2 MB of log."""


class SegmentIndex:
    """An index of integer pairs. The file is created when they are saved for the first time.

    An incomplete last entry is ignored. A search in a damaged file does not fail, but returns a
    useless result.
    """

    __slots__ = ("_base_offset", "_file", "_files", "_near", "_pending", "_saved", "path")

    entry: ClassVar[Struct]
    """The layout of an entry; each kind of index has its own."""

    def __init__(
        self, files: FileSystem, path: str, base_offset: int, size_bytes: int | None
    ) -> None:
        """`size_bytes`: the present size of the file, None if it does not exist."""
        self.path = path
        self._base_offset = base_offset
        self._files = files
        self._file: File | None = None if size_bytes is None else files.file(path)
        self._saved = 0 if size_bytes is None else size_bytes // self.entry.size
        self._pending = bytearray()
        self._near = 0
        """The index found by the last search, as the start of the next one."""

    def twin(self) -> Self:
        """Return a copy for searches in another thread. Never call `save` on the copy."""
        twin = copy(self)
        twin._pending = self._pending.copy()  # noqa: SLF001 - its own.
        return twin

    def __len__(self) -> int:
        return self._saved + self.unsaved_count

    @property
    def unsaved_count(self) -> int:
        """The number of entries that are not saved yet."""
        return len(self._pending) // self.entry.size

    def is_cached(self) -> bool:
        """Whether the whole file is known to be in the page cache. Raises OSError."""
        return self._file is None or self._file.is_cached(0, self._saved * self.entry.size)

    def _append(self, first: int, second: int) -> None:
        self._pending += self.entry.pack(first, second)

    def save(self) -> None:
        """Write unsaved entries, or create an empty file. Raises OSError, having lost nothing."""
        if self._file is None:
            self._file = self._files.create(self.path)
        if not self._pending:
            return
        write_fully(self._file, [bytes(self._pending)], self._saved * self.entry.size)
        self._saved += self.unsaved_count
        self._pending.clear()

    def sync(self) -> None:
        """Return once all saved entries are on disk. Raises OSError."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def keep_first(self, count: int) -> None:
        """Drop all entries but the first `count`. Raises OSError."""
        if count >= self._saved:
            del self._pending[(count - self._saved) * self.entry.size :]
            return
        self._pending.clear()
        self._saved = count
        if self._file is not None:
            self._file.truncate(count * self.entry.size)

    def _replace_all(self, entries: Sequence[tuple[int, int]]) -> None:
        self.close()
        replace_file(self._files, self.path, b"".join(self.entry.pack(*each) for each in entries))
        self._file = self._files.file(self.path)
        self._saved = len(entries)
        self._pending.clear()

    def find_last(self, column: int, limit: int) -> int:
        """Return the index of the last entry whose `column` is at most `limit`; -1 if there is
        none.

        In a damaged, unordered file it is the index of some entry or -1.
        """
        if self._pending and self._unpacked(self._pending, 0)[column] <= limit:
            return self._saved + self._count_up_to(self._pending, column, limit) - 1
        low, high = 0, self._saved  # Entries below `low` are at most the limit, from `high` above.
        if high > _BLOCK_ENTRIES:
            near = min(self._near, high)
            stop = min(near + _NEAR_ENTRIES, high)
            number = near + self._count_up_to(self._read(near, stop - near), column, limit)
            if number == near:
                high = near
            elif number < stop:
                low = high = number
            else:
                low = stop
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            data = self._read(middle, 1)
            if data and self._unpacked(data, 0)[column] <= limit:
                low = middle + 1
            else:
                high = middle
        number = low + self._count_up_to(self._read(low, high - low), column, limit) - 1
        self._near = max(number, 0)
        return number

    def last_cached(self, column: int, limit: int) -> tuple[int, int] | None:
        """Return the entry that `find_last` finds, if it is unsaved or among the `_NEAR_ENTRIES`
        after the entry found last; else None. Raises OSError if these are not in the page cache.
        """
        data: bytes | bytearray = self._pending
        if not data or self._unpacked(data, 0)[column] > limit:
            near, size = min(self._near, self._saved), self.entry.size
            count = min(_NEAR_ENTRIES, self._saved - near)
            if self._file is None or not count:
                return None
            data = self._file.pread_cached(count * size, near * size)
            count_found = self._count_up_to(data, column, limit)
            # If the last entry read qualifies, a later one may be the result.
            if count_found == 0 or (
                count_found * size > len(data) - size and near + count_found < self._saved
            ):
                return None
            self._near = near + count_found - 1
        else:
            count_found = self._count_up_to(data, column, limit)
        return self._unpacked(data, count_found - 1)

    def _at(self, number: int) -> tuple[int, int]:
        if number >= self._saved:
            return self._unpacked(self._pending, number - self._saved)
        data = self._read(number, 1)
        if not data:
            raise OSError(f"{self.path} ends before entry {number}")
        return self._unpacked(data, 0)

    def _read(self, number: int, count: int) -> bytes:
        """Read up to `count` encoded entries; fewer where the file ends."""
        if self._file is None or count == 0:
            return b""
        size = self.entry.size
        data = self._file.pread(count * size, number * size)
        return data[: len(data) - len(data) % size]

    def _unpacked(self, data: bytes | bytearray, number: int) -> tuple[int, int]:
        first, second = self.entry.unpack_from(data, number * self.entry.size)
        return first, second

    def _count_up_to(self, data: bytes | bytearray, column: int, limit: int) -> int:
        """Return how many of the (ascending) entries have a `column` of at most `limit`."""
        entry_at, size = self.entry.unpack_from, self.entry.size
        low, high = 0, len(data) // size
        while low < high:
            middle = (low + high) // 2
            if entry_at(data, middle * size)[column] <= limit:
                low = middle + 1
            else:
                high = middle
        return low


class IndexEntry(NamedTuple):
    """A hint that the batch with this `last_offset` starts at `position`."""

    last_offset: int
    position: int


class OffsetIndex(SegmentIndex):
    """Positions of batches, one entry for every few KB of log: the last offset of a batch, relative
    to the segment's base offset, and the position where that batch starts (Kafka's OffsetIndex).
    """

    __slots__ = ()

    entry = Struct(">II")

    def __getitem__(self, number: int) -> IndexEntry:
        relative, position = self._at(number)
        return IndexEntry(self._base_offset + relative, position)

    def append(self, last_offset: int, position: int) -> None:
        """Append the entry of a batch that follows all batches with entries."""
        self._append(last_offset - self._base_offset, position)

    def find_offset(self, offset: int) -> int:
        """Return the index of the last entry with `last_offset` <= offset; -1 if there is none."""
        return self.find_last(0, offset - self._base_offset)

    def find_position(self, position: int) -> int:
        """Return the index of the last entry with `position` <= position; -1 if there is none."""
        return self.find_last(1, position)

    def cached_entry(self, position: int) -> IndexEntry | None:
        """Return the entry that `find_position` finds, if `last_cached` does; else None.

        Raises OSError like `last_cached`.
        """
        entry = self.last_cached(1, position)
        return None if entry is None else IndexEntry(self._base_offset + entry[0], entry[1])

    def replace_all(self, entries: Iterable[IndexEntry]) -> None:
        """Rewrite the file. Raises OSError, having changed nothing."""
        self._replace_all(
            [(entry.last_offset - self._base_offset, entry.position) for entry in entries]
        )


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class TimeIndex(SegmentIndex):
    """The maximum timestamps up to certain offsets (Kafka's TimeIndex).

    An entry (timestamp, offset) says: no record up to `offset` is later than `timestamp`, and the
    batch that ends at `offset` is the first that contains a record with that timestamp. Both
    columns are strictly ascending. When a segment is rolled or closed, an entry with its maximum
    timestamp is added.
    """

    __slots__ = ()

    entry = Struct(">qI")

    def __getitem__(self, number: int) -> TimestampOffset:
        timestamp, relative = self._at(number)
        return TimestampOffset(timestamp, self._base_offset + relative)

    def last(self) -> TimestampOffset | None:
        """The latest entry, None if there is none."""
        return self[len(self) - 1] if len(self) else None

    def append_if_later(self, timestamp: int, offset: int) -> None:
        """Add an entry, if its timestamp and its offset both exceed those of the last one."""
        last = self.last()
        if timestamp >= 0 and (last is None or (timestamp > last[0] and offset > last[1])):
            self._append(timestamp, offset - self._base_offset)

    def find_timestamp(self, timestamp: int) -> int:
        """Return the index of the last entry with `timestamp` <= timestamp; -1 if there is none."""
        return self.find_last(0, timestamp)

    def find_offset(self, offset: int) -> int:
        """Return the index of the last entry with `offset` <= offset; -1 if there is none."""
        return self.find_last(1, offset - self._base_offset)

    def keep_up_to(self, offset: int) -> None:
        """Drop entries with offsets above `offset`. Raises OSError."""
        self.keep_first(self.find_offset(offset) + 1)

    def replace_all(self, entries: Iterable[TimestampOffset]) -> None:
        """Rewrite the file. Raises OSError, having changed nothing."""
        self._replace_all(
            [(entry.timestamp, entry.offset - self._base_offset) for entry in entries]
        )

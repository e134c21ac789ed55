"""The `.txnindex` of a segment: the aborted transactions whose marker lies in it, as Kafka has it.

Made with the first abort; most segments have none. Entries of 34 bytes, ascending by the offset of
their marker. A consumer that reads committed records only is told of every transaction that has
records in what it gets: `overlapping` finds them from the first offset asked for on, and says when
no later segment can have any.

An entry waits in memory until it can be written, so an abort never fails for its index; and nothing
below the recovery point is without its entry on the disk, because `sync` comes before that moves.
What an unclean stop leaves above the recovery point is not trusted and is rebuilt from the batches.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.checkpoints.checked_file import replace_file
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import File, FileSystem, write_fully

_ENTRY: Final = Struct(">hqqqq")
_ENTRY_BEHIND_VERSION: Final = Struct(">2xqqqq")
ENTRY_BYTES: Final = _ENTRY.size
_VERSION: Final = 0
_BLOCK_ENTRIES: Final = 128
"""Read at once, where few are expected."""
_LARGE_BLOCK_ENTRIES: Final = 4_096
"""Read at once, where there were many already."""
LONG_ENTRIES: Final = 4_096
"""An index with more takes longer to check than the loop should wait: some milliseconds."""


class Overlapping(NamedTuple):
    """What one segment's index says about a range of offsets."""

    transactions: list[AbortedTransaction]
    is_all: bool
    """No later segment has one that begins before the end of the range."""


def encode_entries(entries: Sequence[AbortedTransaction]) -> bytes:
    """The content of a file."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


class TransactionIndex:
    """See the module. For the log's thread, but for `sync`, `check_aside` and `overlapping`; all
    may raise OSError.
    """

    __slots__ = ("_base_offset", "_damage", "_file", "_files", "_is_checked", "_lock", "_pending",
                 "_saved", "path")  # fmt: skip

    def __init__(
        self, files: FileSystem, path: str, base_offset: int, size_bytes: int | None
    ) -> None:
        """`size_bytes` of the file as it is, None if there is none."""
        self.path = path
        self._files = files
        self._base_offset = base_offset
        self._file: File | None = None if size_bytes is None else files.file(path)
        self._saved = 0 if size_bytes is None else size_bytes // ENTRY_BYTES
        self._is_checked = size_bytes is None
        self._damage: str | None = None
        """What `check_aside` has found."""
        self._pending: list[AbortedTransaction] = []
        self._lock = threading.Lock()
        """Its holder may write."""

    def __len__(self) -> int:
        return self._saved + len(self._pending)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        for number in range(0, self._saved, _BLOCK_ENTRIES):
            yield from self._read(number, _BLOCK_ENTRIES)
        yield from self._pending

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry behind all others. On OSError it waits in memory to be written."""
        with self._lock:
            self._pending.append(entry)
            self._save()

    def sync(self) -> None:
        """Return once everything is on the disk. For any thread."""
        with self._lock:
            self._save()
            file = self._file
        if file is not None:
            file.sync()

    def close(self) -> None:
        """Give the descriptor back."""
        if self._file is not None:
            self._file.close()

    def check(self) -> None:
        """See that the file can be what was written; CorruptFileError if not.

        Reads it once. A caller that is told to must `replace_all` before anything else is asked.
        """
        if self._is_checked or self._file is None:
            return
        if self._damage is None:
            self._damage = self._find_damage()
        if self._damage is not None:
            raise CorruptFileError(self._damage)
        self._is_checked = True

    @property
    def is_checked(self) -> bool:
        """Whether it was looked at and is good, or is all from here."""
        return self._is_checked

    @property
    def takes_long(self) -> bool:
        """Whether another thread should `check_aside` it, or rebuild it: damage was found."""
        if self._is_checked:
            return False
        if self._damage is None and self._saved > LONG_ENTRIES:
            return True
        return not self.check_aside()

    def check_aside(self) -> bool:
        """Do the work of `check` in any thread; the next `check` tells. Whether the file is good.

        What is appended meanwhile is not looked at, as it comes from here.
        """
        if self._is_checked or self._file is None:
            return True
        damage = self._damage or self._find_damage()
        if damage is None:
            self._is_checked = True
        self._damage = damage
        return damage is None

    def _find_damage(self) -> str | None:
        assert self._file is not None
        with self._lock:
            size_bytes, saved = self._file.size(), self._saved
        if not size_bytes or size_bytes % ENTRY_BYTES:
            return f"{self.path} has {size_bytes} bytes"
        last_offset = self._base_offset - 1
        for number in range(0, saved, _LARGE_BLOCK_ENTRIES):
            count = min(_LARGE_BLOCK_ENTRIES, saved - number)
            for version, _, first, last, stable in self._fields(number, count):
                is_right = first < last and 0 <= stable <= last + 1
                if version != _VERSION or last <= last_offset or not is_right:
                    return f"{self.path} is wrong about a marker at {last}"
                last_offset = last
        return None

    def replace_all(self, entries: Sequence[AbortedTransaction]) -> None:
        """Hold other entries than those of the file, which is replaced as a whole, on the disk.

        On OSError they wait in memory to be written.
        """
        self.close()
        with self._lock:
            self._file, self._saved, self._is_checked, self._damage = None, 0, True, None
            self._pending[:] = entries
            # The segment may be sealed and synced, so that no flush comes by.
            self._save(sync=True)

    def overlapping(self, offset: int, end_offset: int) -> Overlapping:
        """The transactions with records from `offset` on and below `end_offset`, by marker."""
        with self._lock:
            saved, pending = self._saved, list(self._pending)
        found: list[AbortedTransaction] = []
        number, count = self._first_from(offset, saved), _BLOCK_ENTRIES
        while number < saved:
            block = self._read(number, min(count, saved - number))
            # It never goes back from one marker to the next.
            if block[-1].last_stable_offset >= end_offset:
                reached = bisect_left(block, end_offset, key=lambda one: one.last_stable_offset)
                found += [one for one in block[: reached + 1] if one.first_offset < end_offset]
                return Overlapping(found, is_all=True)
            found += [one for one in block if one.first_offset < end_offset]
            number, count = number + len(block), _LARGE_BLOCK_ENTRIES
        for entry in pending:
            if entry.last_offset >= offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_offset >= offset and entry.last_stable_offset >= end_offset:
                return Overlapping(found, is_all=True)
        return Overlapping(found, is_all=False)

    def marker_behind(self, offset: int, count: int) -> int | None:
        """The marker of the entry that is `count` entries behind the first whose marker is at or
        behind an offset; None if there are not so many.
        """
        with self._lock:
            saved, pending = self._saved, list(self._pending)
        number = self._first_from(offset, saved) + count
        if number < saved:
            return self._read(number, 1)[0].last_offset
        number -= saved
        return pending[number].last_offset if number < len(pending) else None

    def since(self, number: int) -> list[AbortedTransaction]:
        """The entries from a number on."""
        with self._lock:
            saved, pending = self._saved, list(self._pending)
        return self._read(number, saved - number) + pending[max(0, number - saved) :]

    def _first_from(self, offset: int, saved: int) -> int:
        """The number of the first entry in the file whose marker is at or behind an offset."""
        low, high = 0, saved
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self._read(middle, 1)[0].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        block = self._read(low, high - low)
        return low + bisect_left(block, offset, key=lambda entry: entry.last_offset)

    def _read(self, number: int, count: int) -> list[AbortedTransaction]:
        data = self._bytes(number, count)
        return list(map(AbortedTransaction._make, _ENTRY_BEHIND_VERSION.iter_unpack(data)))

    def _fields(self, number: int, count: int) -> Iterator[tuple[int, int, int, int, int]]:
        return _ENTRY.iter_unpack(self._bytes(number, count))

    def _bytes(self, number: int, count: int) -> bytes:
        """The entries as they are in the file, as many as there are."""
        wanted = min(count, self._saved - number) * ENTRY_BYTES
        if wanted <= 0:
            return b""
        assert self._file is not None
        data = self._file.pread(wanted, number * ENTRY_BYTES)
        if len(data) != wanted:
            raise OSError(f"{self.path} ends before entry {number + count}")
        return data

    def _save(self, *, sync: bool = False) -> None:
        if not self._pending:
            return
        content = encode_entries(self._pending)
        if self._file is None:
            replace_file(self._files, self.path, content, sync=sync)
            self._file = self._files.file(self.path)
        else:
            write_fully(self._file, [content], self._saved * ENTRY_BYTES)
        self._saved += len(self._pending)
        self._pending.clear()

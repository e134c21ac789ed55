"""The `.txnindex` of a segment: the aborted transactions whose marker is in it, in Kafka's format.

Created with the first abort; most segments have none. Entries of 34 bytes, ascending by the offset
of their marker. A read_committed consumer gets every aborted transaction that has records in its
response: `overlapping` finds them from the first requested offset on, and says when no later
segment can have any.

An entry is kept in memory until it can be written, so an abort never fails because of its index;
and all entries below the recovery point are on disk, because `sync` runs before the recovery point
advances. Entries that an unclean shutdown leaves above the recovery point are not trusted and are
rebuilt from the batches. The others are trusted if the file has the checksum that `segments.crc`
lists.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.checked_file import replace_file
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import File, FileSystem, write_fully
from kohort.groups.steps import Steps, at_once
from kohort.protocol.records.crc import crc32c

_ENTRY: Final = Struct(">hqqqq")
_ENTRY_BEHIND_VERSION: Final = Struct(">2xqqqq")
_FIRST, _LAST, _STABLE = 1, 2, 3
"""Indexes of the offsets in the tuples that `_ENTRY_BEHIND_VERSION` unpacks."""
ENTRY_BYTES: Final = _ENTRY.size
_VERSION: Final = 0
_BLOCK_ENTRIES: Final = 128
"""Entries read at once if few are expected."""
_CHECKED_ENTRIES: Final = 4_096
"""Entries read at once by a check."""
STEP_ENTRIES: Final = 1_024
"""Entries examined in one step of a search: a fraction of a millisecond."""
LONG_ENTRIES: Final = 4_096
"""Checking an index with more entries takes some milliseconds, too long for the event loop."""


_transaction = AbortedTransaction._make


class Overlapping(NamedTuple):
    """The result of searching one segment's index for a range of offsets."""

    transactions: list[AbortedTransaction]
    is_all: bool
    """Whether the result is complete: no later segment has a transaction that overlaps the
    range."""


def encode_entries(entries: Sequence[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


class TransactionIndex:
    """The index of one segment. Only the log's thread may use it, except for `sync`,
    `check_in_thread` and `overlapping`; all methods may raise OSError.
    """

    __slots__ = ("_base_offset", "_bounds", "_damage", "_file", "_files", "_found_count",
                 "_is_checked", "_lock", "_noted_sum", "_pending", "_saved", "_sum",
                 "is_noted", "path")  # fmt: skip

    def __init__(
        self,
        files: FileSystem,
        path: str,
        base_offset: int,
        size_bytes: int | None,
        *,
        noted_sum: int | None = None,
        damage: str | None = None,
        is_noted: bool = True,
    ) -> None:
        """Create an instance for an existing file, or for a file that the first entry will create.

        Args:
            size_bytes: the present size of the file, None if it does not exist.
            noted_sum: the checksum that the file must have, if known.
            damage: why the file has to be rebuilt from the batches; None if no reason is known.
            is_noted: whether `segments.crc` lists the file, or its absence.
        """
        self.path = path
        self._files = files
        self._base_offset = base_offset
        self._file: File | None = None if size_bytes is None else files.file(path)
        self._saved = 0 if size_bytes is None else size_bytes // ENTRY_BYTES
        self._found_count = self._saved
        """Number of entries that an earlier process wrote."""
        self._is_checked = size_bytes is None and damage is None
        self.is_noted = is_noted
        """Whether the file once matched the batches, so that a difference from them is damage."""
        self._noted_sum = noted_sum
        self._sum: int | None = 0 if self._is_checked else None
        """The checksum of all entries; None if it is unknown."""
        self._damage = damage
        """Why the file has to be rebuilt, if the constructor or `check_in_thread` got a reason."""
        self._pending: list[AbortedTransaction] = []
        self._bounds: dict[int, tuple[int, int]] = {}
        """For each searched step of `STEP_ENTRIES` entries, by the index of the step's first entry:
        the lowest first offset, and the last stable offset of the last entry. Without them, every
        read in a long transaction would examine all transactions aborted meanwhile.
        """
        self._lock = threading.Lock()
        """Held while writing."""

    def __len__(self) -> int:
        return self._saved + len(self._pending)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        for number in range(0, self._saved, _BLOCK_ENTRIES):
            yield from self._read(number, _BLOCK_ENTRIES)
        yield from self._pending

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry after all others. On OSError it is kept in memory to be written later."""
        with self._lock:
            if self._sum is not None:
                self._sum = crc32c(encode_entries([entry]), self._sum)
            self._pending.append(entry)
            self._save()

    def sync(self) -> None:
        """Return once all entries are on disk. May be called in any thread."""
        with self._lock:
            self._save()
            file = self._file
        if file is not None:
            file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def checksum(self) -> int | None:
        """Return the CRC-32C of all entries, written or not; None if it is not known yet."""
        if not self._is_checked:
            return self._noted_sum if len(self) == self._found_count else None
        if self._sum is None:
            content = self._bytes(0, self._saved)
            self._sum = crc32c(content + encode_entries(self._pending))
        return self._sum

    def plausible(self) -> list[AbortedTransaction] | None:
        """Return all entries if the file is well-formed, even if its checksum is wrong; None if it
        is malformed, or missing although it should exist.
        """
        if self._is_checked:
            return list(self)
        if self._file is None or self._find_damage(with_sum=False) is not None:
            return None
        return list(self)

    def accept(self) -> None:
        """Trust the entries from now on: they were compared with the batches."""
        self._is_checked, self._damage = True, None

    def check(self) -> None:
        """Verify the form and the checksum of the file; raises CorruptFileError if they are wrong.

        Reads it once. After an error the caller must call `replace_all` before anything else.
        """
        if self._is_checked:
            return
        if self._damage is None:
            self._damage = self._find_damage()
        if self._damage is not None:
            raise CorruptFileError(self._damage)
        self._is_checked = True

    @property
    def damage(self) -> str | None:
        """The reason why the file has to be rebuilt; None if no reason is known."""
        return self._damage

    @property
    def is_checked(self) -> bool:
        """Whether the file was checked and is intact, or was written entirely by this process."""
        return self._is_checked

    @property
    def takes_long(self) -> bool:
        """Whether to check or rebuild the file in another thread, because it is long or damaged."""
        if self._is_checked:
            return False
        if self._damage is None and self._saved > LONG_ENTRIES:
            return True
        return not self.check_in_thread()

    def check_in_thread(self) -> bool:
        """Like `check`, but in any thread, and return whether the file is intact; the next `check`
        uses the result.

        Entries appended meanwhile are not examined, as they come from this process.
        """
        if self._is_checked:
            return True
        damage = self._damage or self._find_damage()
        if damage is None:
            self._is_checked = True
        self._damage = damage
        return damage is None

    def _find_damage(self, *, with_sum: bool = True) -> str | None:
        assert self._file is not None
        with self._lock:
            size_bytes, saved = self._file.size(), self._saved
        if not size_bytes or size_bytes % ENTRY_BYTES:
            return f"{self.path} has {size_bytes} bytes"
        last_offset = self._base_offset - 1
        checksum = 0
        for number in range(0, saved, _CHECKED_ENTRIES):
            content = self._bytes(number, min(_CHECKED_ENTRIES, saved - number))
            for version, _, first, last, stable in _ENTRY.iter_unpack(content):
                is_right = first < last and 0 <= stable <= last + 1
                if version != _VERSION or last <= last_offset or not is_right:
                    return f"{self.path} has a wrong entry for the marker at {last}"
                last_offset = last
            if number < self._found_count:
                found = content[: (self._found_count - number) * ENTRY_BYTES]
                checksum = crc32c(found, checksum)
        if with_sum and self._noted_sum not in {None, checksum}:
            return f"{self.path} does not have the checksum in segments.crc"
        with self._lock:
            if len(self) == self._found_count:
                self._sum = checksum
        return None

    def replace_all(self, entries: Sequence[AbortedTransaction]) -> None:
        """Replace all entries and flush the file. After an OSError the new ones stay in memory."""
        self.close()
        with self._lock:
            self._file, self._saved, self._is_checked, self._damage = None, 0, True, None
            self._noted_sum, self._sum = None, crc32c(encode_entries(entries))
            self._bounds.clear()
            self._pending[:] = entries
            # The segment may be sealed and synced, so that no flush follows.
            self._save(sync=True)

    def overlapping(self, offset: int, end_offset: int) -> Overlapping:
        """Return the transactions with records from `offset` to `end_offset`, in the order of
        markers.
        """
        return at_once(self.search(offset, end_offset))

    def search(self, offset: int, end_offset: int) -> Steps[Overlapping]:
        """Like `overlapping`, in steps of `STEP_ENTRIES`, without entries appended meanwhile."""
        with self._lock:
            saved, pending = self._saved, list(self._pending)
        aborted: list[AbortedTransaction] = []
        number, count = self._first_from(offset, saved), _BLOCK_ENTRIES
        while number < saved:
            bounds = self._bounds.get(number)
            # All transactions of this step begin after the range, but those of later entries may
            # overlap it.
            if bounds is not None and bounds[0] >= end_offset > bounds[1]:
                number, count = number + STEP_ENTRIES, STEP_ENTRIES
                yield
                continue
            block = self._plain(number, min(count, saved - number))
            if len(block) == STEP_ENTRIES and number % STEP_ENTRIES == 0:
                self._bounds[number] = min(entry[_FIRST] for entry in block), block[-1][_STABLE]
            # Transactions of later entries begin at or after this last stable offset.
            is_all = block[-1][_STABLE] >= end_offset
            if is_all:
                del block[bisect_left(block, end_offset, key=itemgetter(_STABLE)) + 1 :]
            aborted += [_transaction(entry) for entry in block if entry[_FIRST] < end_offset]
            if is_all:
                return Overlapping(aborted, is_all=True)
            number += len(block)
            # The next step ends at a multiple of `STEP_ENTRIES`, like the steps in `_bounds`.
            count = STEP_ENTRIES - number % STEP_ENTRIES
            yield
        for entry in pending:
            if entry.last_offset >= offset and entry.first_offset < end_offset:
                aborted.append(entry)
            if entry.last_offset >= offset and entry.last_stable_offset >= end_offset:
                return Overlapping(aborted, is_all=True)
        return Overlapping(aborted, is_all=False)

    def marker_behind(self, offset: int, count: int) -> int | None:
        """Skip `count` entries with markers at or after an offset, and return the offset of the
        next entry's marker; None if there is none.
        """
        with self._lock:
            saved, pending = self._saved, list(self._pending)
        number = self._first_from(offset, saved) + count
        if number < saved:
            return self._read(number, 1)[0].last_offset
        number -= saved
        return pending[number].last_offset if number < len(pending) else None

    def since(self, number: int) -> list[AbortedTransaction]:
        with self._lock:
            saved, pending = self._saved, list(self._pending)
        return self._read(number, saved - number) + pending[max(0, number - saved) :]

    def _first_from(self, offset: int, saved: int) -> int:
        """Return the index of the first entry in the file whose marker is at or after an offset."""
        low, high = 0, saved
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self._plain(middle, 1)[0][_LAST] < offset:
                low = middle + 1
            else:
                high = middle
        return low + bisect_left(self._plain(low, high - low), offset, key=itemgetter(_LAST))

    def _read(self, number: int, count: int) -> list[AbortedTransaction]:
        return list(map(_transaction, self._plain(number, count)))

    def _plain(self, number: int, count: int) -> list[tuple[int, int, int, int]]:
        """Return entries as plain tuples, because a search drops most of them."""
        return list(_ENTRY_BEHIND_VERSION.iter_unpack(self._bytes(number, count)))

    def _bytes(self, number: int, count: int) -> bytes:
        """Return `count` encoded entries from the file, or as many as it has left."""
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

"""Stores the records of the rebalance history in memory blocks of their own.

A long-lived object among a million short-lived ones keeps its pages from being returned to the
system: for a record of 7 KB, that is up to three times its size. Here records are stored one after
another in memory that contains nothing else. A block is only ever written at its end, so a reader
of a dropped record still finds it intact; a block is freed when nothing refers to its records any
more. When too much of all blocks consists of dropped records, the live ones of the worst block are
moved to another block.
"""

import mmap
import sys
import zlib
from array import array
from typing import Final, NamedTuple

BLOCK_BYTES: Final = 256 * 1024
"""Address space of a block; parts that were never written take no memory."""

BLOCK_RECORDS: Final = 256
"""The interpreter caches integers up to this, so record numbers take no memory."""

LARGE_BYTES: Final = BLOCK_BYTES // 4
"""Records from this size on get a block of their own, so that no block stays half empty."""

WASTE_DIVISOR: Final = 8
"""Dropped records may take up to this fraction of the live ones, plus one block."""

_PAGE_BYTES: Final = 4096
_PLAIN: Final = b"\0"
_COMPRESSED: Final = b"\1"


PACKED_FROM_BYTES: Final = 8 * 1024
"""Smaller texts, which are nearly all, are not compressed, so reading them costs nothing."""


def pack(text: bytes) -> bytes:
    """Return a record as it is stored, after a byte that says whether it is compressed: large texts
    are repetitive, and shrink to about a tenth. For any thread.
    """
    if len(text) < PACKED_FROM_BYTES:
        return _PLAIN + text
    return _COMPRESSED + zlib.compress(text, 1)


class Block:
    """Records one after another, each preceded by a byte that says whether it is compressed."""

    __slots__ = ("_data", "_ends", "live_bytes", "owners", "size_bytes", "used_bytes")

    def __init__(self, size_bytes: int) -> None:
        self._data = _new_memory(size_bytes)
        self._ends = array("L")
        self.size_bytes = size_bytes
        self.used_bytes = 0
        self.live_bytes = 0
        self.owners: set[str] = set()

    def has_room(self, size_bytes: int) -> bool:
        return self.used_bytes + size_bytes <= self.size_bytes and len(self._ends) < BLOCK_RECORDS

    def append(self, data: bytes) -> int:
        """Append `data`, including its first byte; return the record's number."""
        self._data[self.used_bytes : self.used_bytes + len(data)] = data
        self.used_bytes += len(data)
        self.live_bytes += len(data)
        self._ends.append(self.used_bytes)
        return len(self._ends) - 1

    def size_of(self, number: int) -> int:
        return self._ends[number] - self._start_of(number)

    def read(self, number: int) -> bytes:
        return self._data[self._start_of(number) : self._ends[number]]

    def _start_of(self, number: int) -> int:
        return self._ends[number - 1] if number else 0


class StoredRecord(NamedTuple):
    block: Block
    number: int

    @property
    def is_compressed(self) -> bool:
        return self.block.read(self.number)[:1] == _COMPRESSED

    @property
    def data(self) -> bytes:
        return self.block.read(self.number)[1:]

    @property
    def text(self) -> bytes:
        data = self.data
        return zlib.decompress(data) if self.is_compressed else data

    def head(self, size_bytes: int) -> bytes:
        """Return the beginning of the text, of at most that size; no more is decompressed."""
        data = self.data
        if self.is_compressed:
            return zlib.decompressobj().decompress(data, size_bytes)
        return data[:size_bytes]

    @property
    def size_bytes(self) -> int:
        return self.block.size_of(self.number)


class HistoryStore:
    def __init__(self) -> None:
        self._blocks: set[Block] = set()
        self._current: Block | None = None
        self.used_bytes = 0
        """Bytes used in all existing blocks, including dropped records."""
        self.live_bytes = 0

    def put(self, owner: str, packed: bytes) -> StoredRecord:
        """Store a record of `pack`. `owner` is added to its block's `owners`."""
        block = self._block_for(len(packed))
        block.owners.add(owner)
        number = block.append(packed)
        self.used_bytes += len(packed)
        self.live_bytes += len(packed)
        return StoredRecord(block, number)

    def move(self, owner: str, stored: StoredRecord) -> StoredRecord:
        moved = self.put(owner, stored.block.read(stored.number))
        self.drop(stored)
        return moved

    def drop(self, stored: StoredRecord) -> None:
        """Drop a record. Call this once per record."""
        block, size_bytes = stored.block, stored.size_bytes
        block.live_bytes -= size_bytes
        self.live_bytes -= size_bytes
        if not block.live_bytes:
            self._blocks.discard(block)
            self.used_bytes -= block.used_bytes
            if block is self._current:
                self._current = None

    def worst(self) -> Block | None:
        """Return the block with the most dropped records; None if they are few."""
        waste_bytes = self.used_bytes - self.live_bytes
        if waste_bytes <= self.live_bytes // WASTE_DIVISOR + BLOCK_BYTES:
            return None
        worst = max(self._blocks, key=lambda block: block.used_bytes - block.live_bytes)
        if worst is self._current:
            self._current = None  # The block's records must not be moved into the same block.
        return worst

    def _block_for(self, size_bytes: int) -> Block:
        if size_bytes >= LARGE_BYTES:
            block = Block(-(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES)
        elif self._current is not None and self._current.has_room(size_bytes):
            return self._current
        else:
            block = self._current = Block(BLOCK_BYTES)
        self._blocks.add(block)
        return block


def _new_memory(size_bytes: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, size_bytes)
    # The default is a shared mapping, which memory accounting treats differently.
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

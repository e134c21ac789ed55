"""The latest records of every group, in bounded memory.

Records are kept as the JSON texts in which they are stored and shown, so that a record takes only
the memory of its text: half a kilobyte per member, less where `pack` has compressed it. Above the
limit for all records, the oldest records are dropped, first those of removed groups, then those of
the groups without a rebalance for the longest time.
"""

import zlib
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Final

RECORD_OVERHEAD_BYTES: Final = 90
"""Memory for a record besides its text."""

GROUP_OVERHEAD_BYTES: Final = 400
"""Memory for a ring: its list, the group id, and the entries in `_rings` and `_removed`."""

FORGOTTEN_AT_ONCE: Final = 20
"""Maximum removed groups that one call drops, which takes a millisecond if each has fifty
records."""

PACKED_FROM_BYTES: Final = 2 * 1024
"""Smaller texts are not compressed: setting up the compressor would take most of the time."""

_PLAIN: Final = b"\0"
_COMPRESSED: Final = b"\1"


class StoredRecord(bytes):
    """The text of a record, after a byte that says whether it is compressed."""

    __slots__ = ()

    @property
    def text(self) -> bytes:
        return zlib.decompress(self[1:]) if self.startswith(_COMPRESSED) else self[1:]

    def head(self, size_bytes: int) -> bytes:
        """Return at most the first `size_bytes` of the text, without decompressing more."""
        if self.startswith(_COMPRESSED):
            return zlib.decompressobj().decompress(self[1:], size_bytes)
        return self[1 : 1 + size_bytes]


def pack(text: bytes) -> StoredRecord:
    """Return a record in its stored form: large texts are compressed to a fourth of their size,
    texts with thousands of members to a tenth. May be called on any thread.
    """
    if len(text) < PACKED_FROM_BYTES:
        return StoredRecord(_PLAIN + text)
    return StoredRecord(_COMPRESSED + zlib.compress(text, 1))


class Ring:
    """One group's records, oldest first."""

    __slots__ = ("avoided_count", "last_sequence", "rebalance_count", "records")

    def __init__(self) -> None:
        self.records: list[StoredRecord] = []
        self.last_sequence = 0
        self.rebalance_count = 0
        """Rebalances of the group, including records no longer kept."""
        self.avoided_count = 0


class Rings:
    def __init__(self, size: int, memory_bytes_max: int) -> None:
        """`size` is the number of records kept per group."""
        self._size = size
        self._memory_bytes_max = memory_bytes_max
        self._rings: OrderedDict[str, Ring] = OrderedDict()
        """Rings by group, in the order in which their records are dropped."""
        self._removed: OrderedDict[str, int] = OrderedDict()
        """Removed groups, and since when (wall-clock time)."""
        self.memory_bytes = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._rings)

    def __len__(self) -> int:
        return len(self._rings)

    @property
    def record_count(self) -> int:
        return sum(len(ring.records) for ring in self._rings.values())

    def get(self, group_id: str) -> Ring | None:
        return self._rings.get(group_id)

    def add(
        self, group_id: str, sequence: int, record: StoredRecord, *, is_rebalance: bool
    ) -> None:
        """Append a record, dropping older records if there is no room."""
        ring = self._rings.get(group_id)
        if ring is None:
            ring = self._rings[group_id] = Ring()
            self.memory_bytes += _size_of_group(group_id)
        self._rings.move_to_end(group_id)
        self._removed.pop(group_id, None)
        ring.last_sequence = max(ring.last_sequence, sequence)
        if is_rebalance:
            ring.rebalance_count += 1
        else:
            ring.avoided_count += 1
        ring.records.append(record)
        self.memory_bytes += _size_of_record(record)
        while len(ring.records) > self._size:
            self._drop_oldest(ring)
        self._make_room()

    def replace_last(self, group_id: str, record: StoredRecord) -> None:
        """Replace the text of a group's last record, which must exist."""
        ring = self._rings[group_id]
        self.memory_bytes += len(record) - len(ring.records[-1])
        ring.records[-1] = record

    def mark_removed(self, group_id: str, wall_ms: int) -> None:
        """Record that a group was removed; its records are dropped before those of existing
        groups.
        """
        if group_id in self._rings:
            self._rings.move_to_end(group_id, last=False)
            self._removed[group_id] = wall_ms

    def forget_removed(self, before_wall_ms: int) -> None:
        """Drop some of the groups that were removed before `before_wall_ms`; further calls drop
        more.
        """
        for group_id, removed_ms in list(islice(self._removed.items(), FORGOTTEN_AT_ONCE)):
            if removed_ms >= before_wall_ms:
                break
            self._forget(group_id)

    def _make_room(self) -> None:
        while self.memory_bytes > self._memory_bytes_max and self._rings:
            group_id, ring = next(iter(self._rings.items()))
            if ring.records:
                self._drop_oldest(ring)
            if not ring.records:
                self._forget(group_id)

    def _drop_oldest(self, ring: Ring) -> None:
        self.memory_bytes -= _size_of_record(ring.records.pop(0))

    def _forget(self, group_id: str) -> None:
        ring = self._rings.pop(group_id)
        self._removed.pop(group_id, None)
        self.memory_bytes -= _size_of_group(group_id) + sum(map(_size_of_record, ring.records))


def _size_of_record(record: StoredRecord) -> int:
    return len(record) + RECORD_OVERHEAD_BYTES


def _size_of_group(group_id: str) -> int:
    return GROUP_OVERHEAD_BYTES + len(group_id)

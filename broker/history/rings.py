"""The last records of every group, in bounded memory.

Records are kept as the JSON texts that they are stored and shown as, so that a record costs what it
says: half a kilobyte for a member, less where `pack` has made it smaller. When all of them together
are too many, the oldest records go of the group that has been quiet for longest, removed groups
before all others.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final, NamedTuple

PACKED_FROM_BYTES: Final = 8 * 1024
"""Smaller texts are kept as they are: nearly all, and to be read at no cost."""

RECORD_OVERHEAD_BYTES: Final = 200
"""Of two objects, with what the allocator adds to each."""
GROUP_OVERHEAD_BYTES: Final = 1_200
"""A queue of any length begins with 64 places, and an id costs 200 bytes in the two tables."""


class Packed(NamedTuple):
    """A text as it is kept."""

    data: bytes
    is_compressed: bool

    @property
    def text(self) -> bytes:
        return zlib.decompress(self.data) if self.is_compressed else self.data

    @property
    def memory_bytes(self) -> int:
        return len(self.data) + RECORD_OVERHEAD_BYTES


def pack(text: bytes) -> Packed:
    """Large texts repeat themselves: they shrink to about a tenth. For any thread."""
    if len(text) < PACKED_FROM_BYTES:
        return Packed(text, is_compressed=False)
    return Packed(zlib.compress(text, 1), is_compressed=True)


class Ring:
    """One group's records, oldest first."""

    __slots__ = ("avoided_count", "last_sequence", "memory_bytes", "rebalance_count", "records")

    def __init__(self, group_id: str) -> None:
        self.records: deque[Packed] = deque()
        self.last_sequence = 0
        self.rebalance_count = 0
        """Those that are no longer kept included."""
        self.avoided_count = 0
        self.memory_bytes = GROUP_OVERHEAD_BYTES + len(group_id)


class Rings:
    """See the module."""

    def __init__(self, size: int, memory_bytes_max: int) -> None:
        """`size` is the number of records that are kept of a group."""
        self._size = size
        self._memory_bytes_max = memory_bytes_max
        self._rings: OrderedDict[str, Ring] = OrderedDict()
        """Those that go first stand first."""
        self._removed: OrderedDict[str, int] = OrderedDict()
        """Groups that are gone, and since when (wall time)."""
        self.memory_bytes = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._rings)

    def __len__(self) -> int:
        return len(self._rings)

    @property
    def record_count(self) -> int:
        return sum(len(ring.records) for ring in self._rings.values())

    def get(self, group_id: str) -> Ring | None:
        """What is kept of a group; to look at."""
        return self._rings.get(group_id)

    def add(self, group_id: str, sequence: int, packed: Packed, *, is_rebalance: bool) -> None:
        """Append a record, at the cost of others where there is no room."""
        ring = self._rings.get(group_id)
        if ring is None:
            ring = self._rings[group_id] = Ring(group_id)
            self.memory_bytes += ring.memory_bytes
        self._rings.move_to_end(group_id)
        self._removed.pop(group_id, None)
        ring.last_sequence = max(ring.last_sequence, sequence)
        if is_rebalance:
            ring.rebalance_count += 1
        else:
            ring.avoided_count += 1
        ring.records.append(packed)
        self._account(ring, packed.memory_bytes)
        while len(ring.records) > self._size:
            self._drop_oldest(ring)
        self._make_room()

    def mark_removed(self, group_id: str, wall_ms: int) -> None:
        """The group is gone; its records stay for a while, but go before those of others."""
        if group_id in self._rings:
            self._rings.move_to_end(group_id, last=False)
            self._removed[group_id] = wall_ms

    def forget_removed(self, before_wall_ms: int) -> None:
        """Drop what is kept of groups that were removed before that time."""
        while self._removed:
            group_id, removed_ms = next(iter(self._removed.items()))
            if removed_ms >= before_wall_ms:
                return
            self._forget(group_id)

    def _make_room(self) -> None:
        while self.memory_bytes > self._memory_bytes_max and self._rings:
            group_id, ring = next(iter(self._rings.items()))
            if ring.records:
                self._drop_oldest(ring)
            if not ring.records:
                self._forget(group_id)

    def _drop_oldest(self, ring: Ring) -> None:
        self._account(ring, -ring.records.popleft().memory_bytes)

    def _account(self, ring: Ring, change_bytes: int) -> None:
        ring.memory_bytes += change_bytes
        self.memory_bytes += change_bytes

    def _forget(self, group_id: str) -> None:
        ring = self._rings.pop(group_id)
        self._removed.pop(group_id, None)
        self.memory_bytes -= ring.memory_bytes

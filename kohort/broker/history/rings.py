"""The last records of every group, in bounded memory.

Records are kept as the JSON texts that they are stored and shown as, so that a record costs what it
says: half a kilobyte for a member, less where `pack` has made it smaller. They lie on a shelf of
their own (`kohort.broker.history.shelf`); what a ring knows of them is small. When all records
together are too many, the oldest go of the group that has been quiet for longest, removed groups
before all others.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Final

from kohort.broker.history.shelf import Kept, Packed, Shelf

PACKED_FROM_BYTES: Final = 8 * 1024
"""Smaller texts are kept as they are: nearly all, and to be read at no cost."""

RECORD_OVERHEAD_BYTES: Final = 90
"""Memory for where a record is, and for the shelf's own lists."""
GROUP_OVERHEAD_BYTES: Final = 400
"""A ring with its list, the id, and its places in the two tables."""

FORGOTTEN_AT_ONCE: Final = 20
"""Removed groups, of which one is added at a time: with fifty records each a millisecond."""

CLEANED_AT_ONCE: Final = 2
"""Blocks of the shelf, with a few hundred records each."""


def pack(text: bytes) -> Packed:
    """Large texts repeat themselves: they shrink to about a tenth. For any thread."""
    if len(text) < PACKED_FROM_BYTES:
        return Packed(text, is_compressed=False)
    return Packed(zlib.compress(text, 1), is_compressed=True)


class Ring:
    """One group's records, oldest first."""

    __slots__ = ("avoided_count", "last_sequence", "rebalance_count", "records")

    def __init__(self) -> None:
        self.records: list[Kept] = []
        self.last_sequence = 0
        self.rebalance_count = 0
        """Rebalances of the group, those that are no longer kept included."""
        self.avoided_count = 0


class Rings:
    """See the module."""

    def __init__(self, size: int, memory_bytes_max: int) -> None:
        """`size` is the number of records that are kept of a group."""
        self._size = size
        self._memory_bytes_max = memory_bytes_max
        self._rings: OrderedDict[str, Ring] = OrderedDict()
        """Rings by group; those that go first stand first."""
        self._removed: OrderedDict[str, int] = OrderedDict()
        """Groups that are gone, and since when (wall time)."""
        self._shelf = Shelf()
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
            ring = self._rings[group_id] = Ring()
            self.memory_bytes += _size_of_group(group_id)
        self._rings.move_to_end(group_id)
        self._removed.pop(group_id, None)
        ring.last_sequence = max(ring.last_sequence, sequence)
        if is_rebalance:
            ring.rebalance_count += 1
        else:
            ring.avoided_count += 1
        kept = self._shelf.put(group_id, packed)
        ring.records.append(kept)
        self.memory_bytes += _size_of_record(kept)
        while len(ring.records) > self._size:
            self._drop_oldest(ring)
        self._make_room()
        self._clean_up()

    def replace_last(self, group_id: str, packed: Packed) -> None:
        """Keep another text in the place of the last record of a group, which has one."""
        ring = self._rings[group_id]
        self._drop(ring.records.pop())
        kept = self._shelf.put(group_id, packed)
        ring.records.append(kept)
        self.memory_bytes += _size_of_record(kept)

    def mark_removed(self, group_id: str, wall_ms: int) -> None:
        """The group is gone; its records stay for a while, but go before those of others."""
        if group_id in self._rings:
            self._rings.move_to_end(group_id, last=False)
            self._removed[group_id] = wall_ms

    def forget_removed(self, before_wall_ms: int) -> None:
        """Drop what is kept of groups that were removed before that time; so many of them, and the
        others with the next calls.
        """
        for group_id, removed_ms in list(islice(self._removed.items(), FORGOTTEN_AT_ONCE)):
            if removed_ms >= before_wall_ms:
                break
            self._forget(group_id)
        self._clean_up()

    def _make_room(self) -> None:
        while self.memory_bytes > self._memory_bytes_max and self._rings:
            group_id, ring = next(iter(self._rings.items()))
            if ring.records:
                self._drop_oldest(ring)
            if not ring.records:
                self._forget(group_id)

    def _clean_up(self) -> None:
        """One block or two; what is left to do, the next record has done."""
        for _ in range(CLEANED_AT_ONCE):
            block = self._shelf.worst()
            if block is None:
                return
            for group_id in block.owners:
                ring = self._rings.get(group_id)
                if ring is not None:
                    for index, kept in enumerate(ring.records):
                        if kept.block is block:
                            ring.records[index] = self._shelf.move(group_id, kept)
            assert not block.live_bytes, "a record that no ring has"

    def _drop_oldest(self, ring: Ring) -> None:
        self._drop(ring.records.pop(0))

    def _drop(self, kept: Kept) -> None:
        self.memory_bytes -= _size_of_record(kept)
        self._shelf.drop(kept)

    def _forget(self, group_id: str) -> None:
        ring = self._rings.pop(group_id)
        self._removed.pop(group_id, None)
        for kept in ring.records:
            self._drop(kept)
        self.memory_bytes -= _size_of_group(group_id)


def _size_of_record(kept: Kept) -> int:
    return kept.size_bytes + RECORD_OVERHEAD_BYTES


def _size_of_group(group_id: str) -> int:
    return GROUP_OVERHEAD_BYTES + len(group_id)

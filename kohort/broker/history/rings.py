"""The latest records of every group, in bounded memory.

Records are kept as the JSON texts in which they are stored and shown, so that a record costs what
its text takes: half a kilobyte per member, less where `pack` has compressed it. The texts are in a
separate store (`kohort.broker.history.store`); a ring itself is small. Above the limit for all
records, the oldest records are dropped, first those of removed groups, then those of the groups
without a rebalance for the longest time.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Final

from kohort.broker.history.store import HistoryStore, StoredRecord

RECORD_OVERHEAD_BYTES: Final = 90
"""Memory for a record's location, and for the store's own lists."""
GROUP_OVERHEAD_BYTES: Final = 400
"""Memory for a ring: its list, the id, and its entries in the two tables."""

FORGOTTEN_AT_ONCE: Final = 20
"""Removed groups that are forgotten in one call: with fifty records each a millisecond."""

CLEANED_AT_ONCE: Final = 2
"""Blocks of the store that are compacted in one call, with a few hundred records each."""


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
        self._store = HistoryStore()
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

    def add(self, group_id: str, sequence: int, packed: bytes, *, is_rebalance: bool) -> None:
        """Append a record, dropping others if there is no room."""
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
        record = self._store.put(group_id, packed)
        ring.records.append(record)
        self.memory_bytes += _size_of_record(record)
        while len(ring.records) > self._size:
            self._drop_oldest(ring)
        self._make_room()
        self._clean_up()

    def replace_last(self, group_id: str, packed: bytes) -> None:
        """Replace the text of a group's last record, which must exist."""
        ring = self._rings[group_id]
        self._drop(ring.records.pop())
        record = self._store.put(group_id, packed)
        ring.records.append(record)
        self.memory_bytes += _size_of_record(record)

    def mark_removed(self, group_id: str, wall_ms: int) -> None:
        """Record that a group was removed; its records are dropped before others."""
        if group_id in self._rings:
            self._rings.move_to_end(group_id, last=False)
            self._removed[group_id] = wall_ms

    def forget_removed(self, before_wall_ms: int) -> None:
        """Drop some of the groups that were removed before this time; further calls drop more."""
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
        """Compact a block or two; further records continue the work."""
        for _ in range(CLEANED_AT_ONCE):
            block = self._store.worst()
            if block is None:
                return
            for group_id in block.owners:
                ring = self._rings.get(group_id)
                if ring is not None:
                    for index, record in enumerate(ring.records):
                        if record.block is block:
                            ring.records[index] = self._store.move(group_id, record)
            assert not block.live_bytes, "a record that no ring has"

    def _drop_oldest(self, ring: Ring) -> None:
        self._drop(ring.records.pop(0))

    def _drop(self, record: StoredRecord) -> None:
        self.memory_bytes -= _size_of_record(record)
        self._store.drop(record)

    def _forget(self, group_id: str) -> None:
        ring = self._rings.pop(group_id)
        self._removed.pop(group_id, None)
        for record in ring.records:
            self._drop(record)
        self.memory_bytes -= _size_of_group(group_id)


def _size_of_record(record: StoredRecord) -> int:
    return record.size_bytes + RECORD_OVERHEAD_BYTES


def _size_of_group(group_id: str) -> int:
    return GROUP_OVERHEAD_BYTES + len(group_id)

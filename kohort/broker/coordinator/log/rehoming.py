"""Groups that lie in another partition of the log than their own are moved there by a start.

Kohort once chose partitions by another hash than Kafka (`former_partition_of`), and the partitions
of a topic may have become more. A group is then looked for where it does not lie: by a Kafka that
takes the directory over, and where one group is read back.

Of two records of one key that lie in different partitions, the newest holds. Within a partition
that is the last one. Between partitions it is told by the time at which they were appended, which
every record bears: never two brokers write one directory, so later means nearer to now. What is
moved keeps its time, and of two equal times the one in the right place holds, so that a copy never
loses against what it was copied from. A tombstone in the wrong place says only that nothing is left
there: moves leave such ones behind.

A move may be cut short anywhere, by a kill or a loss of power:

1. Copies are appended to the right partitions.
2. Those are forced to the disk, whatever is configured: what is moved may have been safe for long.
3. Only then the records in the wrong places get their tombstones.

Until the third step is done, the next start finds the records in the wrong places and does all of
it again. Nothing can have been committed meanwhile: a group is served when it has moved, and
refused, until the next start, if it cannot be.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kohort.broker.coordinator.log.offsets_log import (
    OffsetsLog,
    StoredRecord,
    java_hash,
    partition_of,
)
from kohort.broker.coordinator.log.settle import Settler
from kohort.broker.core.group.records import DurableRecord, encode_key
from kohort.broker.core.steps import FEW
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.protocol.errors import KafkaError

logger = logging.getLogger(__name__)

BATCH_BYTES: Final = 256 * 1024
"""Keys and values that become one batch, unless a single record is larger."""


def former_partition_of(group_id: str, partition_count: int) -> int:
    """Where groups lived once: Java's string hash with the sign bit cleared."""
    return (java_hash(group_id) & 0x7FFF_FFFF) % partition_count


class Stray(NamedTuple):
    """A record of a group that does not live in the partition where it lies."""

    partition: int
    stored: StoredRecord
    durable: DurableRecord


class Rehoming:
    """The moves of one start."""

    def __init__(self, log: OffsetsLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._wall_ms = clock.wall_ms()
        self._strays: list[Stray] = []

    def add(self, stray: Stray) -> None:
        """Note what was found."""
        self._strays.append(stray)

    @property
    def is_needed(self) -> bool:
        """False for nearly every start."""
        return bool(self._strays)

    async def carry_out(
        self, by_group: dict[str, list[DurableRecord]], unreadable: Iterable[int]
    ) -> frozenset[str]:
        """Move what was found; returns groups that could not be, which must not be served.

        Args:
            by_group: what was found in the right places; made complete here.
            unreadable: partitions whose records are not known.
        """
        strays: dict[int, list[Stray]] = {}
        for stray in self._strays:
            home = partition_of(stray.durable.group_id, self._log.partition_count)
            strays.setdefault(home, []).append(stray)
        groups = {stray.durable.group_id for stray in self._strays}
        refused: set[str] = set()
        moved: list[Stray] = []
        broken = set(unreadable)
        for home, found in strays.items():
            try:
                if home not in broken:
                    await self._copy(home, found, by_group)
                    moved += found
                    continue
            except KafkaError as error:
                _tell_failure("cannot be moved to", home, error)
            refused |= {stray.durable.group_id for stray in found}
        refused |= await self._remove_moved(moved)
        for group_id in refused:
            by_group.pop(group_id, None)
        logger.info(
            "Moved %d records of %d groups to the partitions of the groups' log where Kafka "
            "looks for them",
            len(moved),
            len(groups - refused),
        )
        return frozenset(refused)

    async def _copy(
        self, home: int, found: Iterable[Stray], by_group: dict[str, list[DurableRecord]]
    ) -> None:
        """Have what is newer than what the partition holds in it, and all of it on the disk."""
        newest: dict[bytes, Stray] = {}
        for stray in found:
            rival = newest.get(stray.stored.key)
            if rival is None or rival.stored.timestamp < stray.stored.timestamp:
                newest[stray.stored.key] = stray
        times = await self._times_in(home, newest)
        copied = [
            stray
            for key, stray in newest.items()
            if key not in times or times[key] < stray.stored.timestamp
        ]
        for batch in _batches(stray.stored for stray in copied):
            await self._append(home, batch)
        # Also where nothing had to be copied: an earlier start may have been cut short before this.
        await self._log.force(home)
        for stray in copied:
            _put(by_group.setdefault(stray.durable.group_id, []), stray)

    async def _times_in(self, partition: int, keys: Mapping[bytes, object]) -> dict[bytes, int]:
        """When the last record of each key was appended there, tombstones included."""
        times: dict[bytes, int] = {}
        settler = Settler()
        piece = Slice(self._clock)
        for count, entry in enumerate(self._log.read(partition), start=1):
            for record in settler.take(entry):
                if record.key in keys:
                    times[record.key] = record.timestamp
            if count % FEW == 0:
                await piece.pause()
        return times

    async def _remove_moved(self, moved: Iterable[Stray]) -> set[str]:
        """Write the tombstones; returns groups for which that failed."""
        by_partition: dict[int, list[Stray]] = {}
        for stray in moved:
            by_partition.setdefault(stray.partition, []).append(stray)
        refused: set[str] = set()
        for partition, found in by_partition.items():
            try:
                for batch in _batches(_tombstone_of(stray.stored) for stray in found):
                    await self._append(partition, batch)
            except KafkaError as error:
                _tell_failure("cannot be removed from", partition, error)
                refused |= {stray.durable.group_id for stray in found}
        return refused

    async def _append(self, partition: int, batch: list[StoredRecord]) -> None:
        waiting = self._log.append_stored(partition, batch, wall_ms=self._wall_ms)
        if waiting is not None:
            await waiting


def _put(records: list[DurableRecord], stray: Stray) -> None:
    """Add a record in the place of an older one."""
    records[:] = [one for one in records if encode_key(one) != stray.stored.key]
    records.append(stray.durable)


def _tombstone_of(stored: StoredRecord) -> StoredRecord:
    return StoredRecord(stored.key, None, (), stored.timestamp)


def _batches(records: Iterable[StoredRecord]) -> Iterator[list[StoredRecord]]:
    batch: list[StoredRecord] = []
    size = 0
    for record in records:
        record_bytes = len(record.key) + len(record.value or b"")
        if batch and size + record_bytes > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += record_bytes
    if batch:
        yield batch


def _tell_failure(what: str, partition: int, error: KafkaError) -> None:
    logger.error(
        "Groups %s partition %d of the groups' log, they are unavailable until the next start: %s",
        what,
        partition,
        error,
    )

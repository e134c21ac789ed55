"""Moves groups that are in the wrong partition of the log; done at start-up.

Kohort once used another hash than Kafka (`former_partition_of`), and the partition count of a topic
may have grown. A group is then not where it is looked for: by a Kafka broker that takes over the
directory, and when a single group is reloaded.

Of two records of one key in different partitions, the newest is valid. Within a partition that is
the last one. Between partitions the append timestamps decide, which every record has: two brokers
never write to one directory, so a later time means a newer record. Moved records keep their
timestamps, and of two equal ones the record in the right place is valid, so that a copy never loses
against its original. A tombstone in the wrong place only says that nothing is left there: moves
leave such tombstones.

A move may be interrupted at any point, by a kill or a power failure:

1. Copies are appended to the right partitions. 2. These are flushed to disk, whatever the settings
are, since the originals may have been safe for long. 3. Only then the records in the wrong places
get their tombstones.

Until the third step is done, the next start finds the records in the wrong places and repeats the
whole move. No commits can have been made meanwhile: a group is served only after it has moved, and
refused until the next start if it cannot be moved.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kohort.broker.coordinator.log.offsets_log import OffsetsLog, PendingResolver, StoredRecord
from kohort.broker.core.coordinator_partitions import java_hash, partition_of
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.formats.text import counted
from kohort.groups.encoding import encode_key
from kohort.groups.records import DurableRecord
from kohort.groups.steps import FEW
from kohort.protocol.errors import KafkaError

logger = logging.getLogger(__name__)

BATCH_BYTES: Final = 256 * 1024
"""Size of keys and values per batch, unless a single record is larger."""


def former_partition_of(group_id: str, partition_count: int) -> int:
    """Return the partition by the former hash: Java's string hash with the sign bit cleared."""
    return (java_hash(group_id) & 0x7FFF_FFFF) % partition_count


class Stray(NamedTuple):
    """A record of a group that belongs to another partition."""

    partition: int
    stored: StoredRecord
    durable: DurableRecord


class Relocation:
    """The moves of one start."""

    def __init__(self, log: OffsetsLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._wall_ms = clock.wall_ms()
        self._strays: list[Stray] = []

    def add(self, stray: Stray) -> None:
        """Add a record that was found in the wrong partition."""
        self._strays.append(stray)

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to move; false at nearly every start."""
        return bool(self._strays)

    async def carry_out(
        self, by_group: dict[str, list[DurableRecord]], unreadable: Iterable[int]
    ) -> frozenset[str]:
        """Move the groups; return those that could not be moved and must not be served.

        Args:
            by_group: records found in the right partitions; completed here.
            unreadable: partitions whose records are unknown.
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
                _log_failure("cannot be moved to", home, error)
            refused |= {stray.durable.group_id for stray in found}
        refused |= await self._remove_moved(moved)
        for group_id in refused:
            by_group.pop(group_id, None)
        logger.info(
            "Moved %s of %s to the partitions of the groups' log where Kafka looks for them",
            counted(len(moved), "record"),
            counted(len(groups - refused), "group"),
        )
        return frozenset(refused)

    async def _copy(
        self, home: int, found: Iterable[Stray], by_group: dict[str, list[DurableRecord]]
    ) -> None:
        """Copy records that are newer than those in the partition, and flush it to disk."""
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
        # Even if nothing was copied now: an earlier start may have copied and not flushed.
        await self._log.force(home)
        for stray in copied:
            _put(by_group.setdefault(stray.durable.group_id, []), stray)

    async def _times_in(self, partition: int, keys: Mapping[bytes, object]) -> dict[bytes, int]:
        """Return when the last record of each key was appended to a partition,
        tombstones included.
        """
        times: dict[bytes, int] = {}
        resolver = PendingResolver()
        time_slice = Slice(self._clock)
        for count, entry in enumerate(self._log.read(partition), start=1):
            for record in resolver.take(entry):
                if record.key in keys:
                    times[record.key] = record.timestamp
            if count % FEW == 0:
                await time_slice.pause()
        return times

    async def _remove_moved(self, moved: Iterable[Stray]) -> set[str]:
        """Write the tombstones; return the groups for which that failed."""
        by_partition: dict[int, list[Stray]] = {}
        for stray in moved:
            by_partition.setdefault(stray.partition, []).append(stray)
        refused: set[str] = set()
        for partition, found in by_partition.items():
            try:
                for batch in _batches(_tombstone_of(stray.stored) for stray in found):
                    await self._append(partition, batch)
            except KafkaError as error:
                _log_failure("cannot be removed from", partition, error)
                refused |= {stray.durable.group_id for stray in found}
        return refused

    async def _append(self, partition: int, batch: list[StoredRecord]) -> None:
        waiting = self._log.append_stored(partition, batch, wall_ms=self._wall_ms)
        if waiting is not None:
            await waiting


def _put(records: list[DurableRecord], stray: Stray) -> None:
    """Add a record, replacing an older one with its key."""
    records[:] = [record for record in records if encode_key(record) != stray.stored.key]
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


def _log_failure(what: str, partition: int, error: KafkaError) -> None:
    logger.error(
        "Groups %s partition %d of the groups' log, they are unavailable until the next start: %s",
        what,
        partition,
        error,
    )

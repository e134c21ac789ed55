"""Loads groups from the log.

Only the last record of a key counts, so keys and values stay undecoded until the end of the log has
been read. A record that cannot be decoded is skipped and reported: its batch was intact, so another
program has written it. A partition that cannot be read to its end is different: its groups would
seem to have no offsets, and their consumers would start over, so these groups are refused.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kohort.broker.coordinator.offsets_log import OffsetsLog, PendingResolver, Stored, StoredRecord
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.groups.classic.stored_value import BEGUN_HEADER, KEY_PREFIX
from kohort.groups.consumer.encoding import TARGET_EPOCH
from kohort.groups.consumer.records import TargetEpochRecord
from kohort.groups.encoding import decode
from kohort.groups.records import (
    DurableRecord,
    Generation,
    GroupRecord,
    OffsetRecord,
    PendingOffset,
)
from kohort.groups.steps import FEW
from kohort.protocol.errors import DecodeError, KafkaError

logger = logging.getLogger(__name__)

RECENT_MS: Final = 60_000
"""Generations stored at most this long before a group's last one are loaded, too: the history may
lack their rebalances, because it is written some ten seconds after a generation."""

GENERATION_KEYS: Final = frozenset({KEY_PREFIX, TARGET_EPOCH.to_bytes(2, "big")})
"""Record types (first two bytes of the key) that store a group's generation or target epoch."""

EARLIER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Limit for the size of one group's earlier generations, which are kept in addition to the last
generation."""


class LoadedGroups(NamedTuple):
    records_by_group: dict[str, list[DurableRecord]]
    earlier_by_group: dict[str, list[Generation]]
    """By group id, the earlier generations stored at most `RECENT_MS` before the last one."""
    unreadable_partitions: frozenset[int]
    pending: dict[tuple[int, int], set[str]]
    """Groups with offsets in a producer's open transaction, by (log partition, producer id)."""
    load_times_ms: tuple[int, ...]
    """How long loading took, for each partition that has records."""


async def load_groups(log: OffsetsLog, clock: Clock) -> LoadedGroups:
    """Load all groups from the last record of each key. Records in another partition than their
    group's are ignored, as Kafka does not look for them there.
    """
    by_group: dict[str, list[DurableRecord]] = {}
    earlier: dict[str, list[Generation]] = {}
    pending: dict[tuple[int, int], set[str]] = {}
    unreadable: set[int] = set()
    homes: dict[str, int] = {}
    elsewhere: set[str] = set()
    load_times_ms: list[int] = []
    time_slice = Slice(clock)  # No client is served yet, but health probes are answered.
    for partition in range(log.partition_count):
        begun_ms = clock.monotonic_ms()
        content = _PartitionContent()
        try:
            await content.read(log, partition, time_slice)
        except KafkaError as error:
            logger.error(  # noqa: TRY400 - the fault is in the disk, not in this code.
                "Partition %d of the groups' log cannot be read, its groups are unavailable: %s",
                partition,
                error,
            )
            unreadable.add(partition)
            continue
        for count, durable in enumerate(content.decode()):
            group_id = durable.group_id
            if group_id not in homes:
                homes[group_id] = partition_of(group_id, log.partition_count)
            if homes[group_id] != partition:
                elsewhere.add(group_id)
                continue
            by_group.setdefault(group_id, []).append(durable)
            if isinstance(durable, PendingOffset):
                pending.setdefault((partition, durable.producer_id), set()).add(group_id)
            if isinstance(durable, GroupRecord) or count % FEW == 0:
                await time_slice.pause()
        for generation in content.earlier():
            earlier.setdefault(generation.group_id, []).append(generation)
        if content.count:
            load_times_ms.append(clock.monotonic_ms() - begun_ms)
    if elsewhere:
        logger.warning(
            "Ignored records of %d groups in partitions where Kafka does not look for them",
            len(elsewhere),
        )
    return LoadedGroups(by_group, earlier, frozenset(unreadable), pending, tuple(load_times_ms))


def read_group(log: OffsetsLog, group_id: str) -> list[DurableRecord]:
    """Load one group from a log that may contain many groups.

    Raises:
        KafkaError: the log cannot be read.
    """
    content = _PartitionContent()
    for entry in log.read(partition_of(group_id, log.partition_count)):
        content.take(entry)
    return [durable for durable in content.decode() if durable.group_id == group_id]


class _Recent:
    def __init__(self) -> None:
        self.records: deque[StoredRecord] = deque()
        self._size_bytes = 0

    def add(self, record: StoredRecord) -> None:
        self.records.append(record)
        self._size_bytes += len(record.value or b"")
        while self._size_bytes > EARLIER_BYTES_MAX:
            self._drop_oldest()

    def forget_before(self, wall_ms: int) -> None:
        while self.records and self.records[0].timestamp < wall_ms:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._size_bytes -= len(self.records.popleft().value or b"")


class _PartitionContent:
    """The content of one partition: the last record of each key, and earlier generations."""

    def __init__(self) -> None:
        self.latest: dict[bytes, StoredRecord] = {}
        self.count = 0
        self._generations: dict[bytes, _Recent] = {}
        self._resolver = PendingResolver()

    async def read(self, log: OffsetsLog, partition: int, time_slice: Slice) -> None:
        """Read a partition. Raises KafkaError if it cannot be read to its end."""
        for entry in log.read(partition):
            self.count += 1
            self.take(entry)
            if self.count % FEW == 0:
                await time_slice.pause()

    def take(self, entry: Stored) -> None:
        """Process the next entry of the log."""
        for record in self._resolver.take(entry):
            if record.key[:2] in GENERATION_KEYS:
                self._keep_generation(record)
            if record.value is None:
                self.latest.pop(record.key, None)
            else:
                self.latest[record.key] = record

    def decode(self) -> Iterator[DurableRecord]:
        """Yield first the offsets in open transactions that precede their key's valid record, then
        all valid records, then the other offsets in open transactions.
        """
        held = self._resolver.held
        yield from _decode_pending(record for _, record in held.items(superseded=True))
        for _, durable in _decode(self.latest.values()):
            yield durable
        yield from _decode_pending(record for _, record in held.items(superseded=False))

    def _keep_generation(self, record: StoredRecord) -> None:
        """Keep the generation that `record` replaces, if the replaced record states the cause of a
        rebalance.

        Drop kept generations that were appended more than `RECENT_MS` before `record`: the history
        already has their rebalances.
        """
        previous = self.latest.get(record.key)
        if record.value is None or previous is None:
            self._generations.pop(record.key, None)
            return
        kept = self._generations.get(record.key)
        if any(name == BEGUN_HEADER for name, _ in previous.headers):
            if kept is None:
                kept = self._generations[record.key] = _Recent()
            kept.add(previous)
        if kept is not None:
            kept.forget_before(record.timestamp - RECENT_MS)

    def earlier(self) -> Iterator[Generation]:
        """Yield the generations that `_keep_generation` kept, in order within each group."""
        for kept in self._generations.values():
            for _, stored in _decode(kept.records):
                if isinstance(stored, GroupRecord | TargetEpochRecord):
                    yield stored


def _decode_pending(records: Iterable[StoredRecord]) -> Iterator[PendingOffset]:
    for stored, durable in _decode(records):
        if isinstance(durable, OffsetRecord):
            yield PendingOffset(*durable, stored.producer_id, stored.producer_epoch)


def _decode(records: Iterable[StoredRecord]) -> Iterator[tuple[StoredRecord, DurableRecord]]:
    for record in records:
        try:
            durable = decode(record.key, record.value, record.headers)
            if durable is not None:
                yield record, durable
        except DecodeError as error:
            logger.warning("Ignored a record of the groups' log, key %r: %s", record.key, error)

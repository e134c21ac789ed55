"""In-memory logs of groups and of transactional ids, whose appends can be delayed and made to fail,
like those of a disk.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from typing import Final

from kohort.broker.coordinator.offsets_log import (
    Stored,
    decode_stored,
)
from kohort.broker.topics.internal_log import InternalLog
from kohort.groups.encoding import encode_as_batch
from kohort.groups.records import DurableRecord
from kohort.protocol.errors import KafkaError
from kohort.protocol.records.batch import SealedBatch, read_header
from kohort.protocol.records.control import ControlType, EndTransactionMarker, make_marker
from kohort.protocol.records.record import Record, decode_records

PARTITION_COUNT_DEFAULT: Final = 50


class MemoryLog:
    """Base of the in-memory logs of groups and of transactional ids. `hold` and `release` delay
    appends, `failure` makes them fail.
    """

    def __init__(self, partition_count: int = PARTITION_COUNT_DEFAULT) -> None:
        self.batches: list[list[bytes]] = [[] for _ in range(partition_count)]
        """Durable batches by partition."""
        self.failure: KafkaError | None = None
        """Raised by every append that begins or is released while this is set."""
        self.append_count = 0
        """Number of started appends."""
        self._held: list[tuple[asyncio.Future[None], int, bytes]] | None = None

    @property
    def partition_count(self) -> int:
        return len(self.batches)

    @property
    def batch_count(self) -> int:
        return sum(map(len, self.batches))

    @property
    def held_count(self) -> int:
        return len(self._held or [])

    def prepare(self) -> Awaitable[None] | None:
        """Return None: the topic always exists."""
        return None

    def append_batch(self, partition: int, batch: bytes) -> Awaitable[None] | None:
        self.append_count += 1
        if self._held is None:
            self._store(partition, batch)
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append((future, partition, batch))
        return asyncio.shield(future)

    def hold(self) -> None:
        if self._held is None:
            self._held = []

    def release_one(self) -> None:
        """Let the first waiting append become durable, or fail."""
        assert self._held
        self._settle(*self._held.pop(0))

    def release(self) -> None:
        """Let waiting appends become durable, or fail; later ones do so at once."""
        held, self._held = self._held or [], None
        for append in held:
            self._settle(*append)

    def _settle(self, future: asyncio.Future[None], partition: int, batch: bytes) -> None:
        try:
            self._store(partition, batch)
        except KafkaError as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    def _store(self, partition: int, batch: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self.batches[partition].append(batch)


class MemoryOffsetsLog(MemoryLog):
    """An :class:`~kohort.broker.coordinator.offsets_log.OffsetsLog` that keeps its batches in
    memory.
    """

    def append(
        self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        return self.append_batch(partition, encode_as_batch(records, wall_ms)[0])

    def append_marker(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """Append the marker that ends a producer's transaction."""
        marker = EndTransactionMarker(ControlType.COMMIT if commit else ControlType.ABORT, 0)
        batch = make_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=-1)[0]
        self.append_batch(partition, batch)

    def read(self, partition: int) -> Iterator[Stored]:
        for batch in self.batches[partition]:
            yield from decode_stored(read_header(batch), batch)


class MemoryTransactionLog(MemoryLog, InternalLog):
    """The log of transactional ids in memory. `unreadable` makes reads fail."""

    def __init__(self, partition_count: int = PARTITION_COUNT_DEFAULT) -> None:
        super().__init__(partition_count)
        self.unreadable: set[int] = set()
        """Partitions whose reads fail."""
        self.epoch = 0

    def leader_epoch(self, partition: int) -> int:
        return self.epoch

    def append(self, partition: int, batch: SealedBatch, *, wall_ms: int) -> Awaitable[None] | None:
        return self.append_batch(partition, batch[0])

    def append_stored(self, partition: int, batch: bytes) -> None:
        """Put a batch into the log unchanged."""
        self.batches[partition].append(batch)

    def read(self, partition: int) -> Iterator[Record]:
        if partition in self.unreadable:
            raise self.failure or AssertionError("set `failure` first")
        for batch in self.batches[partition]:
            yield from decode_records(batch)

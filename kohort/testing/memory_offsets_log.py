"""The log of groups, in memory: it can be delayed and made to fail, like a disk."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from typing import Final

from kohort.broker.coordinator.log.offsets_log import (
    Stored,
    StoredRecord,
    decode_stored,
    encode_stored,
)
from kohort.broker.core.group.encoding import encode_as_batch
from kohort.broker.core.group.records import DurableRecord
from kohort.protocol.errors import KafkaError
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.control import ControlType, EndTransactionMarker, encode_marker

PARTITION_COUNT_DEFAULT: Final = 50


class MemoryOffsetsLog:
    """An :class:`~kohort.broker.coordinator.log.offsets_log.OffsetsLog` that keeps its batches in
    memory. `hold` and `release` make it slow, `failure` makes it fail.
    """

    def __init__(self, partition_count: int = PARTITION_COUNT_DEFAULT) -> None:
        self._batches: list[list[bytes]] = [[] for _ in range(partition_count)]
        self._held: list[tuple[asyncio.Future[None], int, bytes]] | None = None
        self.failure: KafkaError | None = None
        """Raised by every append that begins or is released while this is set."""
        self.append_count = 0

    @property
    def partition_count(self) -> int:
        return len(self._batches)

    def append(
        self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append a batch; durable at once unless held."""
        return self._append(partition, encode_as_batch(records, wall_ms)[0])

    def append_stored(
        self, partition: int, records: Sequence[StoredRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        del wall_ms
        return self._append(partition, encode_stored(records)[0])

    def append_marker(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """Append the marker that ends a producer's transaction."""
        marker = EndTransactionMarker(ControlType.COMMIT if commit else ControlType.ABORT, 0)
        batch = encode_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=-1)
        self._append(partition, batch)

    def prepare(self) -> Awaitable[None] | None:
        """Return None: the topic always exists."""
        return None

    async def force(self, partition: int) -> None:
        """Do nothing: batches in memory are durable."""

    def _append(self, partition: int, batch: bytes) -> Awaitable[None] | None:
        self.append_count += 1
        if self._held is None:
            self._store(partition, batch)
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append((future, partition, batch))
        return asyncio.shield(future)

    def read(self, partition: int) -> Iterator[Stored]:
        for batch in self._batches[partition]:
            yield from decode_stored(read_header(batch), batch)

    def hold(self) -> None:
        """Make appends from now on wait for `release`."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Let waiting appends become durable, or fail, and later ones at once."""
        held, self._held = self._held or [], None
        for future, partition, batch in held:
            try:
                self._store(partition, batch)
            except KafkaError as error:
                future.set_exception(error)
            else:
                future.set_result(None)

    def _store(self, partition: int, batch: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self._batches[partition].append(batch)

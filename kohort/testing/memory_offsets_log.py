"""Where groups write, kept in memory: it can be held up and made to fail, as a disk can."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from typing import Final

from kohort.broker.coordinator.log.offsets_log import StoredRecord, encode_as_batch, encode_stored
from kohort.broker.core.group.records import DurableRecord
from kohort.protocol.errors import KafkaError
from kohort.protocol.records.record import decode_records

PARTITION_COUNT_DEFAULT: Final = 50


class MemoryOffsetsLog:
    """An :class:`~kohort.broker.coordinator.log.offsets_log.OffsetsLog` that keeps its batches in
    memory. `hold` and `release` make it slow, `failure` makes it fail.
    """

    def __init__(self, partition_count: int = PARTITION_COUNT_DEFAULT) -> None:
        self._batches: list[list[bytes]] = [[] for _ in range(partition_count)]
        self._held: list[tuple[asyncio.Future[None], int, bytes]] | None = None
        self.failure: KafkaError | None = None
        """Raised by every append that begins, or is released, while it is set."""
        self.append_count = 0

    @property
    def partition_count(self) -> int:
        return len(self._batches)

    def append(
        self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Durable at once unless held."""
        return self._append(partition, encode_as_batch(records, wall_ms)[0])

    def append_stored(
        self, partition: int, records: Sequence[StoredRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        del wall_ms
        return self._append(partition, encode_stored(records)[0])

    async def force(self, partition: int) -> None:
        """Memory is as durable as it gets."""

    def _append(self, partition: int, batch: bytes) -> Awaitable[None] | None:
        self.append_count += 1
        if self._held is None:
            self._store(partition, batch)
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append((future, partition, batch))
        return asyncio.shield(future)

    def read(self, partition: int) -> Iterator[StoredRecord]:
        for batch in self._batches[partition]:
            for record in decode_records(batch):
                assert record.key is not None
                yield StoredRecord(record.key, record.value, record.headers, record.timestamp)

    def hold(self) -> None:
        """Appends from now on wait for `release`."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """What waits becomes durable, or fails, and so does what comes, at once."""
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

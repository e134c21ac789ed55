"""The log of transactional ids, in memory: it can be delayed and made to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Final

from kohort.broker.core.transaction.records import DurableTransaction
from kohort.broker.transactions.log import StoredTransaction, encode_as_batch
from kohort.protocol.errors import KafkaError
from kohort.protocol.records.record import decode_records

PARTITION_COUNT_DEFAULT: Final = 50


class MemoryTransactionLog:
    """A :class:`~kohort.broker.transactions.log.TransactionLog` that keeps its batches in memory.
    `hold` and `release` make it slow, `failure` makes it fail.
    """

    def __init__(self, partition_count: int = PARTITION_COUNT_DEFAULT) -> None:
        self._batches: list[list[bytes]] = [[] for _ in range(partition_count)]
        self._held: list[tuple[asyncio.Future[None], int, bytes]] | None = None
        self.failure: KafkaError | None = None
        """Raised by every append that begins or is released while this is set."""
        self.unreadable: set[int] = set()
        """Partitions whose reads fail."""
        self.epoch = 0

    @property
    def partition_count(self) -> int:
        return len(self._batches)

    @property
    def batch_count(self) -> int:
        """Number of batches in all partitions."""
        return sum(map(len, self._batches))

    def leader_epoch(self, partition: int) -> int:
        del partition
        return self.epoch

    def append(
        self, partition: int, record: DurableTransaction, *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append a batch; durable at once unless held."""
        batch = encode_as_batch(record, wall_ms)[0]
        if self._held is None:
            self._store(partition, batch)
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append((future, partition, batch))
        return asyncio.shield(future)

    def append_stored(self, partition: int, batch: bytes) -> None:
        """Put a batch into the log unchanged."""
        self._batches[partition].append(batch)

    def read(self, partition: int) -> Iterator[StoredTransaction]:
        if partition in self.unreadable:
            raise self.failure or AssertionError("say with what it fails")
        for batch in self._batches[partition]:
            for record in decode_records(batch):
                assert record.key is not None
                yield StoredTransaction(record.key, record.value)

    def hold(self) -> None:
        """Make appends from now on wait for `release`."""
        if self._held is None:
            self._held = []

    @property
    def held_count(self) -> int:
        """Number of waiting appends."""
        return len(self._held or [])

    def release_one(self) -> None:
        """Let the first waiting append become durable, or fail."""
        assert self._held
        self._settle(*self._held.pop(0))

    def release(self) -> None:
        """Let waiting appends become durable, or fail, and later ones at once."""
        held, self._held = self._held or [], None
        for one in held:
            self._settle(*one)

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
        self._batches[partition].append(batch)

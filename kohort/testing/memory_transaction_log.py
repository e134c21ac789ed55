"""The in-memory log of transactional ids."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator

from kohort.broker.core.transaction.records import DurableTransaction
from kohort.broker.transactions.log import StoredTransaction, encode_as_batch
from kohort.protocol.records.record import decode_records
from kohort.testing.memory_log import PARTITION_COUNT_DEFAULT, MemoryLog


class MemoryTransactionLog(MemoryLog):
    """A :class:`~kohort.broker.transactions.log.TransactionLog` that keeps its batches in memory.
    `unreadable` makes reads fail.
    """

    def __init__(self, partition_count: int = PARTITION_COUNT_DEFAULT) -> None:
        super().__init__(partition_count)
        self.unreadable: set[int] = set()
        """Partitions whose reads fail."""
        self.epoch = 0

    def leader_epoch(self, partition: int) -> int:
        del partition
        return self.epoch

    def append(
        self, partition: int, record: DurableTransaction, *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append a batch; durable at once unless held."""
        return self.append_batch(partition, encode_as_batch(record, wall_ms)[0])

    def append_stored(self, partition: int, batch: bytes) -> None:
        """Put a batch into the log unchanged."""
        self.batches[partition].append(batch)

    def read(self, partition: int) -> Iterator[StoredTransaction]:
        if partition in self.unreadable:
            raise self.failure or AssertionError("set `failure` first")
        for batch in self.batches[partition]:
            for record in decode_records(batch):
                assert record.key is not None
                yield StoredTransaction(record.key, record.value)

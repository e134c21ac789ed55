"""The coordinator's view of __transaction_state; ids are in the partitions of Kafka."""

import logging
from collections.abc import Awaitable, Iterator
from typing import NamedTuple, Protocol

from kohort.broker.core.transaction.records import (
    DurableTransaction,
    TransactionRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.broker.topics.internal_log import InternalLog
from kohort.groups.steps import FEW
from kohort.protocol.errors import DecodeError, EncodeError, ErrorCode, KafkaError
from kohort.protocol.records.batch import SealedBatch
from kohort.protocol.records.builder import make_batch
from kohort.protocol.records.record import Record

logger = logging.getLogger(__name__)


class StoredTransaction(NamedTuple):
    """A record of an id, as stored in the log."""

    key: bytes
    value: bytes | None


class TransactionLog(Protocol):
    @property
    def partition_count(self) -> int: ...

    def leader_epoch(self, partition: int) -> int:
        """The epoch that markers of the partition's ids carry as their coordinator's."""
        ...

    def append(
        self, partition: int, record: DurableTransaction, *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append a record; None if it is durable already.

        The awaitable completes when the record is durable; cancelling it has no effect on the
        record. A KafkaError, raised at once or by the awaitable, means that it is not in the log
        and never will be.
        """
        ...

    def prepare(self) -> Awaitable[None] | None:
        """Create the log if it does not exist; return None if it exists.

        Raises:
            KafkaError: it cannot be created.
        """
        ...

    def read(self, partition: int) -> Iterator[StoredTransaction]:
        """All durable records, in order.

        Raises:
            KafkaError: the rest cannot be read.
        """
        ...


class TopicTransactionLog:
    def __init__(self, log: InternalLog) -> None:
        self._log = log
        self.prepare = log.prepare

    @property
    def partition_count(self) -> int:
        """The partition count of the topic, or the one with which it will be created."""
        return self._log.partition_count

    def leader_epoch(self, partition: int) -> int:
        """The highest epoch in the log, which Kafka may have written, or more."""
        return self._log.leader_epoch(partition)

    def append(
        self, partition: int, record: DurableTransaction, *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append a record, as described at `TransactionLog`."""
        return self._log.append(partition, encode_as_batch(record, wall_ms), wall_ms=wall_ms)

    def read(self, partition: int) -> Iterator[StoredTransaction]:
        for record in self._log.read(partition):
            if record.key is not None:
                yield StoredTransaction(record.key, record.value)


def encode_as_batch(record: DurableTransaction, wall_ms: int) -> SealedBatch:
    """Encode a record as a batch; return it with its header.

    Raises:
        KafkaError: INVALID_RECORD, if the topic's format cannot represent it.
    """
    try:
        return make_batch([Record(encode_value(record), encode_key(record), timestamp=wall_ms)])
    except EncodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


class LoadedIds(NamedTuple):
    records: dict[str, TransactionRecord]
    """The last record of each id, the least recently updated first."""
    unreadable_partitions: frozenset[int]
    """Unreadable partitions: their ids are unknown, and must not be taken for new ones."""
    load_times_ms: tuple[int, ...]
    """Time to read each partition that has records."""


async def load_ids(log: TransactionLog, clock: Clock) -> LoadedIds:
    """Read the last record of every id. Invalid records are logged and skipped."""
    time_slice = Slice(clock)  # No client is served yet, but health probes are answered.
    records: list[TransactionRecord] = []
    unreadable: set[int] = set()
    load_times_ms: list[int] = []
    for partition in range(log.partition_count):
        begun_ms = clock.monotonic_ms()
        try:
            latest = await _read_latest(log, partition, time_slice)
        except KafkaError as error:
            logger.error(  # noqa: TRY400 - the disk is at fault, not this code.
                "Partition %d of the transactions' log cannot be read, its ids are unavailable: %s",
                partition,
                error,
            )
            unreadable.add(partition)
            continue
        for count, stored in enumerate(latest.items()):
            record = _decode(*stored)
            if record is not None:
                records.append(record)
            if count % FEW == 0:
                await time_slice.pause()
        if latest:
            load_times_ms.append(clock.monotonic_ms() - begun_ms)
    records.sort(key=lambda record: record.last_update_ms)
    by_id = {record.transactional_id: record for record in records}
    return LoadedIds(by_id, frozenset(unreadable), tuple(load_times_ms))


async def _read_latest(
    log: TransactionLog, partition: int, time_slice: Slice
) -> dict[bytes, bytes]:
    """Return the last value of each key, without tombstones."""
    latest: dict[bytes, bytes] = {}
    for count, record in enumerate(log.read(partition)):
        if record.value is None:
            latest.pop(record.key, None)
        else:
            latest[record.key] = record.value
        if count % FEW == 0:
            await time_slice.pause()
    return latest


def _decode(key: bytes, value: bytes) -> TransactionRecord | None:
    try:
        transactional_id = decode_key(key)
        return None if transactional_id is None else decode_value(transactional_id, value)
    except DecodeError as error:
        logger.warning("Skipped a record of the transactions' log: %s", error)
        return None

"""Where transactional ids are written down: __transaction_state as the coordinator sees it.

An id lives in one partition, chosen as Kafka does, so that tools find it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterator
from typing import NamedTuple, Protocol

from kohort.broker.core.transaction.encoding import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kohort.broker.core.transaction.records import DurableTransaction, TransactionRecord
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
    """A record of an id as it lies in the log."""

    key: bytes
    value: bytes | None


class TransactionLog(Protocol):
    """The log, in partitions."""

    @property
    def partition_count(self) -> int: ...

    def leader_epoch(self, partition: int) -> int:
        """The epoch that markers of the partition's ids carry as their coordinator's."""
        ...

    def append(
        self, partition: int, record: DurableTransaction, *, wall_ms: int
    ) -> Awaitable[None] | None:
        """Append a record; None if it is durable already.

        The awaitable ends when it is durable, and may be cancelled without an effect on it. Either
        way KafkaError means that it is not in the log and will not be.
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
            KafkaError: what follows cannot be read.
        """
        ...


class TopicTransactionLog:
    """A TransactionLog over the broker's own topics."""

    def __init__(self, log: InternalLog) -> None:
        self._log = log
        self.prepare = log.prepare

    @property
    def partition_count(self) -> int:
        """How many partitions there are, or will be."""
        return self._log.partition_count

    def leader_epoch(self, partition: int) -> int:
        """See `TransactionLog`. At least the highest in the log, which a Kafka may have written."""
        return self._log.leader_epoch(partition)

    def append(
        self, partition: int, record: DurableTransaction, *, wall_ms: int
    ) -> Awaitable[None] | None:
        """See `TransactionLog`."""
        return self._log.append(partition, encode_as_batch(record, wall_ms), wall_ms=wall_ms)

    def read(self, partition: int) -> Iterator[StoredTransaction]:
        """See `TransactionLog`."""
        for record in self._log.read(partition):
            if record.key is not None:
                yield StoredTransaction(record.key, record.value)


def encode_as_batch(record: DurableTransaction, wall_ms: int) -> SealedBatch:
    """A record as a batch of the topic, and its header.

    Raises:
        KafkaError: INVALID_RECORD, for what the topic's format cannot say.
    """
    try:
        return make_batch([Record(encode_value(record), encode_key(record), timestamp=wall_ms)])
    except EncodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


class LoadedIds(NamedTuple):
    """What the log holds."""

    records: dict[str, TransactionRecord]
    """The last record of each id, the one that was updated longest ago first."""
    unreadable_partitions: frozenset[int]
    """Ids that live there are not known, so that they must not seem to be new."""
    load_times_ms: tuple[int, ...]
    """How long each partition took that has records."""


async def load_ids(log: TransactionLog, clock: Clock) -> LoadedIds:
    """Read the last record of every id. What cannot be understood is left out and reported."""
    time_slice = Slice(clock)  # No client is served yet, but probes are answered.
    records: list[TransactionRecord] = []
    unreadable: set[int] = set()
    load_times_ms: list[int] = []
    for partition in range(log.partition_count):
        begun_ms = clock.monotonic_ms()
        try:
            latest = await _read_latest(log, partition, time_slice)
        except KafkaError as error:
            logger.error(  # noqa: TRY400 - what is wrong is the disk, not this code.
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
    """The last value of each key that has one."""
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

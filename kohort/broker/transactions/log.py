"""The records of __transaction_state; each id has the same partition as in Kafka."""

import logging
from typing import NamedTuple

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


def encode_as_batch(record: DurableTransaction, wall_ms: int) -> SealedBatch:
    """Encode a record as a batch; return the batch with its header.

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
    """Partitions that cannot be read: their transactional ids must not be treated as new."""
    load_times_ms: tuple[int, ...]
    """Time to read each partition that has records."""


async def load_ids(log: InternalLog, clock: Clock) -> LoadedIds:
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
                "Partition %d of the transaction log cannot be read; its ids are unavailable: %s",
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


async def _read_latest(log: InternalLog, partition: int, time_slice: Slice) -> dict[bytes, bytes]:
    """Return the last value of each key, without tombstones."""
    latest: dict[bytes, bytes] = {}
    for count, record in enumerate(log.read(partition)):
        if record.key is None:
            continue
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
        logger.warning("Skipped a record of the transaction log: %s", error)
        return None

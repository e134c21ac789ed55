"""The durable state of a transactional id: one record with the complete state, or a tombstone.

Stored in __transaction_state in Kafka's own layout, so that its tools and its coordinator can read
it. Value version 1 is written, version 0 is read as well. The batch has one record, and no
producer.
"""

from typing import Final, NamedTuple, TypeAlias

from kohort.broker.core.transaction.requests import (
    EXHAUSTED_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ClientVersion,
    TopicPartition,
)
from kohort.broker.core.transaction.states import STORED_STATES, TransactionState
from kohort.protocol.codec import codec, decode_versioned, encode_versioned
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from kohort.protocol.records.control import ControlType

NEVER_MS = -1
"""Start time of an id that has had no transaction since it was initialized."""


class TransactionRecord(NamedTuple):
    """The whole state of a transactional id. Times are wall time, in milliseconds."""

    transactional_id: str
    producer_id: int
    previous_producer_id: int
    """The producer id in the record before this one, normally equal to `producer_id`."""
    next_producer_id: int
    """In Prepare*, the id that replaces `producer_id` because its epoch is exhausted; else -1."""
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...]
    """The partitions without duplicates, in the order in which they were added."""
    last_update_ms: int
    start_ms: int = NEVER_MS
    client_version: ClientVersion = ClientVersion.V1

    @property
    def result(self) -> ControlType:
        """The outcome of the transaction, for a record in Prepare* or Complete*."""
        is_commit = self.state in _COMMITS
        assert is_commit or self.state in _ABORTS
        return ControlType.COMMIT if is_commit else ControlType.ABORT

    @property
    def is_exhausted(self) -> bool:
        """Whether this is the last epoch that clients can get."""
        return self.producer_epoch >= EXHAUSTED_EPOCH

    @property
    def next_producer(self) -> tuple[int, int]:
        """Id and epoch of the producer's next transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


class TransactionTombstone(NamedTuple):
    transactional_id: str


DurableTransaction: TypeAlias = TransactionRecord | TransactionTombstone

_COMMITS = {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}
_ABORTS = {TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT}


def last_epoch_of(record: TransactionRecord) -> int:
    """Return the previous epoch, if the record implies it; otherwise -1.

    EndTxn v5, a timeout and a fence raise the epoch. A producer that has not learned of this still
    has the previous epoch, with which it may request the current one. Kafka forgets the previous
    epoch when it restarts.
    """
    if record.client_version is not ClientVersion.V2 or record.producer_epoch == 0:
        return NO_PRODUCER_EPOCH
    is_ended = record.state in _COMMITS or record.state in _ABORTS
    return record.producer_epoch - 1 if is_ended else NO_PRODUCER_EPOCH


_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1
_VERSION_BYTES: Final = 2
_KEY: Final = codec(TransactionLogKey, _KEY_VERSION)
_VALUES: Final = {
    _VALUE_VERSION.to_bytes(_VERSION_BYTES, "big"): codec(TransactionLogValue, _VALUE_VERSION)
}
"""Codecs by the version bytes, cached because a start reads very many records."""


def encode_key(record: DurableTransaction) -> bytes:
    """Encode the key, under which compaction keeps only the last record."""
    return encode_versioned(
        TransactionLogKey(transactional_id=record.transactional_id), _KEY_VERSION
    )


def encode_value(record: DurableTransaction) -> bytes | None:
    if isinstance(record, TransactionTombstone):
        return None
    partitions = None
    if record.state is not TransactionState.EMPTY:
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=ids)
            for topic, ids in by_topic(record.partitions).items()
        ]
    value = TransactionLogValue(
        producer_id=record.producer_id,
        previous_producer_id=record.previous_producer_id,
        next_producer_id=record.next_producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state.code,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=record.last_update_ms,
        transaction_start_timestamp_ms=record.start_ms,
        client_transaction_version=record.client_version,
    )
    return encode_versioned(value, _VALUE_VERSION)


def decode_key(key: bytes) -> str | None:
    """Return the id in a key; None for an unknown type of record, which must be kept unchanged.

    Raises:
        DecodeError: the key is of the known type and does not parse.
    """
    if len(key) < 2 or int.from_bytes(key[:2], "big", signed=True) != _KEY_VERSION:
        return None
    return _KEY.decode(key, 2)[0].transactional_id


def decode_value(transactional_id: str, value: bytes) -> TransactionRecord:
    """Decode the record of an id.

    Raises:
        DecodeError: the value does not parse, or no coordinator writes such a value.
    """
    layout = _VALUES.get(value[:_VERSION_BYTES])
    if layout is not None:
        stored = layout.decode(value, _VERSION_BYTES)[0]
    else:  # Another version, or an invalid one.
        stored = decode_versioned(TransactionLogValue, value)[0]
    state = STORED_STATES.get(stored.transaction_status)
    if state is None:
        raise DecodeError(f"{transactional_id!r} is in state {stored.transaction_status}")
    if stored.producer_id < 0 or stored.producer_epoch < 0:
        raise DecodeError(f"{transactional_id!r} has no producer")
    partitions: tuple[TopicPartition, ...] = ()
    if stored.transaction_partitions:
        places = [
            TopicPartition(topic.topic, index)
            for topic in stored.transaction_partitions
            for index in topic.partition_ids
        ]
        partitions = tuple(dict.fromkeys(places))
    is_v2 = stored.client_transaction_version >= ClientVersion.V2
    return TransactionRecord(
        transactional_id,
        stored.producer_id,
        stored.previous_producer_id,
        stored.next_producer_id,
        stored.producer_epoch,
        stored.transaction_timeout_ms,
        state,
        partitions,
        stored.transaction_last_update_timestamp_ms,
        stored.transaction_start_timestamp_ms,
        ClientVersion.V2 if is_v2 else ClientVersion.V1,
    )


def by_topic(partitions: tuple[TopicPartition, ...]) -> dict[str, list[int]]:
    """Group partition indexes by topic, both in the order of first occurrence."""
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return indexes

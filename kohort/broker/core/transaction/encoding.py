"""Records of transactional ids in __transaction_state, in Kafka's own layout, so that its tools and
its coordinator can read them.

Value version 1 is written, version 0 is read as well. The batch has one record, and no producer.
"""

from typing import Final

from kohort.broker.core.transaction.records import (
    DurableTransaction,
    TransactionRecord,
    TransactionTombstone,
)
from kohort.broker.core.transaction.requests import ClientVersion, TopicPartition
from kohort.broker.core.transaction.states import STORED_STATES, TransactionState
from kohort.protocol.codec import codec, decode_versioned, encode_versioned
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1
_VERSION_BYTES: Final = 2
_KEY: Final = codec(TransactionLogKey, _KEY_VERSION)
_VALUES: Final = {
    _VALUE_VERSION.to_bytes(_VERSION_BYTES, "big"): codec(TransactionLogValue, _VALUE_VERSION)
}
"""Layouts by the version bytes, because startup reads very many records."""


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
    # Decodes the other versions, and raises for invalid ones.
    stored = layout.decode(value, _VERSION_BYTES)[0] if layout else _decode_rare(value)
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


def _decode_rare(value: bytes) -> TransactionLogValue:
    """Decode another version. Raises DecodeError."""
    return decode_versioned(TransactionLogValue, value)[0]


def by_topic(partitions: tuple[TopicPartition, ...]) -> dict[str, list[int]]:
    """Group partition indexes by topic, both in the order of first occurrence."""
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return indexes

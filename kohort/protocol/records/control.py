"""Control batches: the markers that end a transaction in a partition (KIP-98).

A control batch holds one record. Its key names the kind, its value the epoch of the transaction
coordinator that sent it. Kinds other than abort and commit belong to KRaft's own log; readers skip
what they do not know.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import BatchHeader
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record, decode_records
from kohort.protocol.records.varint import Buffer

_VERSION = 0
_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class ControlType(IntEnum):
    """The kinds of markers that end a transaction."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """One marker: what became of a producer's open transaction in this partition."""

    control_type: ControlType
    coordinator_epoch: int


def encode_key(control_type: ControlType) -> bytes:
    """The key of a control record."""
    return _KEY.pack(_VERSION, control_type)


def decode_key(key: Buffer) -> int:
    """The type a control record's key names, which need not be one of ControlType.

    Later versions only add fields at the end, so they are read as version 0.
    """
    if len(key) < _KEY.size:
        raise DecodeError(f"control record key of {len(key)} bytes")
    version, control_type = _KEY.unpack_from(key)
    if version < _VERSION:
        raise DecodeError(f"control record key of version {version}")
    return int(control_type)


def encode_value(coordinator_epoch: int) -> bytes:
    """The value of a marker."""
    return _VALUE.pack(_VERSION, coordinator_epoch)


def decode_value(value: Buffer) -> int:
    """The coordinator epoch of a marker."""
    if len(value) < _VALUE.size:
        raise DecodeError(f"control record value of {len(value)} bytes")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < _VERSION:
        raise DecodeError(f"control record value of version {version}")
    return int(coordinator_epoch)


def encode_marker(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends a producer's transaction. Markers carry no sequence."""
    record = Record(
        key=encode_key(marker.control_type),
        value=encode_value(marker.coordinator_epoch),
        timestamp=timestamp,
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        is_transactional=True,
        is_control=True,
    )


def decode_marker(batch: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """The marker in a control batch; None for a kind that does not end a transaction.

    DecodeError if the batch does not hold exactly one well-formed control record.
    """
    if not header.is_control or header.record_count != 1:
        raise DecodeError(f"not a control batch of one record: {header}")
    (record,) = decode_records(batch, header)
    if record.key is None:
        raise DecodeError("control record without key")
    control_type = decode_key(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None:
        raise DecodeError("marker without value")
    return EndTransactionMarker(ControlType(control_type), decode_value(record.value))

"""Control batches: the markers that end a transaction in a partition (KIP-98).

A control batch contains one record. Its key gives the kind, its value the epoch of the transaction
coordinator that sent it. Kinds other than abort and commit belong to KRaft's own log; readers skip
unknown kinds.
"""

from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_MIN,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    seal,
)
from kohort.protocol.records.record import Record, decode_records, write_record
from kohort.protocol.records.varint import Buffer

_VERSION = 0
_KEY = Struct(">hh")
_VALUE = Struct(">hi")

_AS_WRITTEN = Struct(">5shhshis")
"""A marker's record as coordinators write it: key, value, and the constant bytes around them."""
_AROUND = b"\x20\0\0\0\x08", _VERSION, b"\x0c", _VERSION, b"\0"


class ControlType(IntEnum):
    """The kinds of markers that end a transaction."""

    ABORT = 0
    COMMIT = 1


_TYPES = {int(kind): kind for kind in ControlType}
_PLAIN_LENGTH = LENGTH_MIN + _AS_WRITTEN.size


class EndTransactionMarker(NamedTuple):
    """One marker: the outcome of a producer's open transaction in this partition."""

    control_type: ControlType
    coordinator_epoch: int


def encode_key(control_type: ControlType) -> bytes:
    return _KEY.pack(_VERSION, control_type)


def decode_key(key: Buffer) -> int:
    """Return the type in a control record's key, which need not be one of ControlType.

    Later versions only add fields at the end, so they are read as version 0.
    """
    if len(key) < _KEY.size:
        raise DecodeError(f"control record key of {len(key)} bytes")
    version, control_type = _KEY.unpack_from(key)
    if version < _VERSION:
        raise DecodeError(f"control record key of version {version}")
    return int(control_type)


def encode_value(coordinator_epoch: int) -> bytes:
    return _VALUE.pack(_VERSION, coordinator_epoch)


def decode_value(value: Buffer) -> int:
    """Return the coordinator epoch of a marker."""
    if len(value) < _VALUE.size:
        raise DecodeError(f"control record value of {len(value)} bytes")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < _VERSION:
        raise DecodeError(f"control record value of version {version}")
    return int(coordinator_epoch)


def make_marker(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> tuple[bytes, BatchHeader]:
    """Encode the control batch that ends a transaction; return it with its header."""
    block = _block(*marker)
    header = BatchHeader(
        base_offset=base_offset,
        length=LENGTH_MIN + len(block),
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return seal(header, block)


@lru_cache(maxsize=32)
def _block(control_type: ControlType, coordinator_epoch: int) -> bytes:
    """Return a marker's records block; cached, because producer and offset are not part of it."""
    record = Record(key=encode_key(control_type), value=encode_value(coordinator_epoch))
    block = bytearray()
    write_record(block, record, 0, 0)
    return bytes(block)


def decode_marker(batch: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """Decode the marker; None if the batch does not end a transaction. Raises DecodeError."""
    if not header.is_control or header.record_count != 1:
        raise DecodeError(f"not a control batch of one record: {header}")
    is_plain = header.length == _PLAIN_LENGTH and not header.attributes & CODEC_MASK
    if is_plain and len(batch) >= header.size_bytes:
        head, first, kind, middle, second, epoch, tail = _AS_WRITTEN.unpack_from(
            batch, HEADER_BYTES
        )
        if (head, first, middle, second, tail) == _AROUND and kind in _TYPES:
            return EndTransactionMarker(_TYPES[kind], epoch)
    (record,) = decode_records(batch, header)
    if record.key is None:
        raise DecodeError("control record without key")
    control_type = decode_key(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None:
        raise DecodeError("marker without value")
    return EndTransactionMarker(ControlType(control_type), decode_value(record.value))

"""Encodes and decodes batches of `__cluster_metadata`. Pure.

Controllers may write many records in one transaction (KIP-868), delimited by marker records; one
that was aborted or has no end is ignored.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from kohort.broker.kafka_directory.image import MetadataRecord
from kohort.broker.kafka_directory.releases import KAFKA_4_4, Release
from kohort.protocol.codec import codec
from kohort.protocol.errors import DecodeError
from kohort.protocol.message import schema_of
from kohort.protocol.messages.cluster_metadata import (
    RECORD_TYPES,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)
from kohort.protocol.records.batch import crc_matches, split_batches
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record, decode_records
from kohort.protocol.records.varint import Buffer, encode_uvarint, read_uvarint

_FRAME_VERSION: Final = 1
_NUMBERS: Final = {message: number for number, message in RECORD_TYPES.items()}

_BEGIN, _END, _ABORT = 23, 24, 25
"""Records that delimit a transaction; their fields are ignored."""

DELEGATION_TOKEN: Final = 10
_WITHOUT_MEANING: Final = {
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    DELEGATION_TOKEN: "DelegationTokenRecord",
    17: "BrokerRegistrationChangeRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
    29: "UnregisterControllerRecord",
}
"""Ignored records: they do not concern a broker's data, or cannot be converted."""

_HEADER_KEY: Final = b"\0\0\0\3"
_FOOTER_KEY: Final = b"\0\0\0\4"
"""Version and type of control records."""

_BATCH_BYTES: Final = 256 * 1024
"""Maximum size of a batch that is written; Kafka's limit is 8 MiB."""


def encode_record(record: MetadataRecord, release: Release = KAFKA_4_4) -> bytes:
    version = release.version_of(type(record))
    head = encode_uvarint(_FRAME_VERSION) + encode_uvarint(_NUMBERS[type(record)])
    return head + encode_uvarint(version) + codec(type(record), version).encode(record)


def decode_record(frame: Buffer) -> tuple[int, MetadataRecord | None]:
    """Return a record's type, and the record unless it is ignored. Raises DecodeError."""
    frame_version, position = read_uvarint(frame, 0)
    number, position = read_uvarint(frame, position)
    version, position = read_uvarint(frame, position)
    if frame_version != _FRAME_VERSION:
        raise DecodeError(f"a metadata record in a frame of version {frame_version}")
    message = RECORD_TYPES.get(number)
    if message is None:
        if number not in _WITHOUT_MEANING and number not in {_BEGIN, _END, _ABORT}:
            raise DecodeError(f"a metadata record of the unknown type {number}")
        return number, None
    if version not in schema_of(message).versions:
        raise DecodeError(f"a {message.__name__} of the unknown version {version}")
    record: MetadataRecord
    record, end = codec(message, version).decode(frame, position)
    if end != len(frame):
        raise DecodeError(f"{len(frame) - end} bytes after a {message.__name__}")
    return number, record


def encode_snapshot(
    records: Iterable[MetadataRecord], *, now_ms: int, release: Release = KAFKA_4_4
) -> Iterator[bytes]:
    """Yield a snapshot file in chunks, for this release of Kafka."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=now_ms)
    yield _control(_HEADER_KEY, header, 0, now_ms)
    offset = 1
    waiting: list[Record] = []
    size = 0
    for record in records:
        frame = encode_record(record, release)
        if waiting and size + len(frame) > _BATCH_BYTES:
            yield encode_batch(waiting, base_offset=offset, leader_epoch=0)
            offset += len(waiting)
            waiting, size = [], 0
        waiting.append(Record(frame, timestamp=now_ms))
        size += len(frame)
    if waiting:
        yield encode_batch(waiting, base_offset=offset, leader_epoch=0)
        offset += len(waiting)
    yield _control(_FOOTER_KEY, SnapshotFooterRecord(version=0), offset, now_ms)


def _control(key: bytes, body: object, offset: int, now_ms: int) -> bytes:
    version = schema_of(type(body)).versions.high
    record = Record(codec(type(body), version).encode(body), key, timestamp=now_ms)
    return encode_batch([record], base_offset=offset, leader_epoch=0, is_control=True)


class MetadataReader:
    """Decodes batches of a log or a snapshot into the records of completed transactions."""

    def __init__(self) -> None:
        self.has_tokens = False
        """Whether delegation tokens were seen, even if they were removed later."""
        self.is_whole = False
        """Whether the footer of a snapshot was seen."""
        self._transaction: list[MetadataRecord] | None = None

    def read(self, content: Buffer, *, from_offset: int = 0) -> Iterator[MetadataRecord]:
        """Return the records of these batches at or above an offset. Raises DecodeError."""
        for header, batch in split_batches(content):
            if header.last_offset < from_offset:
                continue
            if not crc_matches(batch, header):
                raise DecodeError(f"the batch at offset {header.base_offset} is damaged")
            for record in decode_records(batch, header):
                if record.offset < from_offset:
                    continue
                if header.is_control:
                    self.is_whole |= record.key == _FOOTER_KEY
                else:
                    yield from self._counting(record.value or b"")

    def _counting(self, frame: bytes) -> Iterator[MetadataRecord]:
        number, record = decode_record(frame)
        self.has_tokens |= number == DELEGATION_TOKEN
        if number == _BEGIN:
            self._transaction = []
        elif number == _ABORT:
            self._transaction = None
        elif number == _END:
            yield from self._transaction or ()
            self._transaction = None
        elif record is not None and self._transaction is not None:
            self._transaction.append(record)
        elif record is not None:
            yield record

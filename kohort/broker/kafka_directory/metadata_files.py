"""The files of a cluster's metadata: the snapshots and segments of `__cluster_metadata-0`, and
meta.properties, which identifies a directory's cluster and marks it as Kafka's.

Controllers may write many records in one transaction (KIP-868), delimited by marker records; a
transaction that was aborted or has no end is ignored.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kohort.broker.kafka_directory.image import ClusterImage, MetadataRecord, Replay
from kohort.broker.kafka_directory.releases import KAFKA_4_4, Release
from kohort.broker.storage.checked_file import replace_file
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import KAFKA_FILE, LOG_SUFFIX, offset_in, partition_directory
from kohort.broker.topics.names import CLUSTER_METADATA
from kohort.formats.properties import parse_properties
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


DIRECTORY: Final = partition_directory(CLUSTER_METADATA, 0)
FIRST_SNAPSHOT: Final = "00000000000000000000-0000000000.checkpoint"
"""File with the bootstrap records of a new cluster, which its controller copies into the log."""
BOOTSTRAP: Final = "bootstrap.checkpoint"
"""The bootstrap file of `kafka-storage format` before KIP-1170, next to the log's directory. Later
releases read it too if the log is empty."""

_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")

_VERSION: Final = "1"


class MetadataUnreadableError(Exception):
    """The controller log cannot be read; the message says where."""


def write_first_snapshot(
    files: FileSystem,
    root: Path,
    records: Iterable[MetadataRecord],
    *,
    now_ms: int,
    release: Release = KAFKA_4_4,
) -> None:
    """Create the metadata directory of a new cluster, with its first records. Raises OSError."""
    directory = root / DIRECTORY
    files.make_directory(str(directory))
    content = b"".join(encode_snapshot(records, now_ms=now_ms, release=release))
    path = root / BOOTSTRAP if release.begins_with_file else directory / FIRST_SNAPSHOT
    replace_file(files, str(path), content)
    files.sync_directory(str(directory))
    files.sync_directory(str(root))


def read_image(directory: Path) -> tuple[ClusterImage, bool]:
    """Read the newest snapshot and the log after it; return the image, and whether there were
    records of delegation tokens.

    Call this only while no controller runs. Raises OSError, MetadataUnreadableError.
    """
    reader, replay = MetadataReader(), Replay()
    path = directory
    try:
        start = 0
        snapshots = sorted(
            (int(match[1]), int(match[2]), file)
            for file in directory.iterdir()
            if (match := _SNAPSHOT.fullmatch(file.name))
        )
        if not any(directory.iterdir()) and (directory.parent / BOOTSTRAP).exists():
            # The directory was formatted by `kafka-storage`, and Kafka was never started on it.
            snapshots = [(0, 0, directory.parent / BOOTSTRAP)]
        if snapshots:
            start, _, path = snapshots[-1]
            _replay(reader, replay, path)
            if not reader.is_whole:
                raise DecodeError("a snapshot without a footer")
        for base_offset, path in _segments(directory):
            if base_offset > start and not snapshots and base_offset != 0:
                raise DecodeError("the log does not begin at 0, and there is no snapshot")
            _replay(reader, replay, path, from_offset=start)
    except (DecodeError, ValueError) as error:
        raise MetadataUnreadableError(f"{path}: {error}") from error
    return replay.image, reader.has_tokens


def _replay(reader: MetadataReader, replay: Replay, path: Path, *, from_offset: int = 0) -> None:
    for record in reader.read(path.read_bytes(), from_offset=from_offset):
        replay.apply(record)


def _segments(directory: Path) -> list[tuple[int, Path]]:
    """Return the base offset and path of each segment, in order."""
    segments = [(offset_in(file.name, LOG_SUFFIX), file) for file in directory.iterdir()]
    return sorted((base, file) for base, file in segments if base is not None)


class MetaProperties(NamedTuple):
    cluster_id: str
    node_id: int
    directory_id: bytes | None
    """The data directory's id, 16 bytes; None before Kafka 3.7."""


def encode_id(value: bytes) -> str:
    """Encode a 16-byte id as Kafka does, in URL-safe base64."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def encode_meta_properties(meta: MetaProperties) -> bytes:
    lines = [f"version={_VERSION}", f"cluster.id={meta.cluster_id}", f"node.id={meta.node_id}"]
    if meta.directory_id is not None:
        lines.append(f"directory.id={encode_id(meta.directory_id)}")
    return ("\n".join(lines) + "\n").encode()


def parse_meta_properties(text: str) -> MetaProperties:
    """Parse the file. Raises ValueError if it is not a KRaft node's."""
    properties = {entry.name: entry.value for entry in parse_properties(text)}
    version = properties.get("version")
    if version != _VERSION:
        raise ValueError(f"{KAFKA_FILE} of version {version}; KRaft has version {_VERSION}")
    for name in ("cluster.id", "node.id"):
        if name not in properties:
            raise ValueError(f"{KAFKA_FILE} without {name}")
    directory_id = properties.get("directory.id")
    decoded = None if directory_id is None else base64.urlsafe_b64decode(directory_id + "==")
    return MetaProperties(properties["cluster.id"], int(properties["node.id"]), decoded)

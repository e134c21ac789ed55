"""The files of a cluster's metadata: the snapshots and segments of `__cluster_metadata-0`, and
meta.properties, which identifies a directory's cluster and marks it as Kafka's. Blocking code.
"""

import base64
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from kohort.broker.kafka_directory.frames import MetadataReader, encode_snapshot
from kohort.broker.kafka_directory.image import ClusterImage, MetadataRecord, Replay
from kohort.broker.kafka_directory.releases import KAFKA_4_4, Release
from kohort.broker.storage.checked_file import replace_file
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import KAFKA_FILE, LOG_SUFFIX, offset_in, partition_directory
from kohort.broker.topics.names import CLUSTER_METADATA
from kohort.formats.properties import parse_properties
from kohort.protocol.errors import DecodeError

DIRECTORY: Final = partition_directory(CLUSTER_METADATA, 0)
FIRST_SNAPSHOT: Final = "00000000000000000000-0000000000.checkpoint"
"""The bootstrap records of a new cluster, which the controller copies into its log once."""
BOOTSTRAP: Final = "bootstrap.checkpoint"
"""The bootstrap file as written by `kafka-storage format` before KIP-1170, next to it. Later
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
    """Create the directory of a cluster that was never started. Raises OSError."""
    directory = root / DIRECTORY
    files.make_directory(str(directory))
    content = b"".join(encode_snapshot(records, now_ms=now_ms, release=release))
    path = root / BOOTSTRAP if release.begins_with_file else directory / FIRST_SNAPSHOT
    replace_file(files, str(path), content)
    files.sync_directory(str(directory))
    files.sync_directory(str(root))


def read_image(directory: Path) -> tuple[ClusterImage, bool]:
    """Read the newest snapshot and the log after it; return the image, and whether it had
    delegation tokens.

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
            # Kafka has not been started on it yet.
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
    """Return the base offset and path of each, in order."""
    segments = [(offset_in(file.name, LOG_SUFFIX), file) for file in directory.iterdir()]
    return sorted((base, file) for base, file in segments if base is not None)


class MetaProperties(NamedTuple):
    cluster_id: str
    node_id: int
    directory_id: bytes | None
    """16 bytes; None before Kafka 3.7."""


def encode_id(value: bytes) -> str:
    """Encode 16 bytes as Kafka does."""
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

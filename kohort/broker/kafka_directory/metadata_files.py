"""The directory of `__cluster_metadata-0`: snapshots and segments. Blocking code."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kohort.broker.kafka_directory.frames import MetadataReader, encode_snapshot
from kohort.broker.kafka_directory.image import ClusterImage, MetadataRecord, Replay
from kohort.broker.kafka_directory.releases import KAFKA_4_4, Release
from kohort.broker.storage.checked_file import replace_file
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import LOG_SUFFIX, offset_in, partition_directory
from kohort.broker.topics.names import CLUSTER_METADATA
from kohort.protocol.errors import DecodeError

DIRECTORY: Final = partition_directory(CLUSTER_METADATA, 0)
FIRST_SNAPSHOT: Final = "00000000000000000000-0000000000.checkpoint"
"""The bootstrap records of a new cluster, which the controller copies into its log once."""
BOOTSTRAP: Final = "bootstrap.checkpoint"
"""The same, as `kafka-storage format` wrote it before KIP-1170, next to the directory. Later
releases read it too if the log is empty."""

_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


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

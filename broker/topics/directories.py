"""The data directory's partition directories: whose they are, and what becomes of them.

Blocking code. A directory belongs to a topic if it bears its name and its partition.metadata the
topic's id; one with another id is a left-over and is set aside, never served and never overwritten.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from broker.config import TopicConfig
from broker.storage.errors import CorruptFileError, StorageError
from broker.storage.filesystem import FileSystem
from broker.storage.layout import (
    deleted_directory,
    is_deleted_directory,
    parse_partition_directory,
    partition_directory,
)
from broker.storage.log import PartitionLog
from broker.storage.metadata_store import TopicRecord
from broker.storage.offset_checkpoint import (
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
    write_offsets,
)
from broker.storage.partition_metadata import read_topic_id, write_topic_id
from broker.topics.partition import LEADER_EPOCH

logger = logging.getLogger(__name__)

Offsets = dict[tuple[str, int], int]
"""An offset by (topic, partition)."""

STRAY_SUFFIX: Final = "-stray"
"""Kafka's ending for the directory of a partition that it knows nothing of."""


def unique_hex() -> str:
    """Sets apart the directories of deleted topics of one name."""
    return os.urandom(16).hex()


class PartitionDirectories:
    """The directories of one data directory, and what was noted about them at the last stop."""

    def __init__(self, files: FileSystem, root: Path, *, clean_shutdown: bool) -> None:
        self.files = files
        self.root = root
        self._clean_shutdown = clean_shutdown
        self._recovery_points = self._read_checkpoint(RECOVERY_POINT_FILE)
        self._start_offsets = self._read_checkpoint(LOG_START_OFFSET_FILE)

    def open_log(
        self, name: str, index: int, topic_id: bytes, config: TopicConfig, *, wall_ms: int
    ) -> PartitionLog:
        """Open or make the log of a partition. Raises StorageError."""
        directory = self.path(name, index)
        key = (name, index)
        try:
            noted = self._set_aside_stray(directory, topic_id)
            log = PartitionLog.open(
                directory,
                config,
                wall_ms=wall_ms,
                clean_shutdown=self._clean_shutdown,
                # What was noted of another topic of the name says nothing about this one.
                recovery_point=self._recovery_points.get(key, 0) if noted else 0,
                log_start_offset=self._start_offsets.get(key, 0) if noted else 0,
                leader_epoch_max=LEADER_EPOCH,
                files=self.files,
            )
            if not noted:
                write_topic_id(self.files, str(directory), topic_id)
        except OSError as error:
            raise StorageError(f"{directory} cannot be opened: {error}") from error
        return log

    def path(self, name: str, index: int) -> Path:
        """Where a partition's log is."""
        return self.root / partition_directory(name, index)

    def exists(self, name: str, index: int) -> bool:
        """Whether a partition has a directory."""
        return self.files.exists(str(self.path(name, index)))

    def remains_of(self, topic: TopicRecord) -> Iterator[Path]:
        """Directories of a deleted topic that still bear its name."""
        for index in range(topic.partition_count):
            directory = self.path(topic.name, index)
            if self.files.exists(str(directory)) and self._topic_id(directory) == topic.topic_id:
                yield directory

    def rename_deleted(self, directories: Iterable[Path]) -> list[Path]:
        """Free the names of a deleted topic's directories; the new paths are to be removed."""
        renamed = []
        for directory in directories:
            parsed = parse_partition_directory(directory.name)
            assert parsed is not None, f"{directory} is not named as a partition"
            target = directory.with_name(deleted_directory(*parsed, unique_hex()))
            self.files.rename(str(directory), str(target))
            renamed.append(target)
        return renamed

    def remove(self, directories: Iterable[Path]) -> None:
        """Remove what was renamed; what cannot be removed now is swept at the next start."""
        for directory in directories:
            try:
                self.files.remove_tree(str(directory))
            except OSError as error:
                logger.warning("%s cannot be removed: %s", directory, error)

    def deleted(self) -> list[Path]:
        """Directories of deleted partitions that an earlier run did not come to remove."""
        entries = self.files.entries(str(self.root))
        return [
            self.root / entry.name
            for entry in entries
            if entry.is_directory and is_deleted_directory(entry.name)
        ]

    def existing(self) -> set[tuple[str, int]]:
        """(topic, partition) of every directory that is named as a partition."""
        parsed = (
            parse_partition_directory(entry.name)
            for entry in self.files.entries(str(self.root))
            if entry.is_directory
        )
        return {one for one in parsed if one is not None}

    def note(self, log: PartitionLog, name: str, index: int) -> None:
        """What the next checkpoint shall say of a log that is open; for the loop's thread."""
        key = (name, index)
        self._recovery_points[key] = log.flushed_offset
        if log.log_start_offset > log.segments[0].base_offset:
            self._start_offsets[key] = log.log_start_offset
        else:
            self._start_offsets.pop(key, None)

    def keep_notes_of(self, names: set[str]) -> None:
        """Forget the others: notes of a deleted topic are wrong for the next of its name."""
        for notes in (self._recovery_points, self._start_offsets):
            for key in [key for key in notes if key[0] not in names]:
                del notes[key]

    def notes(self) -> tuple[Offsets, Offsets]:
        """Copies of what was noted, for `write_checkpoints` in another thread."""
        return dict(self._recovery_points), dict(self._start_offsets)

    def write_checkpoints(self, recovery_points: Offsets, start_offsets: Offsets) -> None:
        """Replace both checkpoints. Raises StorageError."""
        try:
            write_offsets(self.files, str(self.root), RECOVERY_POINT_FILE, recovery_points)
            write_offsets(self.files, str(self.root), LOG_START_OFFSET_FILE, start_offsets)
            self.files.sync_directory(str(self.root))
        except OSError as error:
            raise StorageError(f"checkpoints in {self.root} cannot be written: {error}") from error

    def _read_checkpoint(self, name: str) -> Offsets:
        try:
            return read_offsets(self.files, str(self.root), name)
        except CorruptFileError as error:
            logger.warning("%s; it is made anew", error)
            return {}

    def _set_aside_stray(self, directory: Path, topic_id: bytes) -> bool:
        """Whether the directory is there and this topic's; one of another topic is renamed."""
        if not self.files.exists(str(directory)):
            return False
        found = self._topic_id(directory)
        if found is None or found == topic_id:
            return found == topic_id
        target = directory.with_name(f"{directory.name}.{unique_hex()}{STRAY_SUFFIX}")
        logger.warning("%s belongs to another topic; it is set aside as %s", directory, target.name)
        self.files.rename(str(directory), str(target))
        self.files.sync_directory(str(self.root))
        return False

    def _topic_id(self, directory: Path) -> bytes | None:
        """The id noted in a directory; None where it is missing or damaged and proves nothing."""
        try:
            return read_topic_id(self.files, str(directory))
        except CorruptFileError as error:
            logger.warning("%s", error)
            return None

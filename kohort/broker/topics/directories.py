"""The data directory's partition directories: whose they are, and what becomes of them.

Blocking code. A directory belongs to a topic if it bears its name and its partition.metadata the
topic's id; one with another id is a left-over and is set aside, never served and never overwritten.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Final

from kohort.broker.config import TopicConfig
from kohort.broker.storage.checkpoints.leader_epochs import read_leader_epochs
from kohort.broker.storage.checkpoints.offset_checkpoint import (
    LOG_SIZE_FILE,
    LOG_START_OFFSET_COPY,
    LOG_START_OFFSET_FILE,
    NEWEST_EPOCH_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
    write_offsets,
)
from kohort.broker.storage.checkpoints.partition_metadata import FILE_NAME as TOPIC_ID_FILE
from kohort.broker.storage.checkpoints.partition_metadata import read_topic_id, write_topic_id
from kohort.broker.storage.errors import CorruptFileError, StorageError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import (
    deleted_directory,
    is_deleted_directory,
    parse_partition_directory,
    partition_directory,
)
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.metadata.store import TopicRecord
from kohort.broker.topics.partition import FIRST_LEADER_EPOCH

logger = logging.getLogger(__name__)

Offsets = dict[tuple[str, int], int]
"""An offset, or another number, by (topic, partition)."""

STRAY_SUFFIX: Final = "-stray"
"""Kafka's ending for the directory of a partition that it knows nothing of."""


class _Found(Enum):
    """What there is under the name of a partition's directory."""

    NOTHING = auto()
    OURS = auto()
    WITHOUT_ID = auto()
    """Whose it is cannot be read."""
    ANOTHER = auto()
    """It was another topic's."""


def unique_hex() -> str:
    """Sets apart the directories of deleted topics of one name."""
    return os.urandom(16).hex()


class PartitionDirectories:
    """The directories of one data directory, and what was noted about them at the last stop."""

    def __init__(self, files: FileSystem, root: Path, *, clean_shutdown: bool) -> None:
        self.files = files
        self.root = root
        self._clean_shutdown = clean_shutdown
        self.has_stale_notes = False
        """The checkpoints still have notes of deleted topics: they must be written before a name is
        used again."""
        self._recovery_points = self._read_checkpoint(RECOVERY_POINT_FILE)
        self._on_disk = set(self._recovery_points)
        """The logs that are in the recovery points' checkpoint, as it is on the disk."""
        self._writing = threading.Lock()
        self._start_offsets = self._read_checkpoint(LOG_START_OFFSET_FILE, LOG_START_OFFSET_COPY)
        self._sizes = self._read_checkpoint(LOG_SIZE_FILE) if clean_shutdown else {}
        self._leader_epochs = self._read_leader_epochs()

    def open_log(
        self, name: str, index: int, topic_id: bytes, config: TopicConfig, *, wall_ms: int
    ) -> PartitionLog:
        """Open or make the log of a partition. Raises StorageError."""
        directory = self.path(name, index)
        key = (name, index)
        try:
            found = self._set_aside_stray(directory, topic_id)
            # What was noted of another topic of the name says nothing about this one. A damaged id
            # is no other topic's: notes are forgotten before a name is used again.
            believed = found is not _Found.ANOTHER
            log = PartitionLog.open(
                directory,
                config,
                wall_ms=wall_ms,
                clean_shutdown=self._clean_shutdown,
                recovery_point=self._recovery_points.get(key, 0) if believed else 0,
                log_start_offset=self._start_offsets.get(key, 0) if believed else 0,
                noted_bytes=self._sizes.get(key) if believed else None,
                leader_epoch_max=self.leader_epoch(name, index),
                is_known=key in self._recovery_points,
                before_roll=partial(self._note_before_roll, key),
                files=self.files,
            )
            self._note_opened(key, log, was_noted=believed)
            if found is _Found.WITHOUT_ID:
                self._note_lost_id(directory, topic_id)
            elif found is not _Found.OURS:
                # The first flush forces it to disk, before any batch, along with the directory's
                # own name: a disk takes milliseconds for each of a topic's partitions.
                write_topic_id(self.files, str(directory), topic_id, sync=False)
                log.flush_first(TOPIC_ID_FILE)
        except OSError as error:
            raise StorageError(f"{directory} cannot be opened: {error}") from error
        return log

    def _note_lost_id(self, directory: Path, topic_id: bytes) -> None:
        try:
            write_topic_id(self.files, str(directory), topic_id, sync=True)
        except OSError as error:
            # A full disk must not keep a log from being read; the next start tries again.
            logger.warning("%s: the topic's id cannot be noted: %s", directory, error)

    def leader_epoch(self, name: str, index: int) -> int:
        """Leader epoch of a partition that is not open; known without a look at its directory."""
        if not self._leader_epochs:
            return FIRST_LEADER_EPOCH
        return self._leader_epochs.get((name, index), FIRST_LEADER_EPOCH)

    def path(self, name: str, index: int) -> Path:
        """Where a partition's log is."""
        return self.root / partition_directory(name, index)

    def exists(self, name: str, index: int) -> bool:
        """Whether a partition has a directory."""
        return self.files.exists(str(self.path(name, index)))

    def remains_of(self, topic: TopicRecord, *, is_name_free: bool) -> Iterator[Path]:
        """Directories of a deleted topic that still bear its name.

        Args:
            is_name_free: no other topic has it, whose a directory without an id might be.
        """
        of_topic = {topic.topic_id, None} if is_name_free else {topic.topic_id}
        for index in range(topic.partition_count):
            directory = self.path(topic.name, index)
            if self.files.exists(str(directory)) and self._topic_id(directory) in of_topic:
                yield directory

    def sync_names(self) -> None:
        """Force to disk which directories there are. Raises OSError."""
        self.files.sync_directory(str(self.root))

    def rename_deleted(self, directories: Iterable[Path]) -> list[Path]:
        """Free the names of a deleted topic's directories; the new paths are to be removed.

        `sync_names` must come before a name is used again: a power loss would bring the old
        directory back under it.
        """
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

    def note(
        self, log: PartitionLog, name: str, index: int, leader_epoch: int = FIRST_LEADER_EPOCH
    ) -> None:
        """What the next checkpoint shall say of a log that is open; for the loop's thread."""
        key = (name, index)
        if leader_epoch > FIRST_LEADER_EPOCH:
            self._leader_epochs[key] = leader_epoch
        self._recovery_points[key] = log.flushed_offset
        self._sizes[key] = log.size_bytes
        # Kafka leaves out those that the first segment's name tells. Until the directory is synced
        # a power loss may bring the segments before it back.
        if log.log_start_offset > 0:
            self._start_offsets[key] = log.log_start_offset
        else:
            self._start_offsets.pop(key, None)

    def keep_notes_of(self, names: set[str]) -> None:
        """Forget the others: notes of a deleted topic are wrong for the next of its name."""
        for notes in (
            self._recovery_points,
            self._start_offsets,
            self._sizes,
            self._leader_epochs,
        ):
            for key in [key for key in notes if key[0] not in names]:
                del notes[key]
                self.has_stale_notes = True

    def _note_opened(self, key: tuple[str, int], log: PartitionLog, *, was_noted: bool) -> None:
        """What the next checkpoint shall say of a log of which this one says nothing, or of another
        log of its name.
        """
        with self._writing:
            if not was_noted:
                self._on_disk.discard(key)
            if key not in self._on_disk:
                self._recovery_points[key] = log.flushed_offset

    def _note_before_roll(self, key: tuple[str, int]) -> None:
        """Have a log in the checkpoint before it has a second segment. Raises OSError.

        A power loss may take the end of one segment and leave the next one. A start ends the log
        there if it was noted: else Kafka's compaction may have left the gap. The checkpoint names
        all logs that are open, so that the next ones need not wait for the disk.
        """
        if key in self._on_disk:
            return
        with self._writing:
            points = dict(self._recovery_points)
            write_offsets(self.files, str(self.root), RECOVERY_POINT_FILE, points)
            self.files.sync_directory(str(self.root))
            self._on_disk = set(points)

    def notes(self) -> tuple[Offsets, Offsets]:
        """Copies of what was noted, for `write_checkpoints` in another thread."""
        return dict(self._recovery_points), dict(self._start_offsets)

    def write_checkpoints(self, recovery_points: Offsets, start_offsets: Offsets) -> None:
        """Replace both checkpoints. Raises StorageError."""
        try:
            with self._writing:
                # What was noted since then stays noted: a log may have rolled meanwhile.
                points = self._recovery_points | recovery_points
                write_offsets(self.files, str(self.root), RECOVERY_POINT_FILE, points)
                for name in (LOG_START_OFFSET_FILE, LOG_START_OFFSET_COPY):
                    write_offsets(self.files, str(self.root), name, start_offsets)
                self.files.sync_directory(str(self.root))
                self._on_disk = set(points)
            self.has_stale_notes = False
        except OSError as error:
            raise StorageError(f"checkpoints in {self.root} cannot be written: {error}") from error

    def write_last_notes(self) -> None:
        """Note what is true of the logs as long as all of them are closed. Raises OSError."""
        write_offsets(self.files, str(self.root), LOG_SIZE_FILE, self._sizes)
        write_offsets(self.files, str(self.root), NEWEST_EPOCH_FILE, self._leader_epochs)

    def _read_leader_epochs(self) -> Offsets:
        """The epochs above the first one of partitions that are not open.

        A client does not turn to a leader whose epoch is an earlier one than it knows, so that a
        partition may not wait until it is asked for. After an unclean stop all are opened; after
        a clean one of another release, or of Kafka, the partitions' own files are read, once.
        """
        if not self._clean_shutdown or self.files.exists(f"{self.root}/{NEWEST_EPOCH_FILE}"):
            return self._read_checkpoint(NEWEST_EPOCH_FILE)
        found = {}
        for name, index in self.existing():
            try:
                starts = read_leader_epochs(self.files, str(self.path(name, index)))
            except CorruptFileError:
                continue  # It is rebuilt when the partition is opened.
            if starts and starts[-1].epoch > FIRST_LEADER_EPOCH:
                found[name, index] = starts[-1].epoch
        return found

    def _read_checkpoint(self, name: str, copy: str | None = None) -> Offsets:
        """What a checkpoint says, or its copy where it is damaged or gone."""
        if copy is not None and not self.files.exists(f"{self.root}/{name}"):
            return self._read_checkpoint(copy)
        try:
            return read_offsets(self.files, str(self.root), name)
        except CorruptFileError as error:
            logger.warning("%s; it is made anew", error)
            return {} if copy is None else self._read_checkpoint(copy)

    def _set_aside_stray(self, directory: Path, topic_id: bytes) -> _Found:
        """Whose the directory is; one of another topic is renamed and is then not there."""
        if not self.files.exists(str(directory)):
            return _Found.NOTHING
        found = self._topic_id(directory)
        if found is None:
            return _Found.WITHOUT_ID
        if found == topic_id:
            return _Found.OURS
        target = directory.with_name(f"{directory.name}.{unique_hex()}{STRAY_SUFFIX}")
        logger.warning("%s belongs to another topic; it is set aside as %s", directory, target.name)
        self.files.rename(str(directory), str(target))
        self.files.sync_directory(str(self.root))
        return _Found.ANOTHER

    def _topic_id(self, directory: Path) -> bytes | None:
        """The id noted in a directory; None where it is missing or damaged and proves nothing."""
        try:
            return read_topic_id(self.files, str(directory))
        except CorruptFileError as error:
            logger.warning("%s", error)
            return None

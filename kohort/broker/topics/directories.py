"""The partition directories in the data directory: to which topic each belongs, and their removal.

Blocking code. A directory belongs to a topic if it has the topic's name, and the topic's id in its
partition.metadata. A directory with another id is renamed, and never served or overwritten.
"""

from __future__ import annotations

import logging
import os
import threading
from enum import Enum, auto
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

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
from kohort.broker.storage.layout import (
    LOG_SUFFIX,
    deleted_directory,
    is_deleted_directory,
    parse_partition_directory,
    partition_directory,
    split_file_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from kohort.broker.config import TopicConfig
    from kohort.broker.storage.filesystem import FileSystem
    from kohort.broker.storage.log.log import PartitionLog
    from kohort.broker.storage.metadata.store import TopicRecord

logger = logging.getLogger(__name__)

Offsets = dict[tuple[str, int], int]
"""Offsets, sizes or leader epochs by (topic, partition)."""

FIRST_LEADER_EPOCH: Final = 0
"""The leader epoch of a new partition. Kohort, a single broker, never increases a leader epoch; a
partition imported from a Kafka cluster keeps the last epoch of that cluster.
"""

STRAY_SUFFIX: Final = "-stray"
"""Kafka's suffix for the directory of an unknown partition."""


class _DirectoryOwner(Enum):
    NOTHING = auto()
    OURS = auto()
    WITHOUT_ID = auto()
    """A directory whose topic id cannot be read."""
    ANOTHER = auto()
    """The directory of another topic."""


def unique_hex() -> str:
    """Return a suffix that distinguishes directories of deleted topics with the same name."""
    return os.urandom(16).hex()


class PartitionDirectories:
    """The partition directories of one data directory, and the values of its checkpoints."""

    def __init__(self, files: FileSystem, root: Path, *, clean_shutdown: bool) -> None:
        self.files = files
        self.root = root
        self._clean_shutdown = clean_shutdown
        self.on_verified: Callable[[tuple[str, int], int], None] | None = None
        """Called while a partition is verified, with the partition as (topic, index) and the number
        of bytes verified since the last call.
        """
        self.has_stale_notes = False
        """Whether the checkpoints on disk contain deleted topics; if so, they must be rewritten
        before a name is reused.
        """
        self._recovery_points = self._read_checkpoint(RECOVERY_POINT_FILE)
        self._on_disk = set(self._recovery_points)
        """The logs that the recovery point checkpoint on disk lists."""
        self._writing = threading.Lock()
        self._start_offsets = self._read_checkpoint(LOG_START_OFFSET_FILE, LOG_START_OFFSET_COPY)
        self._sizes = self._read_checkpoint(LOG_SIZE_FILE) if clean_shutdown else {}
        self._leader_epochs = self._read_leader_epochs()

    def open_log(
        self, name: str, index: int, topic_id: bytes, config: TopicConfig, *, wall_ms: int
    ) -> PartitionLog:
        """Open or create the log of a partition. Raises StorageError."""
        # Imported for the first partition: 10 ms.
        from kohort.broker.storage.log.log import PartitionLog  # noqa: PLC0415
        from kohort.broker.storage.log.opening import OpeningTerms  # noqa: PLC0415

        directory = self.path(name, index)
        key = (name, index)
        on_verified = None if self.on_verified is None else partial(self.on_verified, key)
        try:
            owner = self._set_aside_stray(directory, topic_id)
            # Checkpoints of another topic of the same name do not apply. If the id is unreadable,
            # they do: before a name is reused, the checkpoints of the deleted topic are removed.
            believed = owner is not _DirectoryOwner.ANOTHER
            terms = OpeningTerms(
                wall_ms,
                self._clean_shutdown,
                recovery_point=self._recovery_points.get(key, 0) if believed else 0,
                log_start_offset=self._start_offsets.get(key, 0) if believed else 0,
                noted_bytes=self._sizes.get(key) if believed else None,
                leader_epoch_max=self.leader_epoch(name, index),
                is_known=key in self._recovery_points,
                before_roll=partial(self._note_before_roll, key),
                on_verified=on_verified,
            )
            log = PartitionLog.open(directory, config, terms, files=self.files)
            self._note_opened(key, log, was_noted=believed)
            if owner is _DirectoryOwner.WITHOUT_ID:
                self._note_lost_id(directory, topic_id)
            elif owner is not _DirectoryOwner.OURS:
                # The first flush writes the id to disk, before any batch, together with the
                # directory's own name: syncing both for each partition of a topic would take
                # milliseconds.
                write_topic_id(self.files, str(directory), topic_id, sync=False)
                log.flush_first(TOPIC_ID_FILE)
        except OSError as error:
            raise StorageError(f"{directory} cannot be opened: {error}") from error
        return log

    def _note_lost_id(self, directory: Path, topic_id: bytes) -> None:
        try:
            write_topic_id(self.files, str(directory), topic_id, sync=True)
        except OSError as error:
            # A full disk must not prevent reading a log; the next start tries again.
            logger.warning("%s: the topic's id cannot be stored: %s", directory, error)

    def leader_epoch(self, name: str, index: int) -> int:
        """Return the leader epoch of an unopened partition, without looking at its directory."""
        if not self._leader_epochs:
            return FIRST_LEADER_EPOCH
        return self._leader_epochs.get((name, index), FIRST_LEADER_EPOCH)

    def path(self, name: str, index: int) -> Path:
        return self.root / partition_directory(name, index)

    def exists(self, name: str, index: int) -> bool:
        return self.files.exists(str(self.path(name, index)))

    def unverified_bytes(self, name: str, index: int) -> int:
        """Return the size of a partition's segments beyond the recovery point, 0 if unknown."""
        try:
            entries = self.files.entries(f"{self.root}/{partition_directory(name, index)}")
        except OSError:
            return 0  # Opening the log reports the error.
        segments = sorted(
            (named[0], entry.size_bytes)
            for entry in entries
            if (named := split_file_name(entry.name)) and named[1] == LOG_SUFFIX
        )
        point = self._recovery_points.get((name, index), 0)
        flushed = sum(size for (_, size), (stop, _) in pairwise(segments) if stop <= point)
        return sum(size for _, size in segments) - flushed

    def remains_of(self, topic: TopicRecord, *, is_name_free: bool) -> Iterator[Path]:
        """Yield directories of a deleted topic that still have its name.

        Args:
            is_name_free: whether no other topic has the name; otherwise a directory without an id
                could belong to that topic.
        """
        of_topic = {topic.topic_id, None} if is_name_free else {topic.topic_id}
        for index in range(topic.partition_count):
            directory = self.path(topic.name, index)
            if self.files.exists(str(directory)) and self._topic_id(directory) in of_topic:
                yield directory

    def sync_names(self) -> None:
        """Flush the directory names to disk. Raises OSError."""
        self.files.sync_directory(str(self.root))

    def rename_deleted(self, directories: Iterable[Path]) -> list[Path]:
        """Free the names of a deleted topic's directories; return the new paths, to be removed.

        Call `sync_names` before a name is reused; otherwise a power failure could restore the old
        directory under the name.
        """
        renamed = []
        for directory in directories:
            parsed = parse_partition_directory(directory.name)
            assert parsed is not None, (
                f"{directory} does not have the name of a partition directory"
            )
            target = directory.with_name(deleted_directory(*parsed, unique_hex()))
            self.files.rename(str(directory), str(target))
            renamed.append(target)
        return renamed

    def remove(self, directories: Iterable[Path]) -> None:
        """Remove renamed directories; those for which this fails are removed at the next start."""
        for directory in directories:
            try:
                self.files.remove_tree(str(directory))
            except OSError as error:
                logger.warning("%s cannot be removed: %s", directory, error)

    def deleted(self) -> list[Path]:
        """Return directories of deleted partitions that an earlier process did not remove."""
        entries = self.files.entries(str(self.root))
        return [
            self.root / entry.name
            for entry in entries
            if entry.is_directory and is_deleted_directory(entry.name)
        ]

    def existing(self) -> set[tuple[str, int]]:
        parsed = (
            parse_partition_directory(entry.name)
            for entry in self.files.entries(str(self.root))
            if entry.is_directory
        )
        return {partition for partition in parsed if partition is not None}

    def note(
        self, log: PartitionLog, name: str, index: int, leader_epoch: int = FIRST_LEADER_EPOCH
    ) -> None:
        """Set the checkpoint values of an open log; to be called in the event loop's thread."""
        key = (name, index)
        if leader_epoch > FIRST_LEADER_EPOCH:
            self._leader_epochs[key] = leader_epoch
        self._recovery_points[key] = log.flushed_offset
        self._sizes[key] = log.size_bytes
        # Kafka omits an offset that the first segment's name implies. It is noted here: until the
        # directory is synced, a power failure may restore deleted segments.
        if log.log_start_offset > 0:
            self._start_offsets[key] = log.log_start_offset
        else:
            self._start_offsets.pop(key, None)

    def keep_notes_of(self, names: set[str]) -> None:
        """Drop the checkpoint values of topics that are not in `names` because they were deleted:
        the values must not apply to new topics of the same names.
        """
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
        """Set the recovery point of an opened log, unless the checkpoint on disk already lists the
        log. `was_noted`: False if the entries of this name belong to another topic.
        """
        with self._writing:
            if not was_noted:
                self._on_disk.discard(key)
            if key not in self._on_disk:
                self._recovery_points[key] = log.flushed_offset

    def _note_before_roll(self, key: tuple[str, int]) -> None:
        """Make sure that a log is in the checkpoint before it has a second segment. Raises OSError.

        A power failure may lose the end of a segment but keep the next segment. The next start
        detects that loss only in a log that the checkpoint lists: in any other log, Kafka's
        compaction may have left the gap. The checkpoint is written with all open logs, so that
        each need not write it before its own roll.
        """
        if key in self._on_disk:
            return
        with self._writing:
            points = dict(self._recovery_points)
            write_offsets(self.files, str(self.root), RECOVERY_POINT_FILE, points)
            self.files.sync_directory(str(self.root))
            self._on_disk = set(points)

    def notes(self) -> tuple[Offsets, Offsets]:
        """Return copies of the checkpoint values, for `write_checkpoints` in another thread."""
        return dict(self._recovery_points), dict(self._start_offsets)

    def write_checkpoints(self, recovery_points: Offsets, start_offsets: Offsets) -> None:
        """Replace the checkpoints of recovery points and log start offsets. Raises StorageError."""
        try:
            with self._writing:
                # Include logs that were added after `notes` made its copy: they may have rolled
                # meanwhile, see `_note_before_roll`.
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
        """Store the sizes and leader epochs of all logs, which must be closed. Raises OSError."""
        write_offsets(self.files, str(self.root), LOG_SIZE_FILE, self._sizes)
        write_offsets(self.files, str(self.root), NEWEST_EPOCH_FILE, self._leader_epochs)

    def _read_leader_epochs(self) -> Offsets:
        """Return leader epochs above FIRST_LEADER_EPOCH by partition, for partitions that are not
        open.

        Clients reject a leader epoch lower than one they know, so metadata needs the epoch even of
        an unopened partition. After an unclean shutdown all partitions are opened at the start.
        After a clean shutdown of another release, or of Kafka, the partitions' own files are read,
        once.
        """
        if not self._clean_shutdown or self.files.exists(f"{self.root}/{NEWEST_EPOCH_FILE}"):
            return self._read_checkpoint(NEWEST_EPOCH_FILE)
        from kohort.broker.storage.checkpoints.leader_epochs import (  # noqa: PLC0415 - as above.
            read_leader_epochs,
        )

        epochs = {}
        for name, index in self.existing():
            try:
                starts = read_leader_epochs(self.files, str(self.path(name, index)))
            except CorruptFileError:
                continue  # The file is rebuilt when the partition is opened.
            if starts and starts[-1].epoch > FIRST_LEADER_EPOCH:
                epochs[name, index] = starts[-1].epoch
        return epochs

    def _read_checkpoint(self, name: str, copy: str | None = None) -> Offsets:
        """Read a checkpoint; if it is damaged or missing, read its copy."""
        if copy is not None and not self.files.exists(f"{self.root}/{name}"):
            return self._read_checkpoint(copy)
        try:
            return read_offsets(self.files, str(self.root), name)
        except CorruptFileError as error:
            logger.warning("%s; a new one is created", error)
            return {} if copy is None else self._read_checkpoint(copy)

    def _set_aside_stray(self, directory: Path, topic_id: bytes) -> _DirectoryOwner:
        """Return a directory's owner; if that is another topic, rename it to free the name."""
        if not self.files.exists(str(directory)):
            return _DirectoryOwner.NOTHING
        found_id = self._topic_id(directory)
        if found_id is None:
            return _DirectoryOwner.WITHOUT_ID
        if found_id == topic_id:
            return _DirectoryOwner.OURS
        target = directory.with_name(f"{directory.name}.{unique_hex()}{STRAY_SUFFIX}")
        logger.warning("%s belongs to another topic; it is renamed to %s", directory, target.name)
        self.files.rename(str(directory), str(target))
        self.files.sync_directory(str(self.root))
        return _DirectoryOwner.ANOTHER

    def _topic_id(self, directory: Path) -> bytes | None:
        """Return the topic id stored in a directory; None if it is missing or damaged."""
        try:
            return read_topic_id(self.files, str(directory))
        except CorruptFileError as error:
            logger.warning("%s", error)
            return None

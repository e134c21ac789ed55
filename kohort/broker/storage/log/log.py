"""The log of one partition: a directory of segments, appended at its end and read anywhere.

The path of a batch: `producers.check` (is it next in sequence?), `append` (to the page cache, at
the end of the active segment), `flush` (to disk, in any thread), and `read`. Guarantees of a log:

- Batches get consecutive offsets and are stored unchanged, except for offset and leader epoch.
- Batches below `flushed_offset` survive a power failure; the others survive a kill of the process.
- No read returns bytes that differ from what was appended. A damaged batch gives CORRUPT_MESSAGE,
  and damage to any other file is detected and repaired from the batches.
- A failed append is undone. If that fails as well, or an fsync fails, the content of the disk is
  unknown: `failed` is set and everything raises StorageError until the log is reopened.

Blocking code for one thread, except `flush` and `remove_deleted_files`. Time is an argument. Every
method may raise StorageError.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from kohort.broker.config.topic import TopicConfig
from kohort.broker.storage.errors import OffsetOutOfRangeError, StorageError
from kohort.broker.storage.filesystem import OS_FILES, FileSystem
from kohort.broker.storage.layout import deleted_directory, parse_partition_directory
from kohort.broker.storage.log.appending import LogAppender
from kohort.broker.storage.log.opening import OpenedLog, OpeningTerms
from kohort.broker.storage.log.reading import LogReader
from kohort.broker.storage.log.transactions import AbortedTransactions
from kohort.broker.storage.segment.cleaned_segment import CleanedSegment
from kohort.broker.storage.segment.segment import LogSegment, with_ends
from kohort.broker.storage.segment.times import load_max_timestamp
from kohort.protocol.records.batch import NO_TIMESTAMP


class PartitionLog(LogAppender, LogReader):
    @classmethod
    def open(
        cls,
        directory: Path,
        config: TopicConfig,
        terms: OpeningTerms,
        *,
        files: FileSystem = OS_FILES,
    ) -> Self:
        """Open the log in a directory, which is created if necessary."""
        path = str(directory)
        is_compacted = "compact" in config.cleanup_policy
        try:
            opened = OpenedLog(files, path, terms, is_compacted=is_compacted)
            log = cls(files, path, config, terms, opened)
            log.finish_recovery()
        except OSError as error:
            raise StorageError(f"{path} cannot be opened: {error}") from error
        return log

    def __repr__(self) -> str:
        return f"PartitionLog({self.path}, {self.log_start_offset} to {self.log_end_offset})"

    @property
    def directory(self) -> Path:
        return Path(self.path)

    @property
    def aborted(self) -> AbortedTransactions:
        return AbortedTransactions(self)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def lost_offsets(self) -> int:
        """The number of offsets found missing when the log was opened."""
        return sum(lost.stop - lost.start for lost in self.lost)

    @property
    def failed(self) -> bool:
        return self.failure is not None

    def flush(self) -> None:
        """Flush everything appended before the call to disk. Any thread may call this.

        StorageError if that fails; the log has then failed permanently.
        """
        self.check_usable()
        end_offset = self.log_end_offset
        # Read after `end_offset`, so that all batches below it are in these segments even if
        # another thread starts a new segment now.
        segments = self.segments
        try:
            self.flusher.flush(segments, end_offset)
        except OSError as error:
            self.fail(f"{self.path}: what was appended may be lost: {error}")
            raise StorageError(f"{self.path} cannot be flushed: {error}") from error

    def flush_first(self, name: str) -> None:
        """Have the next `flush` write a file of the log's directory to disk before any batch."""
        self.flusher.note_file(self.path, name)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        """Return (epoch, end offset) as in OffsetForLeaderEpoch; None for an unknown epoch."""
        self.check_usable()
        return self.epochs.end_offset(leader_epoch, self.log_end_offset)

    def delete_records_before(self, offset: int, *, wall_ms: int) -> int:
        """Advance the log start to an offset and delete segments below it.

        Returns the new log start offset. Raises OffsetOutOfRangeError beyond the end of the log.
        """
        self.check_usable()
        if not 0 <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(f"{offset} is not in {self!r}")
        self.log_start_offset = max(self.log_start_offset, offset)
        self._delete_expired(wall_ms, self.log_start_offset, by_policy=False)
        return self.log_start_offset

    def enforce_retention(self, *, wall_ms: int, up_to_offset: int) -> int:
        """Delete the oldest segments as configured; return how many.

        Args:
            up_to_offset: the high watermark; segments with batches at or above it are kept.
        """
        self.check_usable()
        return self._delete_expired(wall_ms, up_to_offset, by_policy=True)

    def replace_segments(
        self, replaced: Sequence[LogSegment], cleaned: CleanedSegment, *, wall_ms: int
    ) -> bool:
        """Replace adjacent segments by their compacted form.

        Returns False, having changed nothing, if one of them has been deleted since. On
        StorageError either nothing has changed, or the log has failed; if the replacement is
        committed, the next opening completes it.
        """
        self.check_usable()
        if not self.holds(replaced):
            return False
        is_decided = False
        try:
            self.note_checksums(without=replaced)
            cleaned.decide()
            is_decided = True
            self.install(replaced, cleaned, wall_ms)
        except OSError as error:
            if is_decided or not cleaned.discard():
                self.fail(f"{self.path}: compacted segments cannot be installed: {error}")
            raise StorageError(f"{self.path}: {error}") from error
        return True

    def remove_deleted_files(self, *, wall_ms: int) -> int:
        """Unlink files of segments deleted file.delete.delay.ms ago; return how many."""
        return self.deleted.remove_due(wall_ms, self.config.file_delete_delay_ms)

    def close(self) -> None:
        """Make everything durable, so that the next start needs no scan.

        StorageError if that fails: the shutdown is then not clean. Closing a log that has failed
        only closes its descriptors.
        """
        try:
            if self.is_usable:
                self._save()
        except OSError as error:
            self.fail(f"{self.path} cannot be closed: {error}")
            raise StorageError(f"{self.path} cannot be closed: {error}") from error
        finally:
            self.is_usable = False
            for segment in self.segments:
                segment.close()

    def delete(self, unique_hex: str) -> Path:
        """Rename the directory; the caller has to remove it under its new path.

        The log cannot be used any more. A power failure may undo the renaming until the parent
        directory is synced.
        """
        name = parse_partition_directory(self.directory.name)
        assert name is not None, f"{self.path} does not have the name of a partition directory"
        target = self.directory.with_name(deleted_directory(*name, unique_hex))
        self.fail(f"{self.path} is deleted")
        for segment in self.segments:
            segment.is_deleted = True
            segment.close()
        with self.errors_as("the directory cannot be renamed"):
            self.files.rename(self.path, str(target))
        return target

    def _delete_expired(self, wall_ms: int, up_to_offset: int, *, by_policy: bool) -> int:
        with self.errors_as("segments cannot be deleted"):
            count = expired_segments(
                self.segments,
                self.config if by_policy else None,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                up_to_offset=up_to_offset,
                wall_ms=wall_ms,
            )
            if count == len(self.segments):
                self.roll(wall_ms=wall_ms)
            if count:
                self.keep_producers(self.segments[count].base_offset)
            for _ in range(count):
                self.delete_first_segment(wall_ms)
            if count:
                self.epochs.truncate_before(self.log_start_offset)
        return count

    def _save(self) -> None:
        active = self.active
        self.mend_snapshots()  # The next start trusts the snapshots.
        if active.size_bytes and (not self.snapshots or self.snapshots[-1] != self.log_end_offset):
            self.write_snapshot()  # The next start derives the end of the log from its name.
        if active.size_bytes:
            active.complete_indexes()
        self.note_checksums(is_closing=True)
        self.flusher.flush(self.segments, self.log_end_offset, with_indexes=True)


def expired_segments(
    segments: Sequence[LogSegment],
    config: TopicConfig | None,
    *,
    log_start_offset: int,
    log_end_offset: int,
    up_to_offset: int,
    wall_ms: int,
) -> int:
    """Return how many of the oldest segments may be deleted, by Kafka's rules: possibly all.

    A segment may be deleted if it is below the log start; with cleanup.policy=delete also if its
    latest record is older than retention.ms, or if the remaining segments have at least
    retention.bytes.

    Args:
        config: None if only the log start is to be considered.
        up_to_offset: segments with batches at or above it are kept.
    """
    surplus_bytes = -1
    if config is not None and "delete" in config.cleanup_policy and config.retention_bytes >= 0:
        surplus_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for segment, next_offset in with_ends(segments, log_end_offset):
        is_unused = segment is segments[-1] and not segment.size_bytes
        if next_offset > up_to_offset or is_unused:
            break
        surplus_bytes -= segment.size_bytes
        is_expired = next_offset <= log_start_offset or surplus_bytes >= 0
        if not is_expired and not _is_old(segment, config, wall_ms):
            break
        count += 1
    return count


def _is_old(segment: LogSegment, config: TopicConfig | None, wall_ms: int) -> bool:
    """Whether the latest timestamp, or without one `created_ms`, is older than retention.ms."""
    if config is None or "delete" not in config.cleanup_policy or config.retention_ms < 0:
        return False
    latest = load_max_timestamp(segment)
    if latest is None:
        return False
    written_ms = segment.created_ms if latest == NO_TIMESTAMP else latest
    return wall_ms - written_ms > config.retention_ms

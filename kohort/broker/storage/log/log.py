"""The log of one partition: a directory of segments, appended at its end and read anywhere.

The path of a batch: `check_producer` (is it next in sequence?), `append` (to the page cache, at the
end of the active segment), `flush` (to disk, in any thread), and `read`. Guarantees of a log:

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

from kohort.broker.core.partition.producers import AppendedBatch, ProducerState
from kohort.broker.storage.config import LogConfig
from kohort.broker.storage.errors import (
    OffsetOutOfRangeError,
    StorageError,
)
from kohort.broker.storage.filesystem import Buffer, FileSystem, OsFileSystem
from kohort.broker.storage.layout import deleted_directory, parse_partition_directory
from kohort.broker.storage.log.appending import LogAppender, Written
from kohort.broker.storage.log.detached import Detached
from kohort.broker.storage.log.opening import OpenedLog, OpeningTerms
from kohort.broker.storage.log.queries import expired_segments, first_at_or_after, latest_record
from kohort.broker.storage.log.reading import (
    detached_latest,
    detached_read,
    detached_time_lookup,
    detached_timestamp_at,
    find_range,
    read_on,
    segment_number,
)
from kohort.broker.storage.log.state import LogState
from kohort.broker.storage.log.transactions import AbortedTransactions
from kohort.broker.storage.segment.cleaned_segment import CleanedSegment
from kohort.broker.storage.segment.indexes import TimestampOffset
from kohort.broker.storage.segment.read import BatchData, is_cached
from kohort.broker.storage.segment.segment import LogSegment
from kohort.protocol.records.batch import BatchHeader

OS_FILES = OsFileSystem()
"""The files of this machine; one limit on open descriptors for all logs."""


class PartitionLog:
    def __init__(self, state: LogState, config: LogConfig) -> None:
        """Use `open` instead."""
        self.config: LogConfig = config
        """May be replaced while the log is open."""
        self._state = state
        self._appender = LogAppender(state)
        self.aborted = AbortedTransactions(state)
        """The aborted transactions of the log."""

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        terms: OpeningTerms,
        *,
        files: FileSystem = OS_FILES,
    ) -> Self:
        """Open the log in a directory, which is created if necessary."""
        path = str(directory)
        is_compacted = "compact" in config.cleanup_policy
        try:
            opened = OpenedLog(files, path, terms, is_compacted=is_compacted)
            state = LogState(files, path, terms, opened)
            state.finish_recovery()
        except OSError as error:
            raise StorageError(f"{path} cannot be opened: {error}") from error
        return cls(state, config)

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory}, {self.log_start_offset} to {self.log_end_offset})"

    @property
    def directory(self) -> Path:
        return Path(self._state.directory)

    @property
    def files(self) -> FileSystem:
        return self._state.files

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._state.start_offset

    @property
    def log_end_offset(self) -> int:
        return self._state.end_offset

    @property
    def opened_end_offset(self) -> int:
        return self._state.opened_end_offset

    @property
    def rewrite_count(self) -> int:
        """Changes when stored batches are replaced or removed."""
        return self._state.rewrite_count

    @property
    def flushed_offset(self) -> int:
        """The recovery point: every batch below it survives a power failure."""
        return self._state.flusher.flushed_offset

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """Oldest first; the last one is active."""
        return self._state.segments

    @property
    def newest_epoch(self) -> int:
        """The leader epoch when it was opened, -1 for none; no append may have a lower one."""
        return self._state.newest_epoch

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._state.segments)

    @property
    def lost_offsets(self) -> int:
        """How many offsets were found missing when the log was opened."""
        return sum(lost.stop - lost.start for lost in self._state.lost)

    @property
    def failed(self) -> bool:
        return self._state.failure is not None

    @property
    def failure(self) -> str | None:
        """Why it failed, None if it has not."""
        return self._state.failure

    @property
    def producers(self) -> ProducerState:
        """The producers of this partition, loaded on first use."""
        state = self._state
        state.check_usable()
        loaded = state.loaded_producers
        if loaded is not None:
            return loaded
        with state.errors_as("producers cannot be read"):
            return state.producers

    @property
    def loaded_producers(self) -> ProducerState | None:
        """The producers, None if they have not been loaded yet."""
        return self._state.loaded_producers

    def check_producer(
        self,
        header: BatchHeader,
        *,
        is_first_of_epoch_zero: bool = False,
        is_numbered: bool = True,
    ) -> AppendedBatch | None:
        """Return the batch in the log that this one duplicates; None if it may be appended.

        Raises KafkaError as :meth:`ProducerState.check` does.
        """
        return self.producers.check(
            header, is_first_of_epoch_zero=is_first_of_epoch_zero, is_numbered=is_numbered
        )

    def append(
        self, batch: Buffer, header: BatchHeader, *, leader_epoch: int, wall_ms: int
    ) -> Written:
        """Write one validated batch to the page cache; `flush` makes it durable.

        On StorageError the batch is not in the log; `failed` says whether another one may be tried.

        Args:
            batch: exactly one batch; the kernel copies it.
            header: the header of that batch.
        """
        return self._appender.append(batch, header, self.config, leader_epoch, wall_ms)

    def roll(self, *, wall_ms: int) -> None:
        """Start a new segment, unless the active one is empty."""
        self._appender.roll(wall_ms)

    def flush(self) -> None:
        """Flush everything appended before the call to disk. For any thread.

        StorageError if that fails; the log has then failed permanently.
        """
        state = self._state
        state.check_usable()
        end_offset = state.end_offset
        # Read after the offset: everything below it is in these segments, even if one is rolled
        # now.
        segments = state.segments
        try:
            state.flusher.flush(segments, end_offset)
        except OSError as error:
            state.fail(f"{state.directory}: what was appended may be lost: {error}")
            raise StorageError(f"{state.directory} cannot be flushed: {error}") from error

    def flush_first(self, name: str) -> None:
        """Flush a file of the log's directory before any batch that is flushed from now on."""
        self._state.flusher.note_file(self._state.directory, name)

    def read(self, offset: int, max_bytes: int, *, up_to_offset: int, min_one: bool) -> bytes:
        """Return whole batches, starting with the one that contains `offset`, all from one segment.

        b"" at the end, and if the first one is longer than `max_bytes` and not `min_one`. Raises
        OffsetOutOfRangeError, CorruptBatchError, StorageError.

        Args:
            up_to_offset: batches that reach or follow it are left out.
        """
        data = self._read(offset, max_bytes, up_to_offset, min_one=min_one, as_range=False)
        assert isinstance(data, bytes)
        return data

    def read_cached(
        self, offset: int, max_bytes: int, *, up_to_offset: int, min_one: bool, as_range: bool
    ) -> BatchData | None:
        """Read as `read` does, if that is quick: nothing to verify, and no disk access; else None.

        Args:
            as_range: return large data as a range of a file, to be sent from there.
        """
        state = self._state
        self._check_readable(offset)
        if as_range:
            found = find_range(state, offset, max_bytes, up_to_offset=up_to_offset)
            if found is not None:
                return found
        if not state.active.is_recent(offset):
            with state.errors_as("cannot be read"):
                segment = state.segments[segment_number(state.segments, offset)]
                if not is_cached(segment, offset, max_bytes):
                    return None
        return self._read(offset, max_bytes, up_to_offset, min_one=min_one, as_range=as_range)

    def _read(
        self, offset: int, max_bytes: int, up_to_offset: int, *, min_one: bool, as_range: bool
    ) -> BatchData:
        state = self._state
        self._check_readable(offset)
        end_offset = state.end_offset
        segments = state.segments[segment_number(state.segments, offset) :]
        with state.errors_as("cannot be read"):
            data = read_on(
                segments,
                offset,
                max_bytes,
                end_offset=end_offset,
                limit=min(up_to_offset, end_offset),
                min_one=min_one,
                epoch_at=state.epochs.epoch_at,
                as_range=as_range,
            )
        return b"" if data is None else data

    def detached_read(
        self, offset: int, max_bytes: int, *, up_to_offset: int, min_one: bool, as_range: bool
    ) -> Detached[BatchData | None]:
        """Return `read` for another thread; if that returns None, call `read` itself."""
        state = self._state
        self._check_readable(offset)
        return detached_read(
            state, offset, max_bytes, up_to_offset=up_to_offset, min_one=min_one, as_range=as_range
        )

    def detached_offset_for_timestamp(self, timestamp: int) -> Detached[TimestampOffset | None]:
        """Return `offset_for_timestamp` for another thread, up to the end of the log."""
        self._state.check_usable()
        return detached_time_lookup(self._state, timestamp)

    def detached_max_timestamp(self) -> Detached[TimestampOffset | None]:
        self._state.check_usable()
        return detached_latest(self._state)

    def detached_timestamp_at(self, offset: int) -> Detached[int | None]:
        """Return a query for another thread: the timestamp of the first record at or after
        `offset`; NO_TIMESTAMP if it has none, None if there is no such record.
        """
        self._state.check_usable()
        return detached_timestamp_at(self._state, offset)

    def offset_for_timestamp(self, timestamp: int, *, up_to_offset: int) -> TimestampOffset | None:
        """Return the first record whose timestamp is at least `timestamp`; None if there is none
        below `up_to_offset`.

        Raises CorruptBatchError if damage hides the answer.
        """
        state = self._state
        state.check_usable()
        with state.errors_as("timestamps cannot be read"):
            entry = first_at_or_after(state.segments, timestamp, state.start_offset)
        return entry if entry is not None and entry.offset < up_to_offset else None

    def max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the latest timestamp; None if no record has one.

        Raises CorruptBatchError if damage hides the answer.
        """
        self._state.check_usable()
        with self._state.errors_as("timestamps cannot be read"):
            return latest_record(self._state.segments)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        """Return (epoch, end offset) as in OffsetForLeaderEpoch; None for an unknown epoch."""
        self._state.check_usable()
        return self._state.epochs.end_offset(leader_epoch, self._state.end_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of an offset, existing or next; -1 if unknown."""
        return self._state.epochs.epoch_at(offset)

    def delete_records_before(self, offset: int, *, wall_ms: int) -> int:
        """Advance the log start to an offset and delete segments below it.

        Returns the new log start offset. Raises OffsetOutOfRangeError beyond the end of the log.
        """
        state = self._state
        state.check_usable()
        if not 0 <= offset <= state.end_offset:
            raise OffsetOutOfRangeError(f"{offset} is not in {self!r}")
        state.start_offset = max(state.start_offset, offset)
        self._delete_expired(wall_ms, state.start_offset, by_policy=False)
        return state.start_offset

    def enforce_retention(self, *, wall_ms: int, up_to_offset: int) -> int:
        """Delete the oldest segments as configured; return how many.

        Args:
            up_to_offset: segments that reach or follow it are kept; the high watermark.
        """
        self._state.check_usable()
        return self._delete_expired(wall_ms, up_to_offset, by_policy=True)

    def replace_segments(
        self, replaced: Sequence[LogSegment], cleaned: CleanedSegment, *, wall_ms: int
    ) -> bool:
        """Replace adjacent segments by their compacted form.

        Returns False, having changed nothing, if one of them has been deleted since. On
        StorageError either nothing has changed, or the log has failed; a decided replacement is
        completed when it is reopened.
        """
        state = self._state
        state.check_usable()
        if not state.holds(replaced):
            return False
        is_decided = False
        try:
            state.note_checksums(without=replaced)
            cleaned.decide()
            is_decided = True
            state.replace_segments(replaced, cleaned, wall_ms)
        except OSError as error:
            if is_decided or not cleaned.discard():
                state.fail(f"{state.directory}: compacted segments cannot be installed: {error}")
            raise StorageError(f"{state.directory}: {error}") from error
        return True

    def remove_deleted_files(self, *, wall_ms: int) -> int:
        """Unlink files of segments deleted file.delete.delay.ms ago; return how many."""
        return self._state.deleted.remove_due(wall_ms, self.config.file_delete_delay_ms)

    def close(self) -> None:
        """Make everything durable, so that the next start needs no scan.

        StorageError if that fails: the shutdown is then not clean. Closing a log that has failed
        only closes its descriptors.
        """
        state = self._state
        try:
            if state.is_usable:
                self._save()
        except OSError as error:
            state.fail(f"{state.directory} cannot be closed: {error}")
            raise StorageError(f"{state.directory} cannot be closed: {error}") from error
        finally:
            state.is_usable = False
            for segment in state.segments:
                segment.close()

    def delete(self, unique_hex: str) -> Path:
        """Rename the directory; the caller has to remove it under its new path.

        The log cannot be used any more. A power failure may undo the renaming until the parent
        directory is synced.
        """
        state = self._state
        name = parse_partition_directory(self.directory.name)
        assert name is not None, f"{self.directory} does not have the name of a partition directory"
        target = self.directory.with_name(deleted_directory(*name, unique_hex))
        state.fail(f"{state.directory} is deleted")
        for segment in state.segments:
            segment.is_deleted = True
            segment.close()
        with state.errors_as("the directory cannot be renamed"):
            state.files.rename(state.directory, str(target))
        return target

    def _check_readable(self, offset: int) -> None:
        state = self._state
        state.check_usable()
        if not state.start_offset <= offset <= state.end_offset:
            raise OffsetOutOfRangeError(f"{offset} is not in {self!r}")

    def _delete_expired(self, wall_ms: int, up_to_offset: int, *, by_policy: bool) -> int:
        state = self._state
        with state.errors_as("segments cannot be deleted"):
            count = expired_segments(
                state.segments,
                self.config if by_policy else None,
                log_start_offset=state.start_offset,
                log_end_offset=state.end_offset,
                up_to_offset=up_to_offset,
                wall_ms=wall_ms,
            )
            if count == len(state.segments):
                self._appender.roll(wall_ms)
            if count:
                state.keep_producers(state.segments[count].base_offset)
            for _ in range(count):
                state.delete_first_segment(wall_ms)
            if count:
                state.epochs.truncate_before(state.start_offset)
        return count

    def _save(self) -> None:
        state = self._state
        active = state.active
        state.mend_snapshots()  # The next start trusts the snapshots.
        if active.size_bytes and (not state.snapshots or state.snapshots[-1] != state.end_offset):
            state.write_snapshot()  # The next start derives the end of the log from its name.
        if active.size_bytes:
            active.complete_indexes()
        state.note_checksums(is_closing=True)
        state.flusher.flush(state.segments, state.end_offset, with_indexes=True)

"""The state shared by the components of one open log: files, start and end, usability.

Data that most logs never need is loaded on first use: a broker may have ten thousand logs of which
few are used.
"""

import logging
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kohort.broker.config.topic import TopicConfig
from kohort.broker.core.partition.producers import ProducerState
from kohort.broker.storage.checkpoints.leader_epochs import FILE_NAME as EPOCHS_FILE_NAME
from kohort.broker.storage.checkpoints.producer_log import CorrectIndex, ProducerLog
from kohort.broker.storage.checkpoints.producer_snapshot import write_snapshot
from kohort.broker.storage.checkpoints.segment_checksums import FILE_NAME as CHECKSUMS_FILE
from kohort.broker.storage.checkpoints.segment_checksums import Sums
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import (
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from kohort.broker.storage.log.detached import Detached
from kohort.broker.storage.log.opening import OpenedLog, OpeningTerms
from kohort.broker.storage.segment.cleaned_segment import CleanedSegment
from kohort.broker.storage.segment.segment import LogSegment, with_ends


class LogFlusher:
    """Tracks how much of a log is on disk. `note_*` may be called while a flush runs.

    Flushes run in any thread, one at a time. A flush covers the batches appended before it starts;
    later ones are left to the next flush. A failed fsync is never retried: the kernel marks the
    pages as clean after reporting the error once, so the next fsync would succeed without having
    written them.
    """

    __slots__ = ("_directories", "_files", "_lock", "_paths", "flushed_offset")

    def __init__(self, files: FileSystem, flushed_offset: int) -> None:
        self.flushed_offset = flushed_offset
        """Every batch below this offset is on disk."""
        self._files = files
        self._lock = threading.Lock()
        # A dict keeps the order, so that a flush is reproducible.
        self._paths: dict[str, None] = {}
        self._directories: dict[str, None] = {}

    def note_name(self, directory: str) -> None:
        """Record that names in a directory changed: the next `flush` must sync the directory."""
        self._directories[directory] = None

    def note_file(self, directory: str, name: str) -> None:
        """Record that a checkpoint file was replaced: the next `flush` must make it durable before
        later batches.
        """
        self._paths[f"{directory}/{name}"] = None
        self._directories[directory] = None

    def flush(
        self, segments: Sequence[LogSegment], end_offset: int, *, with_indexes: bool = False
    ) -> None:
        """Flush the segments to disk. Raises OSError: the log must then be abandoned.

        Args:
            end_offset: log end, read before `segments`, so that they have all batches below it.
            with_indexes: whether to include the indexes of the active segment.
        """
        with self._lock:
            for path in self._take(self._paths):
                self.sync_file(path)
            # The oldest first: then a power failure leaves no gap.
            for segment in segments[_durable_count(segments) :]:
                self._sync(segment, with_indexes=with_indexes)
            for directory in self._take(self._directories):
                self._files.sync_directory(directory)
            self.flushed_offset = max(self.flushed_offset, end_offset)

    def sync_file(self, path: str) -> None:
        """Flush a file to disk, if it exists. Raises OSError."""
        file = self._files.file(path)
        try:
            file.sync()
        except FileNotFoundError:
            return  # A snapshot whose segment has been deleted already.
        finally:
            file.close()

    @staticmethod
    def _sync(segment: LogSegment, *, with_indexes: bool) -> None:
        try:
            segment.sync(with_indexes=with_indexes)
        except FileNotFoundError:
            if not segment.is_deleted:  # Deleted by retention, since the segments were listed.
                raise

    @staticmethod
    def _take(noted: dict[str, None]) -> list[str]:
        """Return and clear the names recorded so far; later ones are left to the next flush."""
        taken = []
        while noted:
            taken.append(noted.popitem()[0])
        return taken


def _durable_count(segments: Sequence[LogSegment]) -> int:
    """Return how many segments from the start of the log were synced and need no flush."""
    for count in range(len(segments), 0, -1):
        if segments[count - 1].is_synced and segments[count - 1].is_sealed:
            return count
    return 0


logger = logging.getLogger(__name__)


class LogState:
    def __init__(
        self,
        files: FileSystem,
        path: str,
        config: TopicConfig,
        terms: OpeningTerms,
        opened: OpenedLog,
    ) -> None:
        self.files = files
        self.path = path
        """The directory of the log."""
        self.config = config
        """The log's config; may be replaced while the log is open."""
        self.terms = terms
        self.segments = tuple(opened.segments)
        """The segments, oldest first; the last is active. Replaced as a whole, because
        other threads read the tuple.
        """
        self.log_end_offset = opened.end_offset
        self.opened_end_offset = opened.end_offset
        """The log end when the log was opened: earlier processes wrote all batches below it."""
        self.rewrite_count = 0
        """Number of times stored batches were replaced or removed, which may invalidate earlier
        reads."""
        first = self.segments[0].base_offset
        self.log_start_offset = min(max(terms.log_start_offset, first), opened.end_offset)
        self.snapshots = opened.snapshots
        self.checksums = opened.checksums
        sums = opened.checksums.sums
        self._snapshot_sums = {
            offset: value
            for offset in opened.snapshots
            if (value := sums.get(file_name(offset, SNAPSHOT_SUFFIX))) is not None
        }
        """The checksums of snapshots by offset; a snapshot may have none."""
        self.lost = opened.lost
        self.deleted = opened.deleted
        self.is_tail_known = opened.is_tail_known
        """Whether the end of the active segment has been compared with `end_offset`."""
        self.flusher = LogFlusher(files, opened.end_offset)
        self.is_usable = True
        """Whether the log has neither failed nor been closed."""
        self.failure: str | None = None
        self.epochs = opened.epochs
        self.newest_epoch = opened.newest_epoch
        """The leader epoch when the log was opened, -1 for none; no append may have a lower one."""
        self.loaded_producers: ProducerState | None = None
        """The producers, None if they have not been loaded yet."""
        self._recovered_from = opened.recovered_from
        self.has_aborted = any(segment.aborted is not None for segment in opened.segments)
        """Whether some segment has, or had, an index of aborted transactions."""
        if opened.is_new:
            self.flusher.note_name(path.rpartition("/")[0])
            self.flusher.note_name(path)

    @property
    def active(self) -> LogSegment:
        return self.segments[-1]

    def segment_number(self, offset: int) -> int:
        """Return the index of the segment to which an offset belongs."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        return bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1

    def end_of_segment(self, number: int) -> int:
        """Return the end offset of `segments[number]`."""
        if number + 1 == len(self.segments):
            return self.log_end_offset
        return self.segments[number + 1].base_offset

    @property
    def flushed_offset(self) -> int:
        """The recovery point: every batch below it survives a power failure."""
        return self.flusher.flushed_offset

    @property
    def producers(self) -> ProducerState:
        """The producers of the log, loaded on first use. Raises StorageError."""
        self.check_usable()
        if self.loaded_producers is not None:
            return self.loaded_producers
        with self.errors_as("producers cannot be read"):
            return self.load()

    def load(self) -> ProducerState:
        """Load the producers on first use; correct the snapshots if necessary. Raises OSError."""
        if self.loaded_producers is None:
            files = self.producer_log()
            if self._recovered_from is None:
                self.loaded_producers = files.load()
            else:
                producers = files.load_after_unclean_stop(self._recovered_from)
                self._sync_snapshots(files.written)
                self.loaded_producers = producers
                self.flusher.note_name(self.path)
                self.has_aborted = any(segment.aborted is not None for segment in self.segments)
                self.try_note_checksums()
        return self.loaded_producers

    def producer_log(self) -> ProducerLog:
        """Return the present snapshots and segments, from which the producers can be loaded."""
        return self._producer_log(self.snapshots, self.segments, self.log_end_offset)

    def detached_aborted(self, segment: LogSegment) -> Detached[CorrectIndex]:
        """Return a job that computes a transaction index's correct content in another thread."""
        number = self.segments.index(segment)
        segments, snapshots = self.segments[: number + 1], self.snapshots[:]
        end_offset = self.end_of_segment(number)
        return Detached(
            self.path,
            segments,
            lambda twins: self._producer_log(snapshots, twins, end_offset).correct_index(twins[-1]),
        )

    def _producer_log(
        self, snapshots: list[int], segments: Sequence[LogSegment], end_offset: int
    ) -> ProducerLog:
        return ProducerLog(
            self.files,
            self.path,
            snapshots,
            segments,
            end_offset=end_offset,
            wall_ms=self.terms.wall_ms,
            snapshot_sums=self._snapshot_sums,
        )

    def finish_recovery(self) -> None:
        """After an unclean shutdown, flush the snapshots beyond the recovery point, and load the
        producers: recovery has just read their batches into memory. Raises OSError.

        If the recovery point is within a segment, loading would also read that segment's batches
        below it, so the producers are loaded on first use instead.
        """
        point = self._recovered_from
        if point is None:
            return
        self._drop_checksums(point)
        if self._beyond(point)[0].base_offset >= point:
            self.load()
        # A killed process may have left these snapshots in the page cache only.
        self._sync_snapshots([offset for offset in self.snapshots if offset >= point])

    def _beyond(self, point: int) -> list[LogSegment]:
        """Return the segments with batches beyond a recovery point, and the active one."""
        return [
            segment
            for segment, end in with_ends(self.segments, self.log_end_offset)
            if end > point or segment is self.active
        ]

    def _drop_checksums(self, point: int) -> None:
        """Remove the checksums of segments beyond the recovery point: they may predate the
        batches, but the next start would trust them, because its recovery point will be the present
        log end.
        """
        try:
            self.note_checksums(without=self._beyond(point))
        except OSError as error:
            logger.warning("%s: segments.crc cannot be written: %s", self.path, error)
        if self.checksums.is_replaced:
            self.flusher.sync_file(f"{self.path}/{CHECKSUMS_FILE}")
            self.files.sync_directory(self.path)

    def assign_epoch(self, leader_epoch: int) -> None:
        """Start a new leader epoch at the end of the log. Raises OSError."""
        assert leader_epoch > self.epochs.latest, "leader epochs must increase"
        self.epochs.assign(leader_epoch, self.log_end_offset)
        self.flusher.note_file(self.path, EPOCHS_FILE_NAME)

    def write_snapshot(self) -> None:
        """Write a snapshot of the producers at the end of the log. Raises OSError."""
        end_offset = self.log_end_offset
        producers = self.load().snapshot()
        self._snapshot_sums[end_offset] = write_snapshot(
            self.files, self.path, end_offset, producers
        )
        if not self.snapshots or self.snapshots[-1] != end_offset:
            self.snapshots.append(end_offset)
        # Made durable by the next flush: when retention has deleted the beginning of the log, the
        # snapshot cannot be rebuilt from batches.
        self.flusher.note_file(self.path, file_name(end_offset, SNAPSHOT_SUFFIX))

    def note_checksums(
        self, *, without: Sequence[LogSegment] = (), is_closing: bool = False
    ) -> None:
        """Write the checksums of all verified files; they are flushed before any later flush of
        batches. Raises OSError.

        Args:
            without: segments that are about to change.
            is_closing: whether to include the active segment, which is then complete.
        """
        sums: Sums = {}
        for segment in self.segments if is_closing else self.segments[:-1]:
            if segment in without:
                continue
            name = file_name(segment.base_offset, TRANSACTION_INDEX_SUFFIX)
            if segment.aborted is None:
                sums[name] = None
            elif (checksum := segment.aborted.checksum()) is not None:
                sums[name] = checksum
            # The CRC is read from the last two segments only: reading thousands would take long.
            first_crc = segment.first_crc(reads=segment in self.segments[-2:])
            if first_crc is not None:
                sums[file_name(segment.base_offset, LOG_SUFFIX)] = first_crc
        for offset in self.snapshots:
            if offset in self._snapshot_sums:
                sums[file_name(offset, SNAPSHOT_SUFFIX)] = self._snapshot_sums[offset]
        if self.checksums.replace(sums):
            self.flusher.note_file(self.path, CHECKSUMS_FILE)

    def try_note_checksums(self) -> None:
        """Like `note_checksums`; if that fails, the next start reads the batches instead."""
        try:
            self.note_checksums()
        except OSError as error:
            logger.warning("%s: segments.crc cannot be written: %s", self.path, error)

    def keep_producers(self, base_offset: int) -> None:
        """Make the producer state at `base_offset` durable before the segments below are deleted.
        Afterwards only the snapshot at `base_offset` has the epochs, sequences and open
        transactions of producers without batches. Raises OSError.
        """
        self.mend_snapshots()
        # Without producers nothing is lost, and snapshots below the flushed offset are on disk.
        if self.loaded_producers and base_offset >= self.flusher.flushed_offset:
            self._sync_snapshots([base_offset])

    def mend_snapshots(self) -> None:
        """Rebuild damaged snapshots from batches after an unclean shutdown. Raises OSError."""
        if self._recovered_from is not None and len(self.segments) > 1:
            self.load()

    def _sync_snapshots(self, offsets: Sequence[int]) -> None:
        """Flush snapshots to disk. Raises OSError; the log has then failed permanently."""
        if not offsets:
            return
        try:
            for offset in offsets:
                self.flusher.sync_file(f"{self.path}/{file_name(offset, SNAPSHOT_SUFFIX)}")
            self.files.sync_directory(self.path)
        except OSError as error:
            self.fail(f"{self.path}: its producers may be lost: {error}")
            raise

    def delete_first_segment(self, wall_ms: int) -> None:
        """Delete the oldest segment and its producer snapshot. Raises OSError."""
        first, following = self.segments[:2]
        self.deleted.delete_segment(first, wall_ms)
        self.segments = self.segments[1:]
        self.log_start_offset = max(self.log_start_offset, following.base_offset)
        self.rewrite_count += 1
        self.snapshots[:] = [offset for offset in self.snapshots if offset > first.base_offset]
        self.flusher.note_name(self.path)

    def holds(self, neighbours: Sequence[LogSegment]) -> bool:
        """Whether these segments are all still in the log, and sealed."""
        if not neighbours or neighbours[0] not in self.segments[:-1]:
            return False
        first = self.segments.index(neighbours[0])
        behind = first + len(neighbours)
        return behind < len(self.segments) and self.segments[first:behind] == tuple(neighbours)

    def install(
        self, replaced: Sequence[LogSegment], cleaned: CleanedSegment, wall_ms: int
    ) -> None:
        """Replace segments by their compacted form, after the replacement was committed. An OSError
        may leave it incomplete.
        """
        first = self.segments.index(replaced[0])
        behind = first + len(replaced)
        for segment in replaced:
            # The snapshot of the first replaced segment is also valid for the new segment, which
            # starts at the same offset.
            keeps_snapshot = segment is replaced[0]
            self.deleted.delete_segment(segment, wall_ms, with_snapshot=not keeps_snapshot)
            if not keeps_snapshot and segment.base_offset in self.snapshots:
                self.snapshots.remove(segment.base_offset)
        segment = cleaned.put_in_place()
        segment.created_ms = max(segment.created_ms for segment in replaced)
        segment.following_offset = self.segments[behind].base_offset
        self.segments = (*self.segments[:first], segment, *self.segments[behind:])
        self.rewrite_count += 1
        self.has_aborted = self.has_aborted or segment.aborted is not None
        self.flusher.note_name(self.path)
        self.try_note_checksums()

    def check_usable(self) -> None:
        """Raise StorageError if the log has failed or is closed."""
        if not self.is_usable:
            raise StorageError(self.failure or f"{self.path} is closed")

    def fail(self, reason: str) -> None:
        self.is_usable = False
        if self.failure is None:
            self.failure = reason

    @contextmanager
    def errors_as(self, consequence: str) -> Iterator[None]:
        """Convert OSError to StorageError; the log stays usable."""
        try:
            yield
        except OSError as error:
            raise StorageError(f"{self.path}: {consequence}: {error}") from error

"""Opening the log of a partition: cheap after a clean shutdown, thorough after any other.

After a clean shutdown the name of the latest producer snapshot is the end of the log, so neither
logs nor indexes are read; the first append compares this offset with the end of the file. After an
unclean shutdown the segments beyond the recovery point are verified
(:mod:`kohort.broker.storage.log.recovery`). In both cases missing batches are detected if other
data proves that they existed.

A .log that is missing, empty or truncated between two batches looks like an intact log. Other data
proves otherwise: the recovery point and the log start offset (the log had reached both), the name
of the latest producer snapshot and the size of all .log files at a clean shutdown, indexes without
a .log, and the start of the next segment. Offsets are never reused: if the end is missing, the log
continues after it.

Segments follow each other without gaps, also in a log that Kohort has compacted. Kafka's compaction
leaves gaps: in a compacted topic, a gap alone does not prove a loss.
"""

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from kohort.broker.storage.checkpoints.leader_epochs import (
    EpochRun,
    LeaderEpochs,
    believable_epochs,
    read_leader_epochs,
)
from kohort.broker.storage.errors import CorruptBatchError, CorruptFileError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name
from kohort.broker.storage.log.directory import DeletedFiles, scan_directory
from kohort.broker.storage.log.recovery import find_end, recover_segment
from kohort.broker.storage.segment.segment import LogSegment

logger = logging.getLogger(__name__)


class LostOffsets(NamedTuple):
    start: int
    stop: int
    """The first offset after the lost range."""


class OpeningTerms(NamedTuple):
    """Facts about a log that are known before it is opened."""

    wall_ms: int
    clean_shutdown: bool
    """Whether the last shutdown closed every log; if so, nothing is scanned."""
    recovery_point: int = 0
    """After an unclean shutdown, only data at or above this offset is scanned."""
    log_start_offset: int = 0
    """The stored log start offset, 0 if none is stored; the first segment may start later."""
    noted_bytes: int | None = None
    """Size of all .log files when the log was closed, if known; fewer bytes now mean lost data."""
    leader_epoch_max: int = (1 << 31) - 1
    """The current leader epoch, if known. A batch with a later epoch counts as damaged."""
    is_known: bool = True
    """Whether Kohort opened the log before; otherwise Kafka's compaction may have left gaps."""
    before_roll: Callable[[], None] | None = None
    """Called before a second or later segment is created. May raise OSError."""
    on_verified: Callable[[int], None] | None = None
    """Called during recovery with the number of bytes verified since the last call."""


class OpenedLog:
    """A log as it was opened, after recovery if that was necessary."""

    def __init__(
        self, files: FileSystem, directory: str, terms: OpeningTerms, *, is_compacted: bool
    ) -> None:
        """Open the log; `is_compacted`: whether its present cleanup.policy compacts. Raises
        OSError.
        """
        self._files = files
        self._directory = directory
        self._terms = terms
        self._may_have_gaps = is_compacted or not terms.is_known
        """Whether Kafka may have compacted the log."""
        self.is_new = not files.exists(directory)
        """Whether the directory did not exist before."""
        if self.is_new:
            files.make_directory(directory)
        content = scan_directory(files, directory)
        self.segments = content.segments
        """The segments of the log, at least one; the last one is active."""
        self.snapshots = content.snapshots
        self.checksums = content.checksums
        self._orphans = content.orphans
        self._proven = self._proven_end()
        self.deleted = DeletedFiles(files)
        for segment, following in pairwise(self.segments):
            segment.is_sealed = segment.is_synced = True
            segment.following_offset = following.base_offset
        self.epochs = load_leader_epochs(files, directory, self.segments, terms.leader_epoch_max)
        self.newest_epoch = self.epochs.latest
        """The latest leader epoch before recovery truncates the log: clients may know it."""
        self.end_offset = self._proven
        self.is_tail_known = True
        """Whether the end of the active segment has been verified."""
        self.recovered_from: int | None = None
        """The offset from which recovery has verified the log; None if there was no recovery."""
        self.lost: list[LostOffsets] = []
        """The detected ranges of lost offsets."""
        if self.segments:
            self._find_end()
        else:
            self._begin_empty()
        self._note_first_crcs()
        self._report()
        self._remove_stray_snapshots()

    def _proven_end(self) -> int:
        """Return an offset that the end of the log had provably reached.

        Snapshots count only after a clean shutdown: after a power failure, one may describe
        batches that never reached the disk, and therefore were never acknowledged.
        """
        terms = self._terms
        last_snapshot = self.snapshots[-1] if terms.clean_shutdown and self.snapshots else 0
        last_base = self.segments[-1].base_offset if self.segments else -1
        reached = [end for base_offset, end in self._orphans.items() if base_offset > last_base]
        return max(terms.recovery_point, terms.log_start_offset, last_snapshot, *reached)

    def _is_short(self) -> bool:
        """Whether the segments have fewer bytes in total than a clean shutdown recorded."""
        noted_bytes = self._terms.noted_bytes
        return noted_bytes is not None and (
            sum(segment.size_bytes for segment in self.segments) < noted_bytes
        )

    def _begin_empty(self) -> None:
        """Begin with an empty segment after the proven end, because no batches exist."""
        start_offset = self._terms.log_start_offset
        if self._proven > start_offset:
            self.lost.append(LostOffsets(start_offset, self._proven))
        self.segments.append(
            LogSegment.create(self._files, self._directory, self._proven, self._terms.wall_ms)
        )

    def _find_end(self) -> None:
        """Verify untrusted data, and determine the offset of the next batch."""
        terms, proven = self._terms, self._proven
        self.is_tail_known = False
        end_offset = self._clean_end() if terms.clean_shutdown else None
        self._find_lost_ranges()
        if end_offset is None:
            is_clean = terms.clean_shutdown
            point = self.segments[-1].base_offset if is_clean else terms.recovery_point
            self.recovered_from = point
            self.epochs.defer()
            end_offset = self._recover(point)
            try:
                self.epochs.save()
            except OSError as error:
                # Only logged: the next start can read the epochs from the batches.
                logger.warning(
                    "%s: the leader epochs cannot be written: %s", self._directory, error
                )
            self._files.sync_directory(self._directory)
            self.newest_epoch = max(self.newest_epoch, self.epochs.latest)
        self.end_offset = end_offset
        found = self._found_end(end_offset)
        if found < proven:
            # The batches end before `proven`: the first append detects that, and starts a new
            # segment at `proven`.
            self.end_offset, self.is_tail_known = proven, False
            if max(found, terms.log_start_offset) < proven:
                self.lost.append(LostOffsets(max(found, terms.log_start_offset), proven))

    def _find_lost_ranges(self) -> None:
        """Detect lost ranges before the end; after a clean shutdown only if there are signs of
        loss.
        """
        may_have_gaps = self._may_have_gaps
        up_to_offset = self._terms.recovery_point
        if self._terms.clean_shutdown:
            up_to_offset = self.segments[-1].base_offset
            if self._is_short():
                may_have_gaps = False
            elif not self._orphans:
                return
        first = self.segments[0].base_offset
        start_offset = self._terms.log_start_offset
        before = [offset for offset in self._orphans if start_offset <= offset < first]
        if before:
            self.lost.append(LostOffsets(min(before), first))
        for segment, following in pairwise(self.segments):
            behind = following.base_offset
            if behind > up_to_offset:
                break
            end = find_end(segment)
            segment.close()
            if end is None or end >= behind:
                continue
            # If Kafka may have left gaps, only an index without its .log proves a loss.
            if may_have_gaps and not any(end <= offset < behind for offset in self._orphans):
                continue
            self.lost.append(LostOffsets(end, behind))

    def _found_end(self, end_offset: int) -> int:
        """Return the end of the log's batches: `end_offset`, or the end found in the active segment
        if it is shorter than a clean shutdown recorded.
        """
        active = self.segments[-1]
        if not self._terms.clean_shutdown or (
            active.size_bytes and not self._orphans and not self._is_short()
        ):
            return end_offset
        found = find_end(active)
        return end_offset if found is None else found

    def _clean_end(self) -> int | None:
        """Return the log's end after a clean shutdown; None if it is unknown because of damage."""
        active = self.segments[-1]
        if active.size_bytes == 0:
            return active.base_offset
        if self.snapshots and self.snapshots[-1] > active.base_offset:
            return self.snapshots[-1]
        return find_end(active)

    def _recover(self, recovery_point: int) -> int:
        """Verify data beyond the recovery point, and truncate the log where the damage begins.

        Returns the end offset. `is_tail_known` is then true if the active segment ends with a good
        batch.
        """
        segments, epochs, terms = self.segments, self.epochs, self._terms
        end_offset, self.is_tail_known = segments[0].base_offset, True
        for number, segment in enumerate(segments):
            following = segments[number + 1] if number + 1 < len(segments) else None
            if following is not None and following.base_offset <= recovery_point:
                continue
            recovered = recover_segment(
                segment, recovery_point, epochs, terms.leader_epoch_max, terms.on_verified
            )
            end_offset, self.is_tail_known = recovered.end_offset, recovered.is_end_valid
            if following is None or following.base_offset == end_offset:
                continue
            is_orphaned = end_offset in self._orphans
            if end_offset < following.base_offset and (
                is_orphaned or end_offset < recovery_point or not terms.is_known
            ):
                # This gap was not caused by a power failure, so the segments after it are kept.
                if is_orphaned or not self._may_have_gaps:
                    self.lost.append(LostOffsets(end_offset, following.base_offset))
                continue
            for late in segments[number + 1 :]:
                text = "%r starts beyond the end of the log at offset %d, and is deleted"
                logger.warning(text, late, end_offset)
                self.deleted.delete_segment(late, terms.wall_ms)
                if late.base_offset in self.snapshots:
                    self.snapshots.remove(late.base_offset)
            del segments[number + 1 :]
            break
        segments[-1].is_sealed = segments[-1].is_synced = False
        segments[-1].following_offset = None
        epochs.truncate_from(end_offset)
        return end_offset

    def _note_first_crcs(self) -> None:
        """Take the CRCs of segments' first batches from segments.crc, for `check_identity`."""
        terms, sums = self._terms, self.checksums.sums
        *sealed, active = self.segments
        # Above the recovery point the CRCs in segments.crc may be older than the segments.
        compared = [
            segment
            for segment, following in zip(sealed, self.segments[1:], strict=True)
            if terms.clean_shutdown or following.base_offset <= terms.recovery_point
        ]
        if terms.clean_shutdown and self.recovered_from is None and active.size_bytes:
            # segments.crc lists the active segment only after a clean shutdown. The CRC does not
            # apply if recovery has truncated the segment.
            compared.append(active)
        for segment in compared:
            segment.note_first_crc(sums.get(file_name(segment.base_offset, LOG_SUFFIX)))

    def _report(self) -> None:
        """Log one line for each lost range, and for each missing .log outside of these ranges."""
        for offset in self._orphans:
            if not any(hole.start <= offset < hole.stop for hole in self.lost):
                logger.error(
                    "%s: the .log of the segment at %d is missing; how much is lost is unknown",
                    self._directory,
                    offset,
                )
        for hole in self.lost:
            logger.error(
                "%s: offsets %d to %d are lost: the files next to the log prove that they"
                " existed, but their batches are missing",
                self._directory,
                hole.start,
                hole.stop - 1,
            )

    def _remove_stray_snapshots(self) -> None:
        """Remove all snapshots but those at the start of a segment and the latest one."""
        bases = {segment.base_offset for segment in self.segments}
        usable = [offset for offset in self.snapshots if offset <= self.end_offset]
        kept = [offset for offset in usable if offset in bases or offset == usable[-1]]
        for offset in set(self.snapshots).difference(kept):
            self._files.remove(f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")
        self.snapshots[:] = kept


def load_leader_epochs(
    files: FileSystem, directory: str, segments: Sequence[LogSegment], leader_epoch_max: int
) -> LeaderEpochs:
    """Load a log's leader epochs from their file, or else from the batches. Raises OSError."""
    try:
        starts = read_leader_epochs(files, directory)
    except CorruptFileError as error:
        logger.warning("%s; it is rebuilt from the batches", error)
        starts = None
    if starts is not None:
        return LeaderEpochs(files, directory, starts)
    runs: list[EpochRun] = []
    for segment in segments:
        _collect_epochs(segment, runs)
    starts = believable_epochs(runs, leader_epoch_max)
    epochs = LeaderEpochs(files, directory, starts)
    if starts:
        try:
            epochs.write()
        except OSError as error:
            # A full disk must not prevent reading a log; the next start tries again.
            logger.warning("%s: the leader epochs cannot be written: %s", directory, error)
    return epochs


def _collect_epochs(segment: LogSegment, runs: list[EpochRun]) -> None:
    try:
        for _, header in segment.walk(0, segment.base_offset):
            epoch = header.partition_leader_epoch
            if runs and runs[-1].epoch == epoch:
                runs[-1] = runs[-1]._replace(batch_count=runs[-1].batch_count + 1)
            else:
                runs.append(EpochRun(epoch, header.base_offset, 1))
    except CorruptBatchError as error:
        logger.warning("%s: %s", segment.path(LOG_SUFFIX), error)

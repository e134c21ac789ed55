"""Opening the log of a partition: cheap after a clean shutdown, thorough after any other.

After a clean shutdown the name of the latest producer snapshot is the end of the log, so neither
logs nor indexes are read; the first append compares it with the end of the file. After an unclean
shutdown the segments beyond the recovery point are verified
(:mod:`kohort.broker.storage.log.recovery`). In both cases missing batches are detected where
something proves that they existed.

A .log that is missing, empty or truncated between two batches looks like an intact log. Other data
proves otherwise: the recovery point and the log start offset (there was a log up to both), the name
of the latest producer snapshot and the size of all .log files at a clean shutdown, indexes without
a .log, and the start of the next segment. Offsets are never reused: if the end is missing, the log
continues after it.

Segments follow each other without gaps, also in a log that was compacted here. Kafka's compaction
leaves gaps: in a compacted topic, a gap alone proves nothing.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from kohort.broker.storage.checkpoints.leader_epochs import (
    EpochRun,
    LeaderEpochs,
    believable_epochs,
    read_leader_epochs,
)
from kohort.broker.storage.checkpoints.segment_checksums import SegmentChecksums
from kohort.broker.storage.errors import CorruptBatchError, CorruptFileError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name
from kohort.broker.storage.log.directory import DeletedFiles, DirectoryContent, scan_directory
from kohort.broker.storage.log.recovery import find_end, recover_segment
from kohort.broker.storage.segment.segment import LogSegment

logger = logging.getLogger(__name__)


class LostOffsets(NamedTuple):
    start: int
    stop: int
    """The first offset after the lost range."""


def proven_end(
    content: DirectoryContent, *, recovery_point: int, log_start_offset: int, clean_shutdown: bool
) -> int:
    """Return an offset that the end of the log had provably reached.

    A snapshot proves it only after a clean shutdown: after a power failure it may exist although
    the batches it describes never reached the disk, and were never acknowledged.
    """
    last_snapshot = content.snapshots[-1] if clean_shutdown and content.snapshots else 0
    last_base = content.segments[-1].base_offset if content.segments else -1
    reached = [end for base_offset, end in content.orphans.items() if base_offset > last_base]
    return max(recovery_point, log_start_offset, last_snapshot, *reached)


def is_short(content: DirectoryContent, noted_bytes: int | None) -> bool:
    """Whether a segment has fewer bytes than a clean shutdown recorded."""
    return noted_bytes is not None and (
        sum(segment.size_bytes for segment in content.segments) < noted_bytes
    )


def lost_inside(
    content: DirectoryContent,
    *,
    log_start_offset: int,
    up_to_offset: int,
    may_have_gaps: bool,
) -> list[LostOffsets]:
    """Return the missing ranges before any segment that starts at or below `up_to_offset`. Raises
    OSError.

    Examines the end of each of these segments.

    Args:
        may_have_gaps: then only an index without its .log proves a loss.
    """
    lost = []
    first = content.segments[0].base_offset
    before = [offset for offset in content.orphans if log_start_offset <= offset < first]
    if before:
        lost.append(LostOffsets(min(before), first))
    for segment, following in pairwise(content.segments):
        behind = following.base_offset
        if behind > up_to_offset:
            break
        end = find_end(segment)
        segment.close()
        if end is None or end >= behind:
            continue
        if may_have_gaps and not any(end <= offset < behind for offset in content.orphans):
            continue
        lost.append(LostOffsets(end, behind))
    return lost


def report(directory: str, lost: Sequence[LostOffsets], orphans: Iterable[int]) -> None:
    """Log one line for each range, and for each missing .log that is in none of them."""
    for offset in orphans:
        if not any(hole.start <= offset < hole.stop for hole in lost):
            logger.error(
                "%s: the .log of the segment at %d is missing; the loss is unknown",
                directory,
                offset,
            )
    for hole in lost:
        logger.error(
            "%s: offsets %d to %d are lost: the files next to the log prove that they"
            " existed, but their batches are missing",
            directory,
            hole.start,
            hole.stop - 1,
        )


class OpeningTerms(NamedTuple):
    """Facts about a log that are known before it is opened."""

    clean_shutdown: bool
    recovery_point: int
    """Everything below is on disk."""
    log_start_offset: int
    leader_epoch_max: int
    """No batch can have been written in a later epoch."""
    wall_ms: int
    noted_bytes: int | None = None
    """Size of all .log files when they were closed cleanly, if recorded."""
    is_known: bool = True
    """Whether this broker has opened the log before; if not, Kafka may have written it."""
    may_have_gaps: bool = False
    """Whether Kafka may have compacted it."""
    before_roll: Callable[[], None] | None = None
    """Called before a segment is started after another one. May raise OSError."""
    on_verified: Callable[[int], None] | None = None
    """Called with numbers of bytes that recovery has verified."""


@dataclass(slots=True, eq=False)
class OpenedLog:
    segments: list[LogSegment]
    """The segments of the log, at least one; the last one is active."""
    snapshots: list[int]
    checksums: SegmentChecksums
    epochs: LeaderEpochs
    deleted: DeletedFiles
    is_new: bool
    """Whether the directory has just been created."""
    newest_epoch: int
    """The latest epoch before truncation: clients may have learnt of it."""
    end_offset: int = 0
    is_tail_known: bool = False
    """Whether the end of the active segment has been verified."""
    recovered_from: int | None = None
    """Data at or beyond this offset was not trusted, and has been verified."""
    lost: list[LostOffsets] = field(default_factory=list)
    """The losses that were detected."""


def open_log(files: FileSystem, directory: str, terms: OpeningTerms) -> OpenedLog:
    """Open a log, recovering it if necessary. Raises OSError."""
    is_new = not files.exists(directory)
    if is_new:
        files.make_directory(directory)
    if is_new:
        content = DirectoryContent(SegmentChecksums(files, directory))
    else:
        content = scan_directory(files, directory)
    proven = proven_end(
        content,
        recovery_point=terms.recovery_point,
        log_start_offset=terms.log_start_offset,
        clean_shutdown=terms.clean_shutdown,
    )
    for segment, following in pairwise(content.segments):
        segment.is_sealed = segment.is_synced = True
        segment.following_offset = following.base_offset
    epochs = LeaderEpochs(files, directory)
    if not is_new:
        epochs = load_leader_epochs(files, directory, content.segments, terms.leader_epoch_max)
    opened = OpenedLog(
        content.segments,
        content.snapshots,
        content.checksums,
        epochs,
        DeletedFiles(files),
        is_new,
        epochs.latest,
    )
    if content.segments:
        _find_end(opened, files, directory, content, terms, proven)
    else:
        _begin_empty(opened, files, directory, terms, proven)
    for segment, following in pairwise(opened.segments):
        # Above the recovery point the list may be older than the segment.
        if terms.clean_shutdown or following.base_offset <= terms.recovery_point:
            name = file_name(segment.base_offset, LOG_SUFFIX)
            segment.note_first_crc(content.checksums.sums.get(name))
    active = opened.segments[-1]
    if terms.clean_shutdown and opened.recovered_from is None and active.size_bytes:
        # Only a clean shutdown lists the active segment; the start after any other one removes it
        # from the list. The checksum does not apply if recovery has truncated the segment.
        active.note_first_crc(content.checksums.sums.get(file_name(active.base_offset, LOG_SUFFIX)))
    report(directory, opened.lost, content.orphans)
    _remove_stray_snapshots(files, directory, content, opened.end_offset)
    return opened


def _begin_empty(
    opened: OpenedLog, files: FileSystem, directory: str, terms: OpeningTerms, proven: int
) -> None:
    """Start over, because there are no batches, or none are left."""
    if proven > terms.log_start_offset:
        opened.lost.append(LostOffsets(terms.log_start_offset, proven))
    opened.segments.append(LogSegment.create(files, directory, proven, terms.wall_ms))
    opened.end_offset, opened.is_tail_known = proven, True


def _find_end(
    opened: OpenedLog,
    files: FileSystem,
    directory: str,
    content: DirectoryContent,
    terms: OpeningTerms,
    proven: int,
) -> None:
    """Verify untrusted data, and determine the offset of the next batch."""
    end_offset = _clean_end(content) if terms.clean_shutdown else None
    _look_inside(opened, content, terms)
    if end_offset is None:
        point = content.segments[-1].base_offset if terms.clean_shutdown else terms.recovery_point
        opened.recovered_from = point
        epochs = opened.epochs
        epochs.defer()
        end_offset = _recover(opened, content, terms, point)
        try:
            epochs.save()
        except OSError as error:
            # The next start can read the epochs from the batches.
            logger.warning("%s: the leader epochs cannot be written: %s", directory, error)
        files.sync_directory(directory)
        opened.newest_epoch = max(opened.newest_epoch, epochs.latest)
    found = _found_end(content, terms, end_offset)
    opened.end_offset = end_offset
    if found < proven:
        # The first append finds a different end, and continues in a new segment.
        opened.end_offset, opened.is_tail_known = proven, False
        if max(found, terms.log_start_offset) < proven:
            opened.lost.append(LostOffsets(max(found, terms.log_start_offset), proven))


def _look_inside(opened: OpenedLog, content: DirectoryContent, terms: OpeningTerms) -> None:
    """Detect losses before the end; after a clean shutdown only if something indicates them."""
    may_have_gaps = terms.may_have_gaps
    up_to_offset = terms.recovery_point
    if terms.clean_shutdown:
        up_to_offset = content.segments[-1].base_offset
        if is_short(content, terms.noted_bytes):
            may_have_gaps = False
        elif not content.orphans:
            return
    opened.lost += lost_inside(
        content,
        log_start_offset=terms.log_start_offset,
        up_to_offset=up_to_offset,
        may_have_gaps=may_have_gaps,
    )


def _found_end(content: DirectoryContent, terms: OpeningTerms, end_offset: int) -> int:
    """Return the end of the batches; from stored data unless that proves that bytes are missing."""
    if not terms.clean_shutdown or (
        content.segments[-1].size_bytes
        and not content.orphans
        and not is_short(content, terms.noted_bytes)
    ):
        return end_offset
    found = find_end(content.segments[-1])
    return end_offset if found is None else found


def _clean_end(content: DirectoryContent) -> int | None:
    """Return the end of a log that was closed; None if its files contradict that."""
    active = content.segments[-1]
    if active.size_bytes == 0:
        return active.base_offset
    if content.snapshots and content.snapshots[-1] > active.base_offset:
        return content.snapshots[-1]
    return find_end(active)


def _recover(
    opened: OpenedLog, content: DirectoryContent, terms: OpeningTerms, recovery_point: int
) -> int:
    """Verify data beyond the recovery point and truncate the log before damage.

    Returns the end offset. The tail is known then if the active segment ends with a good batch.
    """
    segments, epochs = content.segments, opened.epochs
    end_offset, opened.is_tail_known = segments[0].base_offset, True
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        if following is not None and following.base_offset <= recovery_point:
            continue
        recovered = recover_segment(
            segment, recovery_point, epochs, terms.leader_epoch_max, terms.on_verified
        )
        end_offset, opened.is_tail_known = recovered.end_offset, recovered.is_end_valid
        if following is None or following.base_offset == end_offset:
            continue
        is_orphaned = end_offset in content.orphans
        if end_offset < following.base_offset and (
            is_orphaned or end_offset < recovery_point or not terms.is_known
        ):
            # Not caused by a power failure: no reason to discard the data after it.
            if is_orphaned or not terms.may_have_gaps:
                opened.lost.append(LostOffsets(end_offset, following.base_offset))
            continue
        for late in segments[number + 1 :]:
            text = "%r starts beyond the end of the log at offset %d, and is deleted"
            logger.warning(text, late, end_offset)
            opened.deleted.delete_segment(late, terms.wall_ms)
            if late.base_offset in content.snapshots:
                content.snapshots.remove(late.base_offset)
        del segments[number + 1 :]
        break
    segments[-1].is_sealed = segments[-1].is_synced = False
    segments[-1].following_offset = None
    epochs.truncate_from(end_offset)
    return end_offset


def _remove_stray_snapshots(
    files: FileSystem, directory: str, content: DirectoryContent, end_offset: int
) -> None:
    """Keep the snapshots that belong to segments, and the latest one."""
    bases = {segment.base_offset for segment in content.segments}
    usable = [offset for offset in content.snapshots if offset <= end_offset]
    kept = [offset for offset in usable if offset in bases or offset == usable[-1]]
    for offset in set(content.snapshots).difference(kept):
        files.remove(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")
    content.snapshots[:] = kept


def load_leader_epochs(
    files: FileSystem, directory: str, segments: Sequence[LogSegment], leader_epoch_max: int
) -> LeaderEpochs:
    """Load the epochs of a log from its file, or else from its batches. Raises OSError."""
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

"""Detects missing batches: the proof that they existed, and their offsets.

A .log that is missing, empty or truncated between two batches looks like an intact log. Other data
proves otherwise: the recovery point and the log start offset (there was a log up to both), the name
of the latest producer snapshot and the size of all .log files at a clean shutdown, indexes without
a .log, and the start of the next segment. Offsets are never reused: if the end is missing, the log
continues after it.

Segments follow each other without gaps, also in a log that was compacted here. Kafka's compaction
leaves gaps: in a compacted topic, a gap alone proves nothing.
"""

import logging
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from kohort.broker.storage.log.directory import DirectoryContent
from kohort.broker.storage.log.recovery import find_end

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

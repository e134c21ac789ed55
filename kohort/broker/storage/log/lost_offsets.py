"""Batches that are gone: what proves it, and which offsets they had.

A .log that is missing, empty or cut between two batches looks like a log in which nothing is wrong.
What was noted beside it proves otherwise: the recovery point and the log's start (below both there
was a log), the name of the newest producer snapshot and the size of all .log files at a clean stop,
indexes whose .log is not there, and the place where the next segment begins. Offsets that were
given out once stay given out: where the end is gone, the log goes on behind it.

Segments follow each other without a gap, in a log that was compacted here as well. Kafka's
compaction leaves gaps: in a topic that is compacted, one needs another proof.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from kohort.broker.storage.log.directory import DirectoryContent
from kohort.broker.storage.log.recovery import find_end

logger = logging.getLogger(__name__)


class LostOffsets(NamedTuple):
    """A range of them."""

    start: int
    stop: int
    """The first offset behind it."""


def proven_end(
    content: DirectoryContent, *, recovery_point: int, log_start_offset: int, clean_shutdown: bool
) -> int:
    """An offset that the end of the log had reached.

    A snapshot proves it after a clean stop alone: after a power loss it may be there although the
    batches it tells of never reached the disk, and no client was told that they had.
    """
    last_snapshot = content.snapshots[-1] if clean_shutdown and content.snapshots else 0
    last_base = content.segments[-1].base_offset if content.segments else -1
    reached = [end for base_offset, end in content.orphans.items() if base_offset > last_base]
    return max(recovery_point, log_start_offset, last_snapshot, *reached)


def is_short(content: DirectoryContent, noted_bytes: int | None) -> bool:
    """Whether there are fewer bytes than a clean stop noted, if it did."""
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
    """What is missing before a segment that starts at `up_to_offset` or below. Raises OSError.

    Looks into the end of each of these segments.

    Args:
        may_have_gaps: only an index without its .log proves anything.
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
    """One line for each range, and for each .log that is gone if it is in none of them."""
    for offset in orphans:
        if not any(one.start <= offset < one.stop for one in lost):
            logger.error(
                "%s: the .log of the segment at %d is gone; nothing tells how much was in it",
                directory,
                offset,
            )
    for one in lost:
        logger.error(
            "%s: offsets %d to %d are lost: what was noted beside the log proves that they were"
            " there, and their batches are gone",
            directory,
            one.start,
            one.stop - 1,
        )

"""Batches that are gone: what proves it, and which offsets they had.

A .log that is missing, empty or cut between two batches looks like a log in which nothing is wrong.
What was noted beside it proves otherwise: the recovery point and the log's start (below both there
was a log), the name of the newest producer snapshot and the size of all .log files at a clean stop,
and the place where the next segment begins. Offsets that were given out once stay given out: where
the end is gone, the log goes on behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
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
    snapshots: Sequence[int], *, recovery_point: int, log_start_offset: int, clean_shutdown: bool
) -> int:
    """An offset that the end of the log had reached.

    A snapshot proves it after a clean stop alone: after a power loss it may be there although the
    batches it tells of never reached the disk, and nobody was told that they had.
    """
    last_snapshot = snapshots[-1] if clean_shutdown and snapshots else 0
    return max(recovery_point, log_start_offset, last_snapshot)


def lost_inside(
    content: DirectoryContent, noted_bytes: int | None, log_start_offset: int
) -> list[LostOffsets]:
    """What is missing before the active segment, after a clean stop that noted this size.

    Without a note, or with so many bytes as then, nothing is looked into. Raises OSError.
    """
    if noted_bytes is None or sum(one.size_bytes for one in content.segments) >= noted_bytes:
        return []
    lost = []
    first = content.segments[0].base_offset
    orphans = [offset for offset in content.orphans if log_start_offset <= offset < first]
    if orphans:
        lost.append(LostOffsets(min(orphans), first))
    for segment, following in pairwise(content.segments):
        end = find_end(segment)
        if end is not None and end < following.base_offset:
            lost.append(LostOffsets(end, following.base_offset))
    return lost


def report(directory: str, lost: Sequence[LostOffsets]) -> None:
    """One line for each range."""
    for one in lost:
        logger.error(
            "%s: offsets %d to %d are lost: what was noted beside the log proves that they were"
            " there, and their batches are gone",
            directory,
            one.start,
            one.stop - 1,
        )

"""The producers of a log, brought up to date from its snapshots and its batches."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kohort.broker.core.partition.producers import ProducerState
from kohort.broker.storage.checkpoints.producer_snapshot import read_snapshot
from kohort.broker.storage.errors import CorruptBatchError, CorruptFileError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import SNAPSHOT_SUFFIX, file_name
from kohort.broker.storage.segment.search import locate
from kohort.broker.storage.segment.segment import LogSegment

logger = logging.getLogger(__name__)


def load_producers(
    files: FileSystem,
    directory: str,
    snapshots: list[int],
    segments: Sequence[LogSegment],
    *,
    end_offset: int,
    wall_ms: int,
) -> ProducerState:
    """What the log says about idempotent producers. Raises OSError.

    Starts from the newest good snapshot; damaged ones are removed, from the list as well. A damaged
    batch hides what follows it in its segment, so its producers may be asked to start anew.

    Args:
        snapshots: offsets of the snapshot files, ascending.
        wall_ms: stands for the time of appends that is not on record, so that no producer expires
            for having been silent while the broker was down.
    """
    state = ProducerState()
    offset = 0
    while snapshots:
        try:
            state.restore(read_snapshot(files, directory, snapshots[-1]))
            offset = snapshots[-1]
            break
        except CorruptFileError as error:
            path = f"{directory}/{file_name(snapshots.pop(), SNAPSHOT_SUFFIX)}"
            logger.warning("%s: %s; more of the log is read instead", path, error)
            files.remove(path)
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    for segment, end in zip(segments, ends, strict=True):
        if end > offset:
            _replay(segment, offset, state, wall_ms)
    return state


def _replay(segment: LogSegment, offset: int, state: ProducerState, wall_ms: int) -> None:
    try:
        found = locate(segment, offset)
        if found is None:
            return
        for _, header in segment.walk(*found):
            if header.base_offset >= offset:
                state.note_appended(header, base_offset=header.base_offset, timestamp=wall_ms)
    except CorruptBatchError as error:
        logger.warning("%s", error)

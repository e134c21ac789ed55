"""Which transactions of a log were aborted, by the indexes of its segments."""

from __future__ import annotations

import logging

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.log.reading import segment_number
from kohort.broker.storage.log.state import LogState
from kohort.broker.storage.segment.batch_walk import FEW_BYTES
from kohort.broker.storage.segment.search import header_of_entry, locate
from kohort.broker.storage.segment.segment import LogSegment
from kohort.broker.storage.segment.transaction_index import TransactionIndex

logger = logging.getLogger(__name__)


def aborted_between(state: LogState, offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Every aborted transaction with records from `offset` on and below `end_offset`, by marker.

    Raises OSError.
    """
    found: list[AbortedTransaction] = []
    for segment in state.segments[segment_number(state.segments, offset) :]:
        index = checked_index(state, segment)
        if index is None:
            continue
        overlapping = index.overlapping(offset, end_offset)
        found += overlapping.transactions
        if overlapping.is_all:
            break
    return found


class AbortedReading:
    """`aborted_between`, for another thread. Made in the log's thread."""

    def __init__(self, state: LogState, offset: int, end_offset: int) -> None:
        """Raises OSError."""
        self._offset = offset
        self._end_offset = end_offset
        self._segments: list[LogSegment] = []
        for segment in state.segments[segment_number(state.segments, offset) :]:
            if segment.aborted is not None:
                if not segment.aborted.is_long_check:
                    checked_index(state, segment)
                self._segments.append(segment)

    def read(self) -> list[AbortedTransaction]:
        """What is found. Raises OSError: also for an index that is damaged; the next time it is
        rebuilt.
        """
        found: list[AbortedTransaction] = []
        for segment in self._segments:
            index = segment.aborted
            assert index is not None
            try:
                if not index.check_aside():
                    raise OSError(f"{index.path} is damaged")
                overlapping = index.overlapping(self._offset, self._end_offset)
            except OSError:
                if segment.is_deleted:
                    continue
                raise
            found += overlapping.transactions
            if overlapping.is_all:
                break
        return found


def checked_index(state: LogState, segment: LogSegment) -> TransactionIndex | None:
    """The index of a segment, rebuilt if it is damaged. Raises OSError."""
    if segment.aborted is None:
        return None
    try:
        segment.aborted.check()
    except CorruptFileError as error:
        logger.warning("%s; it is rebuilt from the batches", error)
        state.producer_log().renew_index(segment)
    return segment.aborted


def end_of_read(state: LogState, offset: int, byte_count: int) -> int:
    """The offset behind `byte_count` bytes of whole batches that a read from `offset` on gave.

    For as long as the segments are those that were read. Raises OSError and CorruptBatchError.
    """
    segments = state.segments
    first = segment_number(segments, offset)
    for number, segment in enumerate(segments[first:], start=first + 1):
        found = locate(segment, offset)
        if found is None:
            continue  # Compaction has left nothing of it in this one.
        start, next_offset = found
        stop = start + byte_count
        if stop >= segment.size_bytes:
            return segments[number].base_offset if number < len(segments) else state.end_offset
        return _offset_at(segment, start, next_offset, stop)
    return state.end_offset


def _offset_at(segment: LogSegment, start: int, next_offset: int, stop: int) -> int:
    """The offset behind the batch that ends at `stop`, by those from `start` or later on."""
    position = start
    number = segment.index.find_position(stop - 1)
    if number >= 0 and segment.index[number].position > start:
        header = header_of_entry(segment, number)
        if header is not None:
            position, next_offset = segment.index[number].position, header.base_offset
    for batch in segment.walk(position, next_offset, chunk_bytes=FEW_BYTES):
        if batch.stop > stop:
            break
        next_offset = batch.header.next_offset
    return next_offset

"""Which transactions of a log were aborted, by the indexes of its segments.

An index is looked at once before it is believed, and rebuilt from the batches if it is damaged.
What takes long of that is for another thread: looking at a long index, and rebuilding any.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.errors import CorruptBatchError, CorruptFileError, StorageError
from kohort.broker.storage.filesystem import write_fully
from kohort.broker.storage.layout import TEMPORARY_SUFFIX
from kohort.broker.storage.log.reading import segment_number
from kohort.broker.storage.log.state import LogState
from kohort.broker.storage.segment.batch_walk import FEW_BYTES
from kohort.broker.storage.segment.search import header_of_entry, locate
from kohort.broker.storage.segment.segment import LogSegment
from kohort.broker.storage.segment.transaction_index import (
    ENTRY_BYTES,
    TransactionIndex,
    encode_entries,
)

logger = logging.getLogger(__name__)

READ_MAX: Final = 4_096
"""How many transactions that end within one read are told of: a millisecond's worth."""
_REBUILT_SUFFIX: Final = f".rebuilt{TEMPORARY_SUFFIX}"


class AbortedTransactions:
    """The aborted transactions of one log. For the log's thread; all may raise StorageError."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def between(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Every one with records from `offset` on and below `end_offset`, by its marker."""
        state = self._state
        state.check_usable()
        with state.errors_as("aborted transactions cannot be read"):
            state.load()
            return _between(state, offset, end_offset) if state.has_aborted else []

    def in_read(
        self, offset: int, byte_count: int, *, up_to_offset: int
    ) -> list[AbortedTransaction]:
        """The same for what a read from `offset` on has just given, up to `up_to_offset`."""
        state = self._state
        state.check_usable()
        with state.errors_as("aborted transactions cannot be read"):
            state.load()  # Which makes the indexes good.
            if not state.has_aborted:
                return []
        try:
            end_offset = min(up_to_offset, _end_of_read(state, offset, byte_count))
        except (OSError, CorruptBatchError):
            end_offset = up_to_offset  # A few too many, as Kafka tells them, do no harm.
        return self.between(offset, end_offset)

    def limit_of_read(self, offset: int, up_to_offset: int) -> int:
        """Up to where a read from `offset` on may go, so that not too many end within it.

        Those that are still open at its end come on top: they are bounded by the producers.
        """
        state = self._state
        if not state.has_aborted or not state.is_usable:
            return up_to_offset
        index = state.segments[segment_number(state.segments, offset)].aborted
        if index is None or len(index) <= READ_MAX or not index.is_checked:
            return up_to_offset
        with state.errors_as("aborted transactions cannot be read"):
            marker_offset = index.marker_behind(offset, READ_MAX)
        return up_to_offset if marker_offset is None else min(up_to_offset, marker_offset)

    def unready(self, offset: int) -> list[LogSegment]:
        """The segments from an offset on whose index is for another thread, see `repair`."""
        state = self._state
        if not state.has_aborted:
            return []
        segments = state.segments[segment_number(state.segments, offset) :]
        with state.errors_as("aborted transactions cannot be read"):
            return [
                segment
                for segment in segments
                if segment.aborted is not None and segment.aborted.takes_long
            ]

    def repair(self, segment: LogSegment) -> IndexRepair:
        """What makes the index of such a segment good."""
        self._state.check_usable()
        return IndexRepair(self._state, segment)

    def reading(self, offset: int, end_offset: int) -> AbortedReading:
        """`between`, for another thread."""
        state = self._state
        state.check_usable()
        with state.errors_as("aborted transactions cannot be read"):
            state.load()
            return AbortedReading(state, offset, end_offset)


def _between(state: LogState, offset: int, end_offset: int) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    for segment in state.segments[segment_number(state.segments, offset) :]:
        index = _checked_index(state, segment)
        if index is None:
            continue
        overlapping = index.overlapping(offset, end_offset)
        found += overlapping.transactions
        if overlapping.is_all:
            break
    return found


class IndexRepair:
    """Looks at the index of a segment, and rebuilds it from the batches if it is damaged.

    Made, and taken over, in the log's thread; `run` is for any thread.
    """

    def __init__(self, state: LogState, segment: LogSegment) -> None:
        assert segment.aborted is not None
        self._state = state
        self._segment = segment
        self._index = segment.aborted
        self._known_count = len(segment.aborted)
        self._rebuilding = state.detached_aborted(segment)
        self._rebuilt_count: int | None = None
        """Entries in the new file, None if none is needed."""

    def run(self) -> None:
        """Do what takes long. Raises StorageError and CorruptBatchError."""
        index = self._index
        try:
            if index.check_aside():
                return
            entries = self._rebuilding.run()
            if entries:
                file = self._state.files.create(index.path + _REBUILT_SUFFIX)
                try:
                    write_fully(file, [encode_entries(entries)], 0)
                    file.sync()
                finally:
                    file.close()
        except OSError as error:
            raise StorageError(f"{index.path} cannot be rebuilt: {error}") from error
        self._rebuilt_count = len(entries)

    def take_over(self) -> None:
        """Put the new index in place, unless the log has got another one meanwhile.

        Raises StorageError.
        """
        state, segment = self._state, self._segment
        if self._rebuilt_count is None:
            return
        with state.errors_as("a rebuilt index cannot be put in place"):
            if self._rebuilding.is_void or segment.aborted is not self._index:
                with suppress(FileNotFoundError):
                    state.files.remove(self._index.path + _REBUILT_SUFFIX)
                return
            logger.warning("%s was damaged; it was rebuilt from the batches", self._index.path)
            self._replace(self._index.since(self._known_count), self._rebuilt_count)

    def _replace(self, later: list[AbortedTransaction], count: int) -> None:
        """`later` came while the batches were read."""
        files, segment, path = self._state.files, self._segment, self._index.path
        self._index.close()
        if count:
            files.rename(path + _REBUILT_SUFFIX, path)
        else:
            files.remove(path)
        size_bytes = count * ENTRY_BYTES if count else None
        index = segment.add_transaction_index(files, size_bytes)
        if not count and not later:
            segment.aborted = None
        if later:
            for entry in later:
                index.append(entry)
            # What they came with may be on the disk already.
            index.sync()
        self._state.flusher.note_name(self._state.directory)


class AbortedReading:
    """`AbortedTransactions.between`, for another thread. Made in the log's thread."""

    def __init__(self, state: LogState, offset: int, end_offset: int) -> None:
        """Raises OSError."""
        self._offset = offset
        self._end_offset = end_offset
        self._segments: list[LogSegment] = []
        for segment in state.segments[segment_number(state.segments, offset) :]:
            if segment.aborted is not None:
                if not segment.aborted.takes_long:
                    _checked_index(state, segment)
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


def _checked_index(state: LogState, segment: LogSegment) -> TransactionIndex | None:
    """The index of a segment, rebuilt if it is damaged. Raises OSError."""
    if segment.aborted is None:
        return None
    try:
        segment.aborted.check()
    except CorruptFileError as error:
        logger.warning("%s; it is rebuilt from the batches", error)
        state.producer_log().renew_index(segment)
    return segment.aborted


def _end_of_read(state: LogState, offset: int, byte_count: int) -> int:
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

"""The aborted transactions of a log, from the indexes of its segments.

An index is verified once before it is used, and rebuilt from the batches if it is damaged.
Verifying a long index, and rebuilding any index, are slow and run in another thread.
"""

from contextlib import suppress
from typing import Final

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.checkpoints.producer_log import CorrectIndex
from kohort.broker.storage.errors import CorruptBatchError, CorruptFileError, StorageError
from kohort.broker.storage.filesystem import write_fully
from kohort.broker.storage.layout import TEMPORARY_SUFFIX
from kohort.broker.storage.log.detached import Detached
from kohort.broker.storage.log.state import LogState
from kohort.broker.storage.segment.batch_walk import FEW_BYTES
from kohort.broker.storage.segment.search import header_of_entry, locate
from kohort.broker.storage.segment.segment import LogSegment
from kohort.broker.storage.segment.transaction_index import (
    ENTRY_BYTES,
    TransactionIndex,
    encode_entries,
)
from kohort.groups.steps import Steps, at_once

READ_MAX: Final = 4_096
"""Maximum number of aborted transactions that end within one read."""
STEPS_AT_ONCE_MAX: Final = 3
"""Maximum steps of a search without pauses; these and the response take one or two milliseconds."""
_UNREADABLE: Final = "aborted transactions cannot be read"
_REBUILT_SUFFIX: Final = f".rebuilt{TEMPORARY_SUFFIX}"


class AbortedTransactions:
    """The aborted transactions of one log, for the log's thread. Methods raise StorageError."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def in_read(self, offset: int, byte_count: int, *, up_to_offset: int) -> "AbortedSearch":
        """Return a search for the aborted transactions with records in the result of a read:
        `byte_count` bytes of batches from `offset` on, below `up_to_offset`.
        """
        state = self._state
        state.check_usable()
        if not byte_count:
            return AbortedSearch(state, (), offset, offset)
        with state.errors_as(_UNREADABLE):
            state.load()  # Loading also repairs the indexes.
        if not state.has_aborted:
            return AbortedSearch(state, (), offset, offset)
        try:
            start, end_offset = _range_of_read(state, offset, byte_count)
        except (OSError, CorruptBatchError):
            # Search the whole permitted range: transactions that the read does not need do no harm,
            # and Kafka returns such transactions as well.
            start, end_offset = offset, up_to_offset
        segments = _segments_from(state, start)
        return AbortedSearch(state, segments, start, min(up_to_offset, end_offset))

    def limit_of_read(self, offset: int, up_to_offset: int) -> int:
        """Return the offset at which a read from `offset` on must end, so that at most about
        `READ_MAX` aborted transactions end in it.

        Transactions still open at the end of the read are not counted: there is at most one per
        producer.
        """
        state = self._state
        if not state.has_aborted or not state.is_usable:
            return up_to_offset
        index = state.segments[state.segment_number(offset)].aborted
        if index is None or len(index) <= READ_MAX or not index.is_checked:
            return up_to_offset
        with state.errors_as(_UNREADABLE):
            marker_offset = index.marker_behind(offset, READ_MAX)
        return up_to_offset if marker_offset is None else min(up_to_offset, marker_offset)

    def unready(self, offset: int) -> list[LogSegment]:
        """Return the segments from an offset on whose transaction index needs `repair` before a
        search.
        """
        state = self._state
        if not state.has_aborted:
            return []
        with state.errors_as(_UNREADABLE):
            return [
                segment
                for segment in _segments_from(state, offset)
                if segment.aborted is not None and segment.aborted.takes_long
            ]

    def repair(self, segment: LogSegment) -> "IndexRepair":
        """Return the operation that repairs the index of a segment that `unready` returned."""
        self._state.check_usable()
        return IndexRepair(self._state, segment)

    def reading(self, offset: int, end_offset: int) -> "AbortedReading":
        state = self._state
        state.check_usable()
        with state.errors_as(_UNREADABLE):
            state.load()
            return AbortedReading(state, offset, end_offset)


class AbortedSearch:
    """Searches for aborted transactions with records in a range of a log, at once or in steps.

    Use it only in the log's thread. `limit_of_read` shortens a range so that at most `READ_MAX`
    transactions end in it; the search also finds those that are open at the end of the range. If
    one of these ends much later, the search examines every transaction that ends before it does.
    """

    __slots__ = ("_end_offset", "_offset", "_segments", "_state")

    def __init__(
        self, state: LogState, segments: tuple[LogSegment, ...], offset: int, end_offset: int
    ) -> None:
        """`segments`: those of the log from `offset` on, with or without transaction indexes."""
        self._state = state
        self._segments = segments
        self._offset = offset
        self._end_offset = end_offset

    def at_once_if_short(self) -> list[AbortedTransaction] | None:
        """Return the result; None if it takes too long for the event loop. Raises StorageError."""
        steps = self.steps()
        try:
            for _ in range(STEPS_AT_ONCE_MAX):
                next(steps)
        except StopIteration as stop:
            result: list[AbortedTransaction] = stop.value
            return result
        return None

    def at_once(self) -> list[AbortedTransaction]:
        """Return the result, ordered by marker. Raises StorageError."""
        return at_once(self.steps())

    def steps(self) -> Steps[list[AbortedTransaction]]:
        """Search in steps. Discard the result if `is_void` is true afterwards."""
        aborted: list[AbortedTransaction] = []
        with self._state.errors_as(_UNREADABLE):
            for segment in self._segments:
                index = _checked_index(self._state, segment)
                if index is None:
                    continue
                overlapping = yield from index.search(self._offset, self._end_offset)
                aborted += overlapping.transactions
                if overlapping.is_all:
                    break
                yield
        return aborted

    @property
    def is_void(self) -> bool:
        """Whether a segment was deleted or compacted meanwhile, so that transactions may be
        missing.
        """
        return any(segment.is_deleted for segment in self._segments)


class IndexRepair:
    """Verifies the index of a segment, and rebuilds it from the batches if it is damaged.

    Create it, and call `take_over`, in the log's thread; `run` may be called in any thread.
    """

    def __init__(self, state: LogState, segment: LogSegment) -> None:
        assert segment.aborted is not None
        self._state = state
        self._segment = segment
        self._index = segment.aborted
        self._known_count = len(segment.aborted)
        self._rebuilding = state.detached_aborted(segment)
        self._right: CorrectIndex | None = None
        """The correct content; None if the checksum proves that the file is correct."""

    def run(self) -> None:
        """Verify the index, or rebuild it in a new file. Raises StorageError, CorruptBatchError."""
        index = self._index
        try:
            if index.check_in_thread():
                return
            right = self._rebuilding.run()
            self._segment.first_crc(reads=True)
            if right.entries and not right.matches(self._known_count):
                file = self._state.files.create(index.path + _REBUILT_SUFFIX)
                try:
                    write_fully(file, [encode_entries(right.entries)], 0)
                    file.sync()
                finally:
                    file.close()
        except OSError as error:
            raise StorageError(f"{index.path} cannot be rebuilt: {error}") from error
        self._right = right

    def take_over(self) -> None:
        """Install the new index, unless the segment or its index changed. Raises StorageError."""
        state, segment, right = self._state, self._segment, self._right
        if right is None:
            return
        with state.errors_as("a rebuilt index cannot be installed"):
            if self._rebuilding.is_void or segment.aborted is not self._index:
                with suppress(FileNotFoundError):
                    state.files.remove(self._index.path + _REBUILT_SUFFIX)
                return
            if right.matches(self._known_count):
                self._index.accept()
            else:
                right.report(self._index)
                self._replace(self._index.since(self._known_count), len(right.entries))
        state.try_note_checksums()

    def _replace(self, later: list[AbortedTransaction], count: int) -> None:
        """Install the rebuilt index of `count` entries, and append the `later` entries to it."""
        files, segment, path = self._state.files, self._segment, self._index.path
        self._index.close()
        if count:
            files.rename(path + _REBUILT_SUFFIX, path)
        else:
            with suppress(FileNotFoundError):
                files.remove(path)
        size_bytes = count * ENTRY_BYTES if count else None
        index = segment.add_transaction_index(files, size_bytes)
        index.accept()
        if not count and not later:
            segment.aborted = None
        if later:
            for entry in later:
                index.append(entry)
            # The markers of these entries may be below the flushed offset already, and entries
            # below it must be on disk.
            index.sync()
        self._state.flusher.note_name(self._state.path)


class AbortedReading:
    """Reads all aborted transactions with records from `offset` to `end_offset` (exclusive). Create
    it in the log's thread; `read` may be called in any thread.
    """

    def __init__(self, state: LogState, offset: int, end_offset: int) -> None:
        """Collect the segments to read. Raises OSError."""
        self._offset = offset
        self._end_offset = end_offset
        self._segments: list[tuple[LogSegment, Detached[CorrectIndex] | None]] = []
        """Segments with an index; if verifying it takes long, also a query that reads its
        correct content from the batches."""
        for segment in _segments_from(state, offset):
            if segment.aborted is None:
                continue
            if segment.aborted.takes_long:
                self._segments.append((segment, state.detached_aborted(segment)))
            elif _checked_index(state, segment) is not None:
                self._segments.append((segment, None))

    def read(self) -> list[AbortedTransaction]:
        """Return the aborted transactions, ordered by marker. Raises OSError."""
        aborted: list[AbortedTransaction] = []
        for segment, rebuilding in self._segments:
            index = segment.aborted
            if index is None:
                continue  # Rebuilt meanwhile, without entries.
            try:
                if rebuilding is not None and not index.check_in_thread():
                    aborted += [
                        entry
                        for entry in rebuilding.run().entries
                        if entry.last_offset >= self._offset
                        and entry.first_offset < self._end_offset
                    ]
                    continue
                overlapping = index.overlapping(self._offset, self._end_offset)
            except OSError:
                if segment.is_deleted:
                    continue
                raise
            aborted += overlapping.transactions
            if overlapping.is_all:
                break
        return aborted


def _segments_from(state: LogState, offset: int) -> tuple[LogSegment, ...]:
    return state.segments[state.segment_number(offset) :]


def _checked_index(state: LogState, segment: LogSegment) -> TransactionIndex | None:
    """Return the index of a segment, rebuilt if it is damaged. Raises OSError."""
    if segment.aborted is None:
        return None
    try:
        segment.aborted.check()
    except CorruptFileError:
        state.producer_log().renew_index(segment)
        state.try_note_checksums()
    return segment.aborted


def _range_of_read(state: LogState, offset: int, byte_count: int) -> tuple[int, int]:
    """Return (first offset, end offset) of a read from `offset` on that returned `byte_count` bytes
    of whole batches.

    The first offset is later than `offset` if no batch is left there. A transaction whose marker
    below the first offset was lost must not be listed: a client would drop all later records of its
    producer.

    Valid while the segments that were read are in the log. Raises OSError and CorruptBatchError.
    """
    segments = state.segments
    first = state.segment_number(offset)
    for number, segment in enumerate(segments[first:], start=first):
        found = locate(segment, offset)
        if found is None:
            continue  # This segment is empty after compaction or data loss.
        start, base_offset = found
        stop = start + byte_count
        if stop < segment.size_bytes:
            end_offset = _offset_at(segment, start, base_offset, stop)
        else:
            end_offset = state.end_of_segment(number)
        return max(offset, base_offset), end_offset
    return offset, state.log_end_offset


def _offset_at(segment: LogSegment, start: int, next_offset: int, stop: int) -> int:
    """Return the offset after the batch that ends at `stop`; at `start` it is `next_offset`."""
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

"""Loads the producer state of a log from its snapshots and batches.

On the way, aborted transactions in the batches are compared with the segments' indexes, which are
corrected if an unclean shutdown has left a difference.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kohort.broker.core.partition.producers import ProducerState
from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.checkpoints.producer_snapshot import read_snapshot, write_snapshot
from kohort.broker.storage.errors import CorruptBatchError, CorruptFileError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_name
from kohort.broker.storage.segment.batch_walk import BatchAt
from kohort.broker.storage.segment.search import locate
from kohort.broker.storage.segment.segment import LogSegment
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import BatchHeader
from kohort.protocol.records.control import ControlType, decode_marker
from kohort.protocol.records.varint import Buffer

logger = logging.getLogger(__name__)

CONTROL_BYTES_MAX = 1 << 16
"""A longer control batch is not a marker; a marker has 78 bytes."""


def note_control(
    state: ProducerState, batch: Buffer, header: BatchHeader, *, base_offset: int, timestamp: int
) -> AbortedTransaction | None:
    """Apply a control batch of the log to `state`; return the entry for its segment's index, if
    any.
    """
    if header.record_count == 0:
        state.note_emptied_marker(header, timestamp=timestamp)
        return None
    try:
        marker = decode_marker(batch, header)
    except DecodeError as error:
        logger.warning("the control batch at %d is passed over: %s", base_offset, error)
        return None
    if marker is None:
        return None
    return state.note_marker(
        header.producer_id,
        header.producer_epoch,
        is_commit=marker.control_type is ControlType.COMMIT,
        coordinator_epoch=marker.coordinator_epoch,
        offset=base_offset,
        timestamp=timestamp,
    )


class ProducerLog:
    """The files of a log that describe its producers. Methods raise OSError."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        snapshots: list[int],
        segments: Sequence[LogSegment],
        *,
        end_offset: int,
        wall_ms: int,
    ) -> None:
        """Create an instance for one load.

        Args:
            snapshots: offsets of the snapshot files, ascending; damaged files are removed, and also
                from this list.
            wall_ms: used in place of unknown append times, so that no producer expires because the
                broker was down.
        """
        self._files = files
        self._directory = directory
        self._snapshots = snapshots
        self._segments = segments
        self._end_offset = end_offset
        self._wall_ms = wall_ms
        self.written: list[int] = []
        """Offsets of snapshots that were missing or damaged and are not synced yet."""

    def load(self) -> ProducerState:
        """Load the producer state, from the latest valid snapshot on.

        A damaged batch hides the rest of its segment, so its producers may be asked to start over.
        """
        state, offset = self._restored(self._end_offset)
        for segment, end in self._with_ends():
            if end > offset:
                self._replay(segment, offset, state)
        return state

    def load_after_unclean_stop(self, recovery_point: int) -> ProducerState:
        """Load the producer state, and correct indexes and snapshots beyond the recovery point."""
        # Includes the last segment even if it is empty now: its index may have entries for
        # truncated batches.
        renewed = [segment for segment, end in self._with_ends() if end > recovery_point]
        renewed = renewed or [self._segments[-1]]
        state, offset = self._restored(renewed[0].base_offset)
        is_complete = bool(offset) or self._segments[0].base_offset == 0
        for segment, end in self._with_ends():
            if end <= offset and segment not in renewed:
                continue
            if not is_complete and segment.base_offset in self._snapshots:
                # The beginning of the segment is gone, but the snapshot has the producers up to
                # there.
                state, reached = self._restored(segment.base_offset)
                is_complete = reached == segment.base_offset
            elif is_complete and segment is not self._segments[0]:
                self._complete_snapshots(segment, state)
            found = self._replay(segment, offset, state)
            if segment in renewed:
                self._renew(segment, found, knows_all=is_complete)
        return state

    def _complete_snapshots(self, segment: LogSegment, state: ProducerState) -> None:
        """Write a segment's snapshot if it is missing or damaged: earlier segments may be
        deleted.
        """
        offset = segment.base_offset
        if offset in self._snapshots and self._is_whole(offset):
            return
        try:
            write_snapshot(self._files, self._directory, offset, state.snapshot())
        except OSError as error:
            logger.warning("the snapshot of %r cannot be written: %s", segment, error)
            return
        if offset not in self._snapshots:
            insort(self._snapshots, offset)
        self.written.append(offset)

    def _is_whole(self, offset: int) -> bool:
        try:
            read_snapshot(self._files, self._directory, offset)
        except CorruptFileError as error:
            logger.warning("%s: the snapshot at %d: %s", self._directory, offset, error)
            return False
        return True

    def renew_index(self, segment: LogSegment) -> None:
        """Rebuild the transaction index of one segment."""
        state, offset = self._restored(segment.base_offset)
        is_complete = bool(offset) or self._segments[0].base_offset == 0
        self._renew(segment, self._replayed(segment, offset, state), knows_all=is_complete)

    def aborted_in(self, segment: LogSegment) -> list[AbortedTransaction]:
        """Return the correct index content of a segment, from the batches alone;
        changes no file.
        """
        state, offset = self._restored(segment.base_offset, removes_damaged=False)
        return self._replayed(segment, offset, state).aborted

    def _replayed(self, segment: LogSegment, offset: int, state: ProducerState) -> _Replayed:
        """Replay a segment, after applying everything between an offset and the segment to
        `state`.
        """
        for before, end in self._with_ends():
            if before is segment:
                break
            if end > offset:
                self._replay(before, offset, state)
        return self._replay(segment, offset, state)

    def _with_ends(self) -> Iterator[tuple[LogSegment, int]]:
        ends = [segment.base_offset for segment in self._segments[1:]] + [self._end_offset]
        return zip(self._segments, ends, strict=True)

    def _restored(
        self, up_to_offset: int, *, removes_damaged: bool = True
    ) -> tuple[ProducerState, int]:
        """Return (producers, offset) of the latest valid snapshot up to an offset; offset 0 if
        there is none.
        """
        state = ProducerState()
        for offset in [one for one in self._snapshots if one <= up_to_offset][::-1]:
            try:
                state.restore(read_snapshot(self._files, self._directory, offset))
            except CorruptFileError as error:
                path = f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
                logger.warning("%s: %s; more of the log is read instead", path, error)
                if removes_damaged:
                    self._snapshots.remove(offset)
                    self._files.remove(path)
            else:
                return state, offset
        return state, 0

    def _replay(self, segment: LogSegment, offset: int, state: ProducerState) -> _Replayed:
        """Apply the batches of a segment from an offset on."""
        aborted: list[AbortedTransaction] = []
        unknown: set[int] = set()
        try:
            found = locate(segment, offset)
            for batch in segment.walk(*found) if found is not None else ():
                header = batch.header
                if header.base_offset < offset:
                    continue
                if not header.is_control:
                    state.note_appended(
                        header, base_offset=header.base_offset, timestamp=self._wall_ms
                    )
                    continue
                entry = self._note_control(segment, batch, state)
                if entry is None:
                    unknown.add(header.base_offset)
                else:
                    aborted.append(entry)
        except CorruptBatchError as error:
            logger.warning("%s", error)
            return _Replayed(aborted, unknown, is_whole=False)
        finally:
            # Everything found in the log is settled.
            state.spans.settle(self._end_offset)
        return _Replayed(aborted, unknown, is_whole=True)

    def _note_control(
        self, segment: LogSegment, batch: BatchAt, state: ProducerState
    ) -> AbortedTransaction | None:
        header = batch.header
        if header.size_bytes > CONTROL_BYTES_MAX or not header.has_producer_id:
            return None
        data = segment.log.pread(header.size_bytes, batch.position)
        return note_control(
            state, data, header, base_offset=header.base_offset, timestamp=self._wall_ms
        )

    def _renew(self, segment: LogSegment, found: _Replayed, *, knows_all: bool) -> None:
        """Replace the index content of a segment by what was found in it.

        Entries are kept where the batches are inconclusive: after damage, and if the transaction
        began in segments that have been deleted with their producer state.
        """
        before: list[AbortedTransaction] = []
        if segment.aborted is not None:
            try:
                segment.aborted.check()
                before = list(segment.aborted)
            except CorruptFileError as error:
                logger.warning("%s; it is rebuilt from the batches", error)
        reached = found.aborted[-1].last_offset if found.aborted else -1
        kept = [
            entry
            for entry in before
            if (not knows_all and entry.last_offset in found.unknown)
            or (not found.is_whole and entry.last_offset > reached)
        ]
        entries = sorted({*found.aborted, *kept}, key=lambda entry: entry.last_offset)
        if entries == before and (before or segment.aborted is None):
            return
        path = segment.path(TRANSACTION_INDEX_SUFFIX)
        try:
            if entries:
                index = segment.aborted or segment.add_transaction_index(self._files)
                index.replace_all(entries)
            else:
                segment.aborted = None
                self._files.remove(path)
        except OSError as error:
            logger.warning("%s cannot be written: %s", path, error)


class _Replayed(NamedTuple):
    """Aborted transactions found in the batches of a segment."""

    aborted: list[AbortedTransaction]
    unknown: set[int]
    """Offsets of markers that ended no known transaction, or committed one."""
    is_whole: bool
    """Whether no damage hides anything."""

"""Loads the producer state of a log from its snapshots and batches.

It also compares the aborted transactions in the batches with the segments' transaction indexes. If
an unclean shutdown has left a difference, the index is corrected.

Damage can hide the marker of a transaction. If the segment's transaction index lists an abort at a
damaged offset, the abort is applied. Otherwise the snapshot at the start of the next segment shows
whether the transaction had ended. If the transaction had ended, but the index is missing, it counts
as aborted, because records with an unknown outcome must not be shown.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from kohort.broker.core.partition.producers import ProducerSnapshot, ProducerState
from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.checkpoints.producer_snapshot import read_snapshot, write_snapshot
from kohort.broker.storage.errors import CorruptBatchError, CorruptFileError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import (
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from kohort.broker.storage.segment.batch_walk import BatchAt, crc_of_range
from kohort.broker.storage.segment.search import header_of_entry, locate, next_indexed_batch
from kohort.broker.storage.segment.segment import LogSegment, with_ends
from kohort.broker.storage.segment.transaction_index import TransactionIndex
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import BatchHeader
from kohort.protocol.records.control import ControlType, decode_marker
from kohort.protocol.records.varint import Buffer

logger = logging.getLogger(__name__)

CONTROL_BYTES_MAX = 1 << 16
"""A longer control batch is not a marker; a marker has 78 bytes."""
RETRIED_BYTES = 16 << 20
"""Bytes at the end of a segment that are searched for batches that clients may retry: more than all
requests in flight together."""


def note_control(
    state: ProducerState, batch: Buffer, header: BatchHeader, *, base_offset: int, timestamp: int
) -> AbortedTransaction | None:
    """Apply a control batch to `state`. If it aborts a transaction, return the entry for the
    transaction index of its segment; otherwise None.
    """
    if header.record_count == 0:
        state.note_emptied_marker(header, timestamp=timestamp)
        return None
    try:
        marker = decode_marker(batch, header)
    except DecodeError as error:
        logger.warning("skipped the control batch at %d: %s", base_offset, error)
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


def is_intact(segment: LogSegment, batch: BatchAt) -> bool:
    position, header = batch
    return (
        segment.is_verified(position, batch.stop)
        or crc_of_range(segment.log, position, batch.stop) == header.crc
    )


class CorrectIndex(NamedTuple):
    """The correct content of a segment's transaction index, and its actual content."""

    entries: list[AbortedTransaction]
    found: list[AbortedTransaction] | None
    """The entries of the index file; None if it is missing or malformed."""

    def matches(self, count: int) -> bool:
        """Whether the file's first `count` entries equal `entries`; False if `entries` is empty."""
        return bool(self.entries) and self.found is not None and self.found[:count] == self.entries

    def report(self, index: TransactionIndex) -> None:
        """Log that the index file differs from the batches and is replaced."""
        if self.entries or self.found:
            logger.log(
                logging.WARNING if index.is_noted else logging.INFO,
                "%s: rebuilt from the batches, with %d aborted transactions instead of %s",
                index.damage,
                len(self.entries),
                "an unreadable file" if self.found is None else len(self.found),
            )


class ProducerLog:
    """Loads and repairs the producer state of one log. Methods raise OSError."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        snapshots: list[int],
        segments: Sequence[LogSegment],
        *,
        end_offset: int,
        wall_ms: int,
        snapshot_sums: dict[int, int],
    ) -> None:
        """Create an instance for one load.

        Args:
            snapshots: offsets of the snapshot files, ascending; damaged files are deleted, and
                their offsets are removed from this list.
            end_offset: end offset of the last segment.
            wall_ms: used in place of unknown append times, so that no producer expires because the
                broker was down.
            snapshot_sums: known checksums by offset; those of newly written snapshots are added.
        """
        self._files = files
        self._directory = directory
        self._snapshots = snapshots
        self._segments = segments
        self._end_offset = end_offset
        self._wall_ms = wall_ms
        self._snapshot_sums = snapshot_sums
        self.written: list[int] = []
        """Offsets of snapshots written in place of missing or damaged ones; not synced yet."""

    def load(self) -> ProducerState:
        """Load the producer state from the latest valid snapshot and the batches after it."""
        state, offset = self._restored(self._end_offset)
        for segment, end in with_ends(self._segments, self._end_offset):
            if end > offset:
                self._replay(segment, end, offset, state)
        return state

    def load_after_unclean_stop(self, recovery_point: int) -> ProducerState:
        """Load the producers; repair snapshots, and transaction indexes beyond `recovery_point`."""
        # Includes the last segment even if it is empty now: its index may have entries for
        # truncated batches.
        renewed = [
            segment
            for segment, end in with_ends(self._segments, self._end_offset)
            if end > recovery_point
        ]
        renewed = renewed or [self._segments[-1]]
        state, offset = self._restored(renewed[0].base_offset)
        is_complete = bool(offset) or self._segments[0].base_offset == 0
        if len(state) and offset == renewed[0].base_offset:
            self._recall_batches(offset, state)
        for segment, end in with_ends(self._segments, self._end_offset):
            if end <= offset and segment not in renewed:
                continue
            if not is_complete and segment.base_offset in self._snapshots:
                # The batches before this segment were removed; the snapshot has their producers.
                state, reached = self._restored(segment.base_offset)
                is_complete = reached == segment.base_offset
            elif is_complete and segment is not self._segments[0]:
                self._complete_snapshots(segment, state)
            replayed = self._replay(segment, end, offset, state)
            if segment in renewed:
                right = self._correct_index(replayed, knows_all=is_complete)
                try:
                    self._renew(segment, right)
                except OSError as error:
                    path = segment.path(TRANSACTION_INDEX_SUFFIX)
                    logger.warning("%s cannot be written: %s", path, error)
        return state

    def _recall_batches(self, offset: int, state: ProducerState) -> None:
        """Add recent batches of each producer to a snapshot's state, which has only the last batch:
        a client may retry all batches that were in flight when the segment was rolled.
        """
        segment = next(
            (
                segment
                for segment, end in with_ends(self._segments, self._end_offset)
                if end == offset
            ),
            None,
        )
        if segment is None:
            return
        position, expected = 0, segment.base_offset
        number = segment.index.find_position(segment.size_bytes - RETRIED_BYTES)
        header = header_of_entry(segment, number) if number >= 0 else None
        if header is not None:
            position, expected = segment.index[number].position, header.base_offset
        recalled = ProducerState()
        try:
            for _, header in segment.walk(position, expected):
                recalled.note_appended(
                    header, base_offset=header.base_offset, timestamp=self._wall_ms
                )
        except CorruptBatchError as error:
            logger.warning("%s", error)
        state.recall_batches(recalled)

    def _complete_snapshots(self, segment: LogSegment, state: ProducerState) -> None:
        """Write the snapshot at a segment's start if it is missing or damaged: the batches from
        which it can be rebuilt may be deleted.
        """
        offset = segment.base_offset
        if offset in self._snapshots and self._is_whole(offset):
            return
        try:
            self._snapshot_sums[offset] = write_snapshot(
                self._files, self._directory, offset, state.snapshot()
            )
        except OSError as error:
            logger.warning("the snapshot of %r cannot be written: %s", segment, error)
            return
        if offset not in self._snapshots:
            insort(self._snapshots, offset)
        self.written.append(offset)

    def _is_whole(self, offset: int) -> bool:
        try:
            self._read_snapshot(offset)
        except CorruptFileError as error:
            logger.warning("%s: damaged snapshot at %d: %s", self._directory, offset, error)
            return False
        return True

    def _read_snapshot(self, offset: int) -> list[ProducerSnapshot]:
        noted_sum = self._snapshot_sums.get(offset)
        return read_snapshot(self._files, self._directory, offset, noted_sum)

    def renew_index(self, segment: LogSegment) -> None:
        """Rebuild the transaction index of one segment if it is wrong."""
        right = self.correct_index(segment)
        assert segment.aborted is not None
        right.report(segment.aborted)
        self._renew(segment, right)

    def correct_index(self, segment: LogSegment) -> CorrectIndex:
        """Return the correct content of a segment's transaction index; changes no file."""
        state, offset = self._restored(segment.base_offset, removes_damaged=False)
        is_complete = bool(offset) or self._segments[0].base_offset == 0
        for before, end in with_ends(self._segments, self._end_offset):
            if before is segment:
                replayed = self._replay(segment, end, offset, state)
                return self._correct_index(replayed, knows_all=is_complete)
            if end > offset:
                self._replay(before, end, offset, state)
        raise AssertionError(f"{segment!r} is not in {self._directory}")

    def _restored(
        self, up_to_offset: int, *, removes_damaged: bool = True
    ) -> tuple[ProducerState, int]:
        """Return the producers and the offset of the latest valid snapshot up to an offset; without
        one, no producers and offset 0.
        """
        state = ProducerState()
        for offset in [start for start in self._snapshots if start <= up_to_offset][::-1]:
            try:
                state.restore(self._read_snapshot(offset))
            except CorruptFileError as error:
                path = f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
                logger.warning("%s: %s; reading more of the log instead", path, error)
                if removes_damaged:
                    self._snapshots.remove(offset)
                    self._snapshot_sums.pop(offset, None)
                    self._files.remove(path)
            else:
                return state, offset
        first = self._segments[0].base_offset
        if first and removes_damaged:
            logger.warning(
                "%s: the state of producers below offset %d, where the log starts, is unknown",
                self._directory,
                first,
            )
        return state, 0

    def _replay(
        self, segment: LogSegment, end: int, offset: int, state: ProducerState
    ) -> _Replayed:
        """Apply the batches of a segment from `offset` to its `end`."""
        found = segment.aborted.plausible() if segment.aborted is not None else []
        replayed = _Replayed([], found, set(), [])
        expected = max(segment.base_offset, min(offset, end))
        for batch, next_offset in self._intact_batches(segment, offset):
            if batch is None or batch.header.base_offset > expected:
                stop = next_offset if batch is None else batch.header.base_offset
                self._pass_hole(replayed, range(expected, stop), state)
            if batch is not None:
                self._note(segment, batch, state, replayed)
            expected = next_offset
        if expected < end:
            self._pass_hole(replayed, range(expected, end), state)
        if replayed.holes:
            self._end_hidden(replayed, end, state)
        # All of the recovered log counts as below the high watermark.
        state.spans.settle(self._end_offset)
        return replayed

    def _intact_batches(
        self, segment: LogSegment, offset: int
    ) -> Iterator[tuple[BatchAt | None, int]]:
        """Yield (batch, next offset) of a segment from an offset on; the batch is None if damage
        hides everything up to the next offset.
        """
        try:
            start = locate(segment, offset)
        except CorruptBatchError as error:
            logger.warning("%s", error)
            start = 0, segment.base_offset
        position = 0
        while start is not None:
            position, expected = start
            try:
                for batch in segment.walk(position, expected):
                    header = batch.header
                    position = batch.stop
                    if header.base_offset < offset:
                        continue
                    # Only transactional and control batches determine which records are visible.
                    matters = header.is_transactional or header.is_control
                    if matters and not is_intact(segment, batch):
                        text = "%s: the CRC of the batch with offsets %d to %d is wrong"
                        path = segment.path(LOG_SUFFIX)
                        logger.warning(text, path, header.base_offset, header.last_offset)
                        yield None, header.next_offset
                    else:
                        yield batch, header.next_offset
                return
            except CorruptBatchError as error:
                logger.warning("%s", error)
            behind = next_indexed_batch(segment, position)
            start = None if behind is None else (behind.position, behind.header.base_offset)

    def _note(
        self, segment: LogSegment, batch: BatchAt, state: ProducerState, replayed: _Replayed
    ) -> None:
        header = batch.header
        if not header.is_control:
            state.note_appended(header, base_offset=header.base_offset, timestamp=self._wall_ms)
            return
        if header.size_bytes > CONTROL_BYTES_MAX or not header.has_producer_id:
            return
        data = segment.log.pread(header.size_bytes, batch.position)
        entry = note_control(
            state, data, header, base_offset=header.base_offset, timestamp=self._wall_ms
        )
        if entry is None:
            replayed.unknown.add(header.base_offset)
        else:
            replayed.aborted.append(entry)

    def _pass_hole(self, replayed: _Replayed, hole: range, state: ProducerState) -> None:
        """Apply the aborts that the segment's transaction index lists in `hole`, a range of offsets
        whose batches are damaged.
        """
        replayed.holes.append(hole)
        for entry in replayed.found or ():
            if entry.last_offset in hole:
                replayed.aborted.append(entry)
                producer = state.get(entry.producer_id)
                if producer is not None and producer.transaction_first_offset >= 0:
                    self._end(entry.producer_id, entry.last_offset, state)

    def _end_hidden(self, replayed: _Replayed, end: int, state: ProducerState) -> None:
        """After a segment with damaged batches, replace `state` by the snapshot at its end, which
        includes the effects of the damaged batches.

        A transaction that ended at a damaged offset was committed if the transaction index exists
        and does not list it; if the index is missing, it counts as aborted.
        """
        if end not in self._snapshots:
            return
        try:
            after = ProducerState()
            after.restore(self._read_snapshot(end))
        except CorruptFileError as error:
            logger.warning("%s: damaged snapshot at %d: %s", self._directory, end, error)
            return
        if replayed.found is None:
            holes = list(replayed.holes)
            for first_offset, producer_id in list(state.spans.open.items()):
                if after.spans.open.get(first_offset) == producer_id:
                    continue
                hole = next((lost for lost in holes if lost.stop > first_offset + 1), None)
                if hole is None:
                    continue
                place = max(hole.start, first_offset + 1)
                holes = [range(place + 1, hole.stop) if lost is hole else lost for lost in holes]
                entry = self._end(producer_id, place, state)
                logger.error(
                    "%s: the marker of a transaction of producer %d was lost with offsets %d to %d;"
                    " its records from offset %d on count as aborted",
                    self._directory,
                    producer_id,
                    hole.start,
                    hole.stop - 1,
                    first_offset,
                )
                if entry is not None:
                    replayed.aborted.append(entry)
        state.restore(after.snapshot())

    def _end(
        self, producer_id: int, offset: int, state: ProducerState
    ) -> AbortedTransaction | None:
        producer = state.get(producer_id)
        assert producer is not None
        return state.note_marker(
            producer_id,
            producer.producer_epoch,
            is_commit=False,
            coordinator_epoch=producer.coordinator_epoch,
            offset=offset,
            timestamp=self._wall_ms,
        )

    @staticmethod
    def _correct_index(replayed: _Replayed, *, knows_all: bool) -> CorrectIndex:
        """Return the correct content of a replayed segment's transaction index.

        Unless `knows_all`, the file's entries for `unknown` markers are kept: their transactions
        may have begun in segments that have been deleted with their producer state.
        """
        kept = [
            entry
            for entry in replayed.found or ()
            if not knows_all and entry.last_offset in replayed.unknown
        ]
        entries = sorted({*replayed.aborted, *kept}, key=lambda entry: entry.last_offset)
        return CorrectIndex(entries, replayed.found)

    def _renew(self, segment: LogSegment, right: CorrectIndex) -> None:
        index = segment.aborted
        if index is not None and right.matches(len(index)):
            index.accept()
        elif right.entries:
            index = index or segment.add_transaction_index(self._files)
            index.replace_all(right.entries)
        elif index is not None:
            segment.aborted = None
            with suppress(FileNotFoundError):
                self._files.remove(segment.path(TRANSACTION_INDEX_SUFFIX))


class _Replayed(NamedTuple):
    aborted: list[AbortedTransaction]
    """The aborted transactions, in the order of their markers."""
    found: list[AbortedTransaction] | None
    """The entries of the segment's index file; None if it is missing or malformed."""
    unknown: set[int]
    """Offsets of control batches that abort no known open transaction."""
    holes: list[range]
    """The offsets without an intact batch."""

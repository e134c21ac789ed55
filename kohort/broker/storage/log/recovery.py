"""Recovers a log after an unclean shutdown: reads untrusted data, and truncates torn data.

Everything below the recovery point is known to be on disk and is not examined, except for a few
batches. From there on every batch is verified: CRC, length, neighbours, leader epoch. The log ends
before the first batch that fails: it is truncated there and later segments are removed, as in
Kafka. Both indexes are rebuilt on the way, and the remaining data is flushed to disk, so that no
client reads it before it is durable.

Damage below the recovery point is different. The shutdown did not cause it, and later batches were
acknowledged, so it is skipped and kept: reading it gives CORRUPT_MESSAGE.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from kohort.broker.storage.checkpoints.leader_epochs import LeaderEpochs
from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.segment.batch_walk import MANY_BYTES, BatchAt, find_batch
from kohort.broker.storage.segment.indexes import IndexEntry, TimestampOffset
from kohort.broker.storage.segment.search import (
    REBUILD_INTERVAL_BYTES,
    header_of_entry,
    next_indexed_batch,
)
from kohort.broker.storage.segment.segment import LogSegment
from kohort.broker.storage.segment.times import batch_of_entry
from kohort.protocol.records.batch import NO_TIMESTAMP

logger = logging.getLogger(__name__)

REPORT_BYTES = 256 << 20
"""A segment with more bytes to verify than this is logged, to explain a long startup."""

PROGRESS_BYTES = 4 << 20
"""Verified bytes are reported in steps of this size."""


class Recovered(NamedTuple):
    end_offset: int
    is_end_valid: bool
    """Whether the segment can be appended to; otherwise the next batch begins a new one."""


def recover_segment(
    segment: LogSegment,
    recovery_point: int,
    epochs: LeaderEpochs,
    leader_epoch_max: int,
    on_verified: Callable[[int], None] | None = None,
) -> Recovered:
    """Verify a segment from the recovery point on, truncate damage, complete its indexes.

    Raises OSError. The batches' epochs are added to `epochs`.

    Args:
        leader_epoch_max: no batch can have been written in a later epoch.
        on_verified: called with the number of bytes verified since the last call.
    """
    start, offset = _start_of_scan(segment, recovery_point)
    if segment.size_bytes - start > REPORT_BYTES:
        logger.info("verifying %r from byte %d", segment, start)
    # A failed fsync leaves pages in the cache that look clean but never reached the disk. What is
    # verified here must be the content of the disk; dirty pages are not dropped.
    segment.log.drop_cached()
    scan = _Scan(segment, epochs, leader_epoch_max, start, offset, on_verified)
    is_end_valid = True
    while (problem := scan.run()) is not None:
        if scan.end_offset >= recovery_point:
            cut_bytes = segment.size_bytes - scan.position
            text = "%s; truncated %d bytes of %r, from offset %d on"
            logger.warning(text, problem, cut_bytes, segment, scan.end_offset)
            segment.truncate(scan.position)
            break
        logger.error("%s; it had been flushed before the broker stopped, so it is kept", problem)
        resumed = _way_past_damage(segment, scan.position, recovery_point)
        if resumed is None:
            scan.end_offset, is_end_valid = recovery_point, False
            break
        scan.resume(resumed)
    scan.write_indexes(start, offset)
    segment.sync(with_indexes=True)
    return Recovered(scan.end_offset, is_end_valid)


class _Scan:
    """Walks from batch to batch and collects index entries."""

    def __init__(
        self,
        segment: LogSegment,
        epochs: LeaderEpochs,
        leader_epoch_max: int,
        position: int,
        end_offset: int,
        on_verified: Callable[[int], None] | None,
    ) -> None:
        self.position = position
        """The position after the last valid batch."""
        self.end_offset = end_offset
        """The offset after the last valid batch."""
        self._segment = segment
        self._epochs = epochs
        self._leader_epoch_max = leader_epoch_max
        self._on_verified = on_verified or (lambda _: None)
        self._entries: list[IndexEntry] = []
        self._times: list[TimestampOffset] = []
        self._latest = TimestampOffset(NO_TIMESTAMP, -1)

    def run(self) -> CorruptBatchError | None:
        """Walk to the segment's end and return None, or to a damaged batch and return its error."""
        start = indexed = reported = self.position
        batches = self._segment.walk(start, self.end_offset, check_crc=True, chunk_bytes=MANY_BYTES)
        try:
            for batch in batches:
                self._learn_epoch(batch)
                header = batch.header
                if header.max_timestamp > self._latest.timestamp:
                    self._latest = TimestampOffset(header.max_timestamp, header.last_offset)
                if batch.position - indexed > REBUILD_INTERVAL_BYTES:
                    self._entries.append(IndexEntry(header.last_offset, batch.position))
                    self._times.append(self._latest)
                    indexed = batch.position
                self.position, self.end_offset = batch.stop, header.next_offset
                if self.position - reported >= PROGRESS_BYTES:
                    self._on_verified(self.position - reported)
                    reported = self.position
        except CorruptBatchError as error:
            return error
        finally:
            self._segment.note_verified(start, self.position)
        return None

    def resume(self, batch: BatchAt) -> None:
        """Continue at a batch after damage, and add an index entry for it."""
        self.position, self.end_offset = batch.position, batch.header.base_offset
        self._entries.append(IndexEntry(batch.header.last_offset, batch.position))

    def _learn_epoch(self, batch: BatchAt) -> None:
        offset, epoch = batch.header.base_offset, batch.header.partition_leader_epoch
        known = self._epochs.epoch_at(offset)
        if epoch == known:
            return
        if not self._epochs.latest < epoch <= self._leader_epoch_max:
            raise CorruptBatchError(
                f"{self._segment!r}: batch at {batch.position}, offset {offset}, has epoch {epoch},"
                f" not {known}"
            )
        self._epochs.assign(epoch, offset)

    def write_indexes(self, start: int, offset: int) -> None:
        """Replace the index entries at or after this position and offset by those of the scan."""
        segment = self._segment
        segment.index.keep_first(segment.index.find_position(start - 1) + 1)
        segment.time_index.keep_up_to(offset - 1)
        for entry in self._entries:
            segment.index.append(*entry)
        for timestamp, last_offset in self._times:
            segment.time_index.append_if_later(timestamp, last_offset)
        segment.max_timestamp, segment.max_timestamp_offset = self._latest
        try:
            segment.complete_indexes()
        except OSError as error:
            # A full disk must not prevent reading a log: entries are hints, and stay in memory.
            logger.warning("indexes of %r cannot be written: %s", segment, error)


def _way_past_damage(segment: LogSegment, position: int, recovery_point: int) -> BatchAt | None:
    """Return the batch at which to continue after a damaged one at `position`, or None.

    It is the next batch in the old index, or the batch that starts at the recovery point if that
    batch is earlier.
    """
    indexed = next_indexed_batch(segment, position)
    if indexed is not None and indexed.header.base_offset <= recovery_point:
        return indexed
    return find_batch(segment.log, position, segment.size_bytes, recovery_point) or indexed


def _start_of_scan(segment: LogSegment, recovery_point: int) -> tuple[int, int]:
    """Return (position, base offset) of the batch to start with, at or before the recovery point.

    It is the segment's first batch or has an entry in the time index, so no earlier batch has a
    later timestamp, and the scan finds the segment's latest timestamp.
    """
    number = segment.time_index.find_offset(recovery_point)
    batch = batch_of_entry(segment, segment.time_index[number]) if number >= 0 else None
    return (0, segment.base_offset) if batch is None else (batch.position, batch.header.base_offset)


def find_end(segment: LogSegment) -> int | None:
    """Return the offset after the last batch, walking from the last good index entry on.

    None if a batch on the way is damaged. Raises OSError.
    """
    number = len(segment.index) - 1
    position, end_offset = 0, segment.base_offset
    header = header_of_entry(segment, number) if number >= 0 else None
    if header is not None:
        position, end_offset = segment.index[number].position, header.base_offset
    try:
        for batch in segment.walk(position, end_offset, check_crc=True, chunk_bytes=MANY_BYTES):
            end_offset = batch.header.next_offset
    except CorruptBatchError as error:
        logger.warning("%s", error)
        return None
    return end_offset

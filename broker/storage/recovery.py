"""Bringing a log back after an unclean stop: what is not trusted is read, what is torn is cut off.

Everything below the recovery point is known to be on the disk and is not looked at. From there on
every batch is verified: CRC, length, neighbours, leader epoch. At the first one that fails the log
ends: it is truncated there and later segments are removed, as in Kafka. Both indexes are rebuilt on
the way, and what was kept is forced to disk, so that nobody is told of it before it is there.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from broker.storage.batch_walk import MANY_BYTES, BatchAt, walk_batches
from broker.storage.errors import CorruptBatchError
from broker.storage.leader_epochs import LeaderEpochs
from broker.storage.segment import LogSegment
from broker.storage.segment_search import REBUILD_INTERVAL_BYTES, header_of_entry
from broker.storage.segment_times import batch_of_entry
from protocol.records.batch import NO_TIMESTAMP

logger = logging.getLogger(__name__)

REPORT_BYTES = 256 << 20
"""A segment with more to verify is announced, so that a long start explains itself."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of one segment."""

    end_offset: int
    """Where the next batch goes."""
    cut_bytes: int
    """Taken off its end; 0 if all of it was good."""


def recover_segment(
    segment: LogSegment, recovery_point: int, epochs: LeaderEpochs, leader_epoch_max: int
) -> Recovered:
    """Verify a segment from the recovery point on, cut off what is bad, complete its indexes.

    Raises OSError. `epochs` learns what the batches say.

    Args:
        leader_epoch_max: no batch can have been written in a later epoch.
    """
    start, end_offset = _start_of_scan(segment, recovery_point)
    if segment.size_bytes - start > REPORT_BYTES:
        logger.info("verifying %r from byte %d", segment, start)
    # A failed fsync leaves pages in the cache that look clean and never reached the disk. What is
    # verified here must be what the disk holds; pages still to be written are not dropped.
    segment.log.drop_cached()
    _forget_indexes_from(segment, start, end_offset)
    position = indexed = start
    batches = walk_batches(
        segment.log,
        start,
        segment.size_bytes,
        expected_offset=end_offset,
        check_crc=True,
        chunk_bytes=MANY_BYTES,
    )
    reason: CorruptBatchError | None = None
    try:
        for batch in batches:
            _learn_epoch(batch, epochs, leader_epoch_max)
            _note_timestamp(segment, batch)
            if batch.position - indexed > REBUILD_INTERVAL_BYTES:
                segment.add_index_entries(batch.header.last_offset, batch.position)
                indexed = batch.position
            position, end_offset = batch.stop, batch.header.next_offset
    except CorruptBatchError as error:
        reason = error
    cut_bytes = segment.size_bytes - position
    if reason is not None:
        logger.warning("%s; %d bytes are cut off %r", reason, cut_bytes, segment)
        segment.truncate(position)
    segment.verified.add(start, position)
    segment.complete_indexes()
    segment.sync(with_indexes=True)
    return Recovered(end_offset, cut_bytes)


def _start_of_scan(segment: LogSegment, recovery_point: int) -> tuple[int, int]:
    """(position, base offset) of the batch to start with, at or before the recovery point.

    It is one that the time index has an entry for: that no batch before it is as late is known, and
    so the latest timestamp of the segment is found without looking at all of them.
    """
    number = segment.time_index.find_offset(recovery_point)
    batch = batch_of_entry(segment, segment.time_index[number]) if number >= 0 else None
    return (0, segment.base_offset) if batch is None else (batch.position, batch.header.base_offset)


def _forget_indexes_from(segment: LogSegment, position: int, offset: int) -> None:
    segment.index.keep_first(segment.index.find_position(position - 1) + 1)
    segment.time_index.keep_up_to(offset - 1)
    segment.max_timestamp, segment.max_timestamp_offset = NO_TIMESTAMP, -1


def _learn_epoch(batch: BatchAt, epochs: LeaderEpochs, leader_epoch_max: int) -> None:
    offset, epoch = batch.header.base_offset, batch.header.partition_leader_epoch
    known = epochs.epoch_at(offset)
    if epoch == known:
        return
    if not epochs.latest < epoch <= leader_epoch_max:
        raise CorruptBatchError(f"batch at offset {offset} has leader epoch {epoch}, not {known}")
    epochs.assign(epoch, offset)


def _note_timestamp(segment: LogSegment, batch: BatchAt) -> None:
    header = batch.header
    assert segment.max_timestamp is not None
    if header.max_timestamp > segment.max_timestamp:
        segment.max_timestamp = header.max_timestamp
        segment.max_timestamp_offset = header.last_offset


def find_end(segment: LogSegment) -> int | None:
    """The offset behind the last batch, by the headers from the last good index entry on.

    None if damage lies there. Raises OSError.
    """
    number = len(segment.index) - 1
    position, end_offset = 0, segment.base_offset
    header = header_of_entry(segment, number) if number >= 0 else None
    if header is not None:
        position, end_offset = segment.index[number].position, header.base_offset
    try:
        for batch in segment.walk(position, end_offset):
            end_offset = batch.header.next_offset
    except CorruptBatchError as error:
        logger.warning("%s", error)
        return None
    return end_offset

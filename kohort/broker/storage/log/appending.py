"""Appends batches to the end of a log, and starts new segments."""

import logging
from typing import NamedTuple, NoReturn

from kohort.broker.config.topic import TopicConfig
from kohort.broker.storage.checkpoints.producer_log import note_control
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.filesystem import Buffer
from kohort.broker.storage.log.recovery import find_end
from kohort.broker.storage.log.state import LogState
from kohort.broker.storage.segment.indexes import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from kohort.broker.storage.segment.segment import POSITION_MAX, LogSegment
from kohort.broker.storage.segment.times import load_first_timestamp, load_max_timestamp
from kohort.protocol.records.batch import (
    CONTROL_BIT,
    LENGTH_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    PLACEMENT_BYTES,
    BatchHeader,
    placement_prefix,
)

logger = logging.getLogger(__name__)


class Written(NamedTuple):
    base_offset: int
    last_offset: int
    is_rolled: bool = False
    """Whether a new segment was started for the batch."""


class LogAppender(LogState):
    """Appends batches to a log. Its methods may raise StorageError."""

    _is_ready = False
    """Whether everything that an append needs is loaded."""

    def append(
        self, batch: Buffer, header: BatchHeader, *, leader_epoch: int, wall_ms: int
    ) -> Written:
        """Write one validated batch to the page cache; `flush` makes it durable.

        On StorageError the batch is not in the log; `failed` says whether the log has failed for
        good.

        Args:
            batch: exactly one batch; the caller may reuse the buffer after the call.
            header: the header of that batch.
        """
        before = self.segments[-1]
        if not self.is_usable or not self._is_ready:
            self._prepare(wall_ms)
        assert len(batch) == header.length + LENGTH_OVERHEAD_BYTES
        active = self.segments[-1]
        base_offset = self.log_end_offset
        if active.size_bytes and must_roll(active, self.config, header, base_offset, wall_ms):
            active = self._start_segment(wall_ms)
        if leader_epoch != self.epochs.latest:
            with self.errors_as("the leader epoch cannot be stored"):
                self.assign_epoch(leader_epoch)
        prefix = placement_prefix(base_offset, header.length, leader_epoch)
        parts = (prefix, memoryview(batch)[PLACEMENT_BYTES:])
        try:
            active.append(parts, header, base_offset, self.config.index_interval_bytes)
        except OSError as error:
            self._undo(active, error)
        last_offset = base_offset + header.last_offset_delta
        self.log_end_offset = last_offset + 1
        if header.producer_id >= 0:
            if header.attributes & CONTROL_BIT:
                self._note_control(active, batch, header, base_offset, wall_ms)
            else:
                self.producers.note_appended(header, base_offset=base_offset, timestamp=wall_ms)
        return Written(base_offset, last_offset, active is not before)

    def _note_control(
        self, active: LogSegment, batch: Buffer, header: BatchHeader, base_offset: int, wall_ms: int
    ) -> None:
        """Apply a marker to the producers; if it aborts a transaction, add that to the active
        segment's transaction index.
        """
        aborted = note_control(
            self.producers, batch, header, base_offset=base_offset, timestamp=wall_ms
        )
        if aborted is None:
            return
        index = active.aborted
        if index is None:
            index = active.add_transaction_index(self.files)
            self.flusher.note_name(self.path)
            self.has_aborted = True
        try:
            index.append(aborted)
        except OSError as error:
            # Only logged: until the recovery point passes the marker, a start rebuilds the entry
            # from the batches.
            logger.warning("%s cannot be written; the entry stays in memory: %s", index.path, error)

    def roll(self, *, wall_ms: int) -> None:
        """Start a new segment at the end of the log, unless the active one is empty."""
        if not self.is_usable or not self._is_ready:
            self._prepare(wall_ms)
        if self.active.size_bytes:
            self._start_segment(wall_ms)

    def _start_segment(self, wall_ms: int) -> LogSegment:
        active = self.active
        before_roll = self.terms.before_roll
        with self.errors_as("a new segment cannot be started"):
            if before_roll is not None:
                before_roll()
            active.complete_indexes()
            self.write_snapshot()
            started = LogSegment.create(self.files, self.path, self.log_end_offset, wall_ms)
        active.is_sealed = True
        self.segments = (*self.segments, started)
        self.flusher.note_name(self.path)
        self.try_note_checksums()
        return started

    def _prepare(self, wall_ms: int) -> None:
        """Load the state that appends need, and verify that the log ends with a whole batch."""
        self.check_usable()
        active = self.active
        with self.errors_as("the log cannot be prepared for appending"):
            self.load()
            found = self.log_end_offset if self.is_tail_known else find_end(active)
            is_damaged = found != self.log_end_offset or load_max_timestamp(active) is None
        if is_damaged:
            # Damaged data stays, so that it can be repaired; nothing may be appended after it,
            # because readers walk from batch to batch and cannot pass the damage.
            self.log_end_offset = max(self.log_end_offset, found or 0)
            logger.warning("%r has a damaged end; a new segment is used", active)
            self._start_segment(wall_ms)
        self.is_tail_known = True
        self._is_ready = True

    def _undo(self, active: LogSegment, error: OSError) -> NoReturn:
        """Undo a failed append, which may have written a part of the batch."""
        try:
            active.undo_append()
        except OSError as second:
            self.fail(f"{self.path}: {error}; what was written cannot be undone: {second}")
        raise StorageError(f"{self.path}: nothing was appended: {error}") from error


def must_roll(
    active: LogSegment, config: TopicConfig, header: BatchHeader, base_offset: int, wall_ms: int
) -> bool:
    """Whether a batch must start a new segment, by Kafka's rules; `active` is not empty."""
    size_bytes = active.size_bytes + header.length + LENGTH_OVERHEAD_BYTES
    if size_bytes > config.segment_bytes or size_bytes > POSITION_MAX:
        return True
    if base_offset + header.last_offset_delta - active.base_offset > RELATIVE_OFFSET_MAX:
        return True
    if active.unindexed_bytes > config.index_interval_bytes and _are_indexes_full(active, config):
        return True
    segment_ms = config.segment_ms
    if config.max_compaction_lag_ms < segment_ms and "compact" in config.cleanup_policy:
        # Roll early enough for max.compaction.lag.ms: the active segment is never compacted.
        segment_ms = config.max_compaction_lag_ms
    first = active.first_timestamp
    if first is None:
        first = load_first_timestamp(active)
    if first != NO_TIMESTAMP:
        return header.max_timestamp - first > segment_ms
    return wall_ms - active.created_ms > segment_ms


def _are_indexes_full(active: LogSegment, config: TopicConfig) -> bool:
    """Whether an index has no room for the next entry."""
    limit = config.segment_index_bytes
    return (
        len(active.index) >= limit // OffsetIndex.entry.size
        or len(active.time_index) >= limit // TimeIndex.entry.size - 1
    )

"""Appends batches to the end of a log, and starts new segments."""

import logging
from typing import NamedTuple, NoReturn

from kohort.broker.storage.checkpoints.producer_log import note_control
from kohort.broker.storage.config import LogConfig
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
    """Whether a new segment was started for it."""


class LogAppender:
    """Appends to one log. All methods belong to one thread and may raise StorageError."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._is_ready = False
        """Whether everything that an append needs is loaded."""

    def append(
        self, batch: Buffer, header: BatchHeader, config: LogConfig, leader_epoch: int, wall_ms: int
    ) -> Written:
        state = self._state
        before = state.segments[-1]
        if not state.is_usable or not self._is_ready:
            self._prepare(wall_ms)
        assert len(batch) == header.length + LENGTH_OVERHEAD_BYTES
        active = state.segments[-1]
        base_offset = state.end_offset
        if active.size_bytes and must_roll(active, config, header, base_offset, wall_ms):
            active = self._start_segment(wall_ms)
        if leader_epoch != state.epochs.latest:
            with state.errors_as("the leader epoch cannot be stored"):
                state.assign_epoch(leader_epoch)
        prefix = placement_prefix(base_offset, header.length, leader_epoch)
        parts = (prefix, memoryview(batch)[PLACEMENT_BYTES:])
        try:
            active.append(parts, header, base_offset, config.index_interval_bytes)
        except OSError as error:
            self._undo(active, error)
        last_offset = base_offset + header.last_offset_delta
        state.end_offset = last_offset + 1
        if header.producer_id >= 0:
            if header.attributes & CONTROL_BIT:
                self._note_control(active, batch, header, base_offset, wall_ms)
            else:
                state.producers.note_appended(header, base_offset=base_offset, timestamp=wall_ms)
        return Written(base_offset, last_offset, active is not before)

    def _note_control(
        self, active: LogSegment, batch: Buffer, header: BatchHeader, base_offset: int, wall_ms: int
    ) -> None:
        """Process a marker; add an aborted transaction to its segment's index."""
        state = self._state
        aborted = note_control(
            state.producers, batch, header, base_offset=base_offset, timestamp=wall_ms
        )
        if aborted is None:
            return
        index = active.aborted
        if index is None:
            index = active.add_transaction_index(state.files)
            state.flusher.note_name(state.directory)
            state.has_aborted = True
        try:
            index.append(aborted)
        except OSError as error:
            # It must be on disk before the recovery point passes it; until then it is only a hint.
            logger.warning("%s cannot be written; the entry stays in memory: %s", index.path, error)

    def roll(self, wall_ms: int) -> None:
        """Start a new segment at the end of the log, unless the active one is empty."""
        if not self._state.is_usable or not self._is_ready:
            self._prepare(wall_ms)
        if self._state.active.size_bytes:
            self._start_segment(wall_ms)

    def _start_segment(self, wall_ms: int) -> LogSegment:
        state = self._state
        active = state.active
        before_roll = state.terms.before_roll
        with state.errors_as("a new segment cannot be started"):
            if before_roll is not None:
                before_roll()
            active.complete_indexes()
            state.write_snapshot()
            started = LogSegment.create(state.files, state.directory, state.end_offset, wall_ms)
        active.is_sealed = True
        state.segments = (*state.segments, started)
        state.flusher.note_name(state.directory)
        state.try_note_checksums()
        return started

    def _prepare(self, wall_ms: int) -> None:
        """Load what appends need, and make sure that they follow the last whole batch."""
        state = self._state
        state.check_usable()
        active = state.active
        with state.errors_as("the log cannot be prepared for appending"):
            state.load()
            found = state.end_offset if state.is_tail_known else find_end(active)
            is_damaged = found != state.end_offset or load_max_timestamp(active) is None
        if is_damaged:
            # Damaged data stays, so that it can be repaired; nothing may be appended after it,
            # because readers walk from batch to batch and cannot pass the damage.
            state.end_offset = max(state.end_offset, found or 0)
            logger.warning("%r has a damaged end; a new segment is used", active)
            self._start_segment(wall_ms)
        state.is_tail_known = True
        self._is_ready = True

    def _undo(self, active: LogSegment, error: OSError) -> NoReturn:
        """Undo a failed append, which may have written a part of the batch."""
        state = self._state
        try:
            active.undo_append()
        except OSError as second:
            state.fail(f"{state.directory}: {error}; what was written cannot be undone: {second}")
        raise StorageError(f"{state.directory}: nothing was appended: {error}") from error


def must_roll(
    active: LogSegment, config: LogConfig, header: BatchHeader, base_offset: int, wall_ms: int
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
        # The active segment is never compacted.
        segment_ms = config.max_compaction_lag_ms
    first = active.first_timestamp
    if first is None:
        first = load_first_timestamp(active)
    if first != NO_TIMESTAMP:
        return header.max_timestamp - first > segment_ms
    return wall_ms - active.created_ms > segment_ms


def _are_indexes_full(active: LogSegment, config: LogConfig) -> bool:
    """Whether an index has no room for the next entry."""
    limit = config.segment_index_bytes
    return (
        len(active.index) >= limit // OffsetIndex.entry.size
        or len(active.time_index) >= limit // TimeIndex.entry.size - 1
    )

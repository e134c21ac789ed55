"""Compaction: keeps the last value of every key in a log.

A log is clean up to an offset that the caller stores (Kafka's cleaner-offset-checkpoint) and dirty
after it. `plan_compaction` decides whether the dirty part is large enough. A `Compaction` then
reads the dirty part and collects the latest offset of every key, until its memory is full. It
rewrites the segments up to that point without records that have a later value, and replaces the old
segments by the new ones (:mod:`kohort.broker.storage.segment.swap`). The active segment is never
compacted, nor any segment beyond the last stable offset.

Why a deleted key never comes back, however far a run gets and wherever it is interrupted:

- Segments are rewritten in groups of adjacent ones, from the oldest on, and a group is replaced
  before the next is read. So a tombstone gets its delete horizon only when the records it deletes
  are gone, and an interrupted run has made progress.
- Batches after the part whose keys were collected are kept unchanged.
- A log counts as clean only up to where every group was replaced and its directory is synced, and
  only as far as it has been flushed to disk. Otherwise a power failure could lose the later record
  of a key, or restore the earlier one although the checkpoint says it is gone.

`plan_compaction` and `swap` run in the log's thread and are quick; `work` may run in any thread,
one call at a time. Retention may delete segments meanwhile; their replacement is then rebuilt from
the remaining ones.
"""

import logging
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from kohort.broker.storage.compaction.filter import (
    AbortedRanges,
    RetentionTerms,
    TransactionPass,
    filler,
    filter_batch,
    note_keys,
)
from kohort.broker.storage.compaction.key_offsets import KeyOffsets
from kohort.broker.storage.errors import CorruptBatchError, StorageError
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.segment.batch_walk import MANY_BYTES, BatchAt, walk_batches
from kohort.broker.storage.segment.cleaned_segment import CleanedSegment
from kohort.broker.storage.segment.indexes import RELATIVE_OFFSET_MAX
from kohort.broker.storage.segment.segment import LogSegment, with_ends
from kohort.broker.storage.segment.times import load_first_timestamp, load_max_timestamp
from kohort.protocol.errors import DecodeError

logger = logging.getLogger(__name__)

STEP_BYTES = 64 << 10
"""Bytes read between two pauses: two milliseconds of work. A thread that never pauses makes the
event loop wait for the interpreter's switch interval, 5 ms, each time it has something to do."""


class CompactionPlan(NamedTuple):
    segments: tuple[LogSegment, ...]
    """The segments that may be compacted, from the first one of the log on; all are sealed."""
    first_dirty_offset: int
    end_offset: int
    """The end offset of the last segment."""
    dirty_ratio: float
    """Bytes of the dirty segments, as a share of all `segments`."""


def plan_compaction(
    log: PartitionLog, *, first_dirty_offset: int, up_to_offset: int, wall_ms: int
) -> CompactionPlan | None:
    """Return what to compact now; None if there is not enough to do yet. Raises StorageError.

    Args:
        first_dirty_offset: where the last compaction stopped, 0 if there was none.
        up_to_offset: the last stable offset; segments beyond it are left alone.
    """
    config = log.config
    if "compact" not in config.cleanup_policy or log.failed:
        return None
    try:
        segments = _cleanable(log, up_to_offset, wall_ms)
        if not segments:
            return None
        end_offset = log.segments[len(segments)].base_offset
        if not log.log_start_offset <= first_dirty_offset <= end_offset:
            first_dirty_offset = log.log_start_offset  # The log was truncated or deleted meanwhile.
        dirty = [
            segment
            for segment, following in zip(segments, log.segments[1:], strict=False)
            if following.base_offset > first_dirty_offset
        ]
        size_bytes = sum(segment.size_bytes for segment in segments)
        ratio = sum(segment.size_bytes for segment in dirty) / size_bytes if size_bytes else 0.0
        is_overdue = any(
            _first_written_ms(segment) < wall_ms - config.max_compaction_lag_ms for segment in dirty
        )
    except OSError as error:
        raise StorageError(f"{log!r} cannot be read for compaction: {error}") from error
    if not dirty or (ratio <= config.min_cleanable_dirty_ratio and not is_overdue):
        return None
    return CompactionPlan(tuple(segments), first_dirty_offset, end_offset, ratio)


def _cleanable(log: PartitionLog, up_to_offset: int, wall_ms: int) -> list[LogSegment]:
    """Return the segments from the start of the log that are sealed, undamaged, below the last
    stable offset, and older than min.compaction.lag.ms.
    """
    youngest = wall_ms - log.config.min_compaction_lag_ms
    dirty: list[LogSegment] = []
    for segment, following in zip(log.segments, log.segments[1:], strict=False):
        if following.base_offset > up_to_offset or segment.is_damaged:
            break
        if log.config.min_compaction_lag_ms > 0 and not _is_older(segment, youngest):
            break
        dirty.append(segment)
    return dirty


def _is_older(segment: LogSegment, wall_ms: int) -> bool:
    """Whether the largest timestamp, or else the segment's creation time, is before `wall_ms`."""
    latest = load_max_timestamp(segment)
    return latest is not None and (latest if latest >= 0 else segment.created_ms) < wall_ms


def _first_written_ms(segment: LogSegment) -> int:
    """Return when max.compaction.lag.ms starts, as in Kafka: first timestamp, or else creation."""
    first = load_first_timestamp(segment)
    return first if first > 0 else segment.created_ms


class Compaction:
    """One run over a log: call `work`, then `swap`, until `work` returns False; then `close`."""

    def __init__(
        self, log: PartitionLog, plan: CompactionPlan, *, memory_bytes: int, wall_ms: int
    ) -> None:
        """`memory_bytes` limits the map of keys, and so how much of the log one run covers."""
        self.cleaned_up_to = plan.first_dirty_offset
        """The first dirty offset of the next run; valid once `work` has returned False."""
        self._log = log
        self._plan = plan
        self._wall_ms = wall_ms
        self._offsets = KeyOffsets(
            memory_bytes, offset_span=plan.end_offset - plan.first_dirty_offset
        )
        self._config = log.config
        self._gone: _Gone | None = None
        self._decided_by = log.log_end_offset
        """Every transaction in the planned segments has its marker below this offset."""
        producers = log.producers.snapshot()
        self._last_offsets = {
            taken.producer_id: taken.last_offset for taken in producers if taken.last_offset >= 0
        }
        self._marked_epochs = {
            taken.producer_id: taken.producer_epoch for taken in producers if taken.last_offset < 0
        }
        first_offset = plan.segments[0].base_offset
        self._aborted_reading = log.aborted.reading(first_offset, plan.end_offset)
        self._aborted = AbortedRanges()
        """The aborted transactions in the planned segments. There may be many, so the first `work`
        reads them."""
        self._transactions = TransactionPass(self._aborted)
        self._ready: tuple[list[LogSegment], CleanedSegment] | None = None
        self._steps = self._run()

    def work(self) -> bool:
        """Process STEP_BYTES, or one larger batch; return whether work is left. Only one
        thread may call this at a time.

        Raises StorageError if the disk fails, CorruptBatchError for damage; then only `close` may
        be called.
        """
        try:
            next(self._steps)
        except StopIteration:
            return False
        except OSError as error:
            raise StorageError(f"{self._log!r} cannot be compacted: {error}") from error
        return True

    def swap(self, *, wall_ms: int) -> None:
        """Replace segments if `work` has finished a new one. Raises StorageError."""
        if self._ready is None:
            return
        # Cleared first: if the replacement fails after it is committed, the next start needs the
        # files, and `close` must not delete them.
        (replaced, cleaned), self._ready = self._ready, None
        if not self._log.replace_segments(replaced, cleaned, wall_ms=wall_ms):
            cleaned.discard()

    def close(self) -> None:
        """Delete the files of a new segment that has not replaced others."""
        self._steps.close()
        if self._ready is not None:
            self._ready[1].discard()
            self._ready = None

    def _run(self) -> Generator[None, None, None]:
        if self._log.flushed_offset < self._decided_by:
            # A record may be removed only when the later record with its key is on disk, and also
            # the marker that commits the later record, which may follow far behind it.
            self._log.flush()
        self._aborted = AbortedRanges(self._aborted_reading.read())
        self._transactions = TransactionPass(self._aborted)
        yield from self._note_keys()
        terms = RetentionTerms(
            self._offsets,
            self.cleaned_up_to,
            self._wall_ms,
            self._config.delete_retention_ms,
            self._last_offsets,
            self._marked_epochs,
        )
        segments = [
            segment for segment in self._plan.segments if segment.base_offset < self.cleaned_up_to
        ]
        for group in _grouped(segments, self._config.segment_bytes, self._plan.end_offset):
            before = self._transactions
            while living := [segment for segment in group if not segment.is_deleted]:
                self._transactions = before.copy()
                yield from self._clean(living, terms)
        # The renamed files' names are flushed before the cleaner offset is stored.
        self._log.files.sync_directory(str(self._log.directory))

    def _note_keys(self) -> Iterator[None]:
        """Add the keys of the dirty part to the map, by whole batches, until the map is full."""
        plan = self._plan
        for segment, end in with_ends(plan.segments, plan.end_offset):
            if end <= plan.first_dirty_offset:
                continue
            try:
                has_room = yield from self._note_keys_of(segment)
            except (OSError, CorruptBatchError):
                if not segment.is_deleted:
                    raise
                has_room = True
            if not has_room:
                return
            # The end includes a gap that Kafka's compaction may have left after the last batch.
            self.cleaned_up_to = end

    def _note_keys_of(self, segment: LogSegment) -> Generator[None, None, bool]:
        """Add the keys of one segment to the map; return whether all of them fitted."""
        for batch, data in self._batches(segment):
            if batch is None:
                yield
                continue
            header = batch.header
            if header.next_offset <= self._plan.first_dirty_offset:
                continue
            if self._aborted.holds(header):
                self.cleaned_up_to = header.next_offset
                continue
            if not self._offsets.has_room_for(header.record_count):
                return False
            try:
                note_keys(self._offsets, data, header)
            except DecodeError as error:
                logger.warning("%r: batch at %d is left unchanged: %s", segment, batch[0], error)
            self.cleaned_up_to = header.next_offset
        return True

    def _clean(self, group: list[LogSegment], terms: RetentionTerms) -> Iterator[None]:
        """Create the replacement of a group of segments, and pause until `swap` puts it in place.

        If a segment of the group is deleted meanwhile, nothing is replaced; the caller tries again.
        """
        cleaned = CleanedSegment(
            self._log.files,
            str(self._log.directory),
            group[0].base_offset,
            self._config.index_interval_bytes,
            replaces_aborted=any(segment.aborted is not None for segment in group),
        )
        try:
            for segment in group:
                yield from self._rewrite(segment, cleaned, terms)
            self._fill(cleaned)
            cleaned.finish()
        except (OSError, CorruptBatchError):
            self._gone = None
            cleaned.discard()
            if not any(segment.is_deleted for segment in group):
                raise
            return
        except BaseException:
            cleaned.discard()
            raise
        self._ready = group, cleaned
        yield
        assert self._ready is None, "`swap` must follow each `work`"

    def _rewrite(
        self, segment: LogSegment, cleaned: CleanedSegment, terms: RetentionTerms
    ) -> Iterator[None]:
        for batch, data in self._batches(segment):
            if batch is None:
                yield
                continue
            header = batch.header
            try:
                kept = filter_batch(data, header, terms, self._transactions)
            except DecodeError:
                kept = data
            if header.is_control and kept is not None:
                entry = self._transactions.index_entry(header)
                if entry is not None:
                    cleaned.note_aborted(entry)
            gone = self._gone
            if kept is None and gone and gone.epoch == header.partition_leader_epoch:
                self._gone = gone._replace(last_offset=header.last_offset)
                continue
            self._fill(cleaned)
            if kept is None:
                epoch = header.partition_leader_epoch
                self._gone = _Gone(header.base_offset, header.last_offset, epoch)
            else:
                cleaned.append(kept)

    def _fill(self, cleaned: CleanedSegment) -> None:
        """Append an empty batch that covers the offsets of the removed batches."""
        if self._gone is not None:
            cleaned.append(filler(*self._gone))
            self._gone = None

    def _batches(self, segment: LogSegment) -> Iterator[tuple[BatchAt | None, bytes]]:
        """Yield verified batches of a segment with their bytes, and None when `work` may pause."""
        file = self._log.files.file(segment.log.path)
        walked = walk_batches(
            file,
            0,
            segment.size_bytes,
            expected_offset=segment.base_offset,
            following_offset=segment.following_offset,
            check_crc=True,
            chunk_bytes=MANY_BYTES,
        )
        since_pause = 0
        try:
            segment.check_identity()
            for batch in walked:
                size_bytes = batch.header.size_bytes
                yield batch, file.pread(size_bytes, batch.position)
                since_pause += size_bytes
                if since_pause >= STEP_BYTES:
                    since_pause = 0
                    yield None, b""
        except CorruptBatchError:
            segment.is_damaged = True
            raise
        finally:
            file.close()


class _Gone(NamedTuple):
    """Consecutive batches of one epoch that were removed completely."""

    base_offset: int
    last_offset: int
    epoch: int


def _grouped(
    segments: Sequence[LogSegment], segment_bytes: int, end_offset: int
) -> list[list[LogSegment]]:
    """Group adjacent segments that fit into one segment, so that small ones do not accumulate."""
    groups: list[list[LogSegment]] = []
    size_bytes = 0
    for segment, end in with_ends(segments, end_offset):
        fits = (
            groups
            and size_bytes + segment.size_bytes <= segment_bytes
            and end - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size_bytes = 0
        size_bytes += segment.size_bytes
    return groups

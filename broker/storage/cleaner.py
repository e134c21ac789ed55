"""Compaction: a log that keeps the last value of every key.

A log is clean up to an offset that the caller notes (Kafka's cleaner-offset-checkpoint) and dirty
behind it. `plan_compaction` says whether there is enough dirt to be worth it. A `Compaction` then
reads the dirty part and remembers the latest offset of every key, as many as its memory allows;
rewrites all segments up to there without records that have a later one; and puts the new segments
in the place of the old ones (:mod:`broker.storage.compaction_swap`). The active segment is never
touched.

Three threads' worth of rules: `plan_compaction` and `swap_next` belong to the thread of the log and
are quick; `work` may run on any other, a step at a time. Retention may delete segments meanwhile;
what was made from them is then thrown away.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from broker.storage.batch_walk import MANY_BYTES, BatchAt, walk_batches
from broker.storage.compaction_filter import (
    KeyOffsets,
    RetentionTerms,
    filler,
    filter_batch,
)
from broker.storage.compaction_writer import CleanedSegment
from broker.storage.errors import CorruptBatchError, StorageError
from broker.storage.log import PartitionLog
from broker.storage.offset_index import RELATIVE_OFFSET_MAX
from broker.storage.segment import LogSegment
from broker.storage.segment_times import load_max_timestamp
from protocol.errors import DecodeError
from protocol.lazy_dataclass import dataclass

logger = logging.getLogger(__name__)

STEP_BYTES = 1 << 20
"""Read between two pauses: some milliseconds of work."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a compaction may touch."""

    segments: tuple[LogSegment, ...]
    """From the start of the log; all sealed."""
    first_dirty_offset: int
    end_offset: int
    """Where the last of these segments ends."""
    dirty_ratio: float
    """Bytes of dirty segments among all of these."""


def plan_compaction(
    log: PartitionLog, *, first_dirty_offset: int, up_to_offset: int, wall_ms: int
) -> CompactionPlan | None:
    """What to compact now; None if there is not enough to do yet. Raises StorageError.

    Args:
        first_dirty_offset: as the last compaction left it, 0 if there was none.
        up_to_offset: the high watermark; segments that reach beyond it are left alone.
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
            first_dirty_offset = log.log_start_offset  # The log was cut or deleted meanwhile.
        dirty = [
            segment
            for segment, following in zip(segments, log.segments[1:], strict=False)
            if following.base_offset > first_dirty_offset
        ]
        size_bytes = sum(segment.size_bytes for segment in segments)
        ratio = sum(segment.size_bytes for segment in dirty) / size_bytes if size_bytes else 0.0
        is_overdue = any(_is_older(one, wall_ms - config.max_compaction_lag_ms) for one in dirty)
    except OSError as error:
        raise StorageError(f"{log!r} cannot be looked through for compaction: {error}") from error
    if not dirty or (ratio < config.min_cleanable_dirty_ratio and not is_overdue):
        return None
    return CompactionPlan(tuple(segments), first_dirty_offset, end_offset, ratio)


def _cleanable(log: PartitionLog, up_to_offset: int, wall_ms: int) -> list[LogSegment]:
    """Segments from the start that are sealed, below the high watermark and old enough."""
    youngest = wall_ms - log.config.min_compaction_lag_ms
    found: list[LogSegment] = []
    for segment, following in zip(log.segments, log.segments[1:], strict=False):
        if following.base_offset > up_to_offset or segment.is_damaged:
            break
        if log.config.min_compaction_lag_ms > 0 and not _is_older(segment, youngest):
            break
        found.append(segment)
    return found


def _is_older(segment: LogSegment, wall_ms: int) -> bool:
    """Whether no record of a segment is as young as a time; by its file if no record has a time."""
    latest = load_max_timestamp(segment)
    return latest is not None and (latest if latest >= 0 else segment.created_ms) < wall_ms


class Compaction:
    """One run over one log. Use: `work` until it says so, `swap_next` until False, `close`."""

    def __init__(
        self, log: PartitionLog, plan: CompactionPlan, *, memory_bytes: int, wall_ms: int
    ) -> None:
        """`memory_bytes` bounds the map of keys; with less, a run gets less far."""
        self.cleaned_up_to = plan.first_dirty_offset
        """The first dirty offset of the next run; final once all is swapped."""
        self._log = log
        self._plan = plan
        self._wall_ms = wall_ms
        self._offsets = KeyOffsets(memory_bytes)
        self._config = log.config
        self._gone: _Gone | None = None
        self._terms = RetentionTerms(
            self._offsets,
            wall_ms,
            log.config.delete_retention_ms,
            {taken.producer_id: taken.last_offset for taken in log.producers.snapshot()},
        )
        self._ready: list[tuple[list[LogSegment], CleanedSegment]] = []
        self._steps = self._run()

    def work(self) -> bool:
        """Do one step, of STEP_BYTES or one batch; whether there is more. For one thread at a time.

        Raises StorageError if the disk refuses or damage is met; then `close` is all that is left.
        """
        try:
            next(self._steps)
        except StopIteration:
            return False
        except (OSError, CorruptBatchError) as error:
            raise StorageError(f"{self._log!r} cannot be compacted: {error}") from error
        return True

    def swap_next(self) -> bool:
        """Put one finished segment in its place; whether there was one. For the log's thread.

        Raises StorageError; the log then needs to be opened anew.
        """
        if not self._ready:
            return False
        replaced, cleaned = self._ready.pop(0)
        if not self._log.replace_segments(replaced, cleaned, wall_ms=self._wall_ms):
            cleaned.discard()
        return True

    def close(self) -> None:
        """Throw away what is not in its place."""
        self._steps.close()
        for _, cleaned in self._ready:
            cleaned.discard()
        self._ready.clear()

    def _run(self) -> Generator[None, None, None]:
        yield from self._note_keys()
        segments = [
            segment for segment in self._plan.segments if segment.base_offset < self.cleaned_up_to
        ]
        for group in _grouped(segments, self._config.segment_bytes, self._plan.end_offset):
            yield from self._clean(group)

    def _note_keys(self) -> Iterator[None]:
        """Fill the map from the dirty part, as far as it goes; whole batches only."""
        plan = self._plan
        for segment, end in _with_ends(plan.segments, plan.end_offset):
            if end <= plan.first_dirty_offset:
                continue
            for batch, data in self._batches(segment):
                if batch is None:
                    yield
                    continue
                header = batch.header
                if header.next_offset <= plan.first_dirty_offset:
                    continue
                if not self._offsets.has_room_for(header.record_count):
                    return
                try:
                    self._offsets.note_batch(data, header)
                except DecodeError as error:
                    logger.warning("%r: batch at %d is left alone: %s", segment, batch[0], error)
                self.cleaned_up_to = header.next_offset

    def _clean(self, group: list[LogSegment]) -> Iterator[None]:
        cleaned = CleanedSegment(
            self._log.files,
            str(self._log.directory),
            group[0].base_offset,
            self._config.index_interval_bytes,
        )
        try:
            for segment in group:
                yield from self._rewrite(segment, cleaned)
            self._fill(cleaned)
            cleaned.finish()
        except BaseException:
            cleaned.discard()
            raise
        self._ready.append((group, cleaned))

    def _rewrite(self, segment: LogSegment, cleaned: CleanedSegment) -> Iterator[None]:
        for batch, data in self._batches(segment):
            if batch is None:
                yield
                continue
            header = batch.header
            try:
                kept = filter_batch(data, header, self._terms)
            except DecodeError:
                kept = data
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
        """Cover the offsets of batches that are gone."""
        if self._gone is not None:
            cleaned.append(filler(*self._gone))
            self._gone = None

    def _batches(self, segment: LogSegment) -> Iterator[tuple[BatchAt | None, bytes]]:
        """Every batch of a segment, checked, with its bytes; None where a step may end.

        Reads through a handle of its own, which nobody closes under it.
        """
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
    """Neighbouring batches of one epoch of which nothing is left."""

    base_offset: int
    last_offset: int
    epoch: int


def _with_ends(segments: Sequence[LogSegment], end_offset: int) -> Iterator[tuple[LogSegment, int]]:
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    return zip(segments, ends, strict=True)


def _grouped(
    segments: Sequence[LogSegment], segment_bytes: int, end_offset: int
) -> list[list[LogSegment]]:
    """Neighbours that fit into one segment together, so that small ones do not pile up."""
    groups: list[list[LogSegment]] = []
    size_bytes = 0
    for segment, end in _with_ends(segments, end_offset):
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

"""Reads segments in the log's thread, or in another thread with `LogSegment` objects of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from kohort.broker.storage.errors import OffsetOutOfRangeError
from kohort.broker.storage.log.detached import Detached
from kohort.broker.storage.log.state import LogState
from kohort.broker.storage.segment.indexes import TimestampOffset
from kohort.broker.storage.segment.read import (
    BatchData,
    EpochAt,
    cached_range,
    is_cached,
    read_batches,
)
from kohort.broker.storage.segment.segment import LogSegment, with_ends
from kohort.broker.storage.segment.times import (
    find_max_timestamp,
    find_timestamp,
    load_max_timestamp,
    timestamp_at,
)
from kohort.protocol.records.batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from kohort.broker.storage.file_range import FileRange

SEGMENTS_READ_MAX = 4
"""Maximum segments that one detached read examines. A read continues in the next segment if
compaction has removed all batches from the offset to the end of a segment.
"""


def read_on(
    segments: Sequence[LogSegment],
    offset: int,
    max_bytes: int,
    *,
    end_offset: int,
    limit: int,
    min_one: bool,
    epoch_at: EpochAt,
    as_range: bool,
) -> BatchData | None:
    """Read as `LogReader.read` does, from the first of these segments that has data.

    None if the segments have no batch from `offset` up to `limit`. Raises OSError.

    Args:
        end_offset: end offset of the last segment.
    """
    for number, segment in enumerate(segments, start=1):
        if offset >= limit:
            return None
        next_offset = end_offset if number == len(segments) else segments[number].base_offset
        data = read_batches(
            segment,
            offset,
            max_bytes,
            up_to_offset=limit if limit < next_offset else None,
            min_one=min_one,
            epoch_at=epoch_at,
            as_range=as_range,
        )
        if data is not None:
            return data
        # This segment has lost its end, or is empty after compaction: read the next segment.
    return None


def first_at_or_after(
    segments: Sequence[LogSegment], timestamp: int, start_offset: int
) -> TimestampOffset | None:
    """Return the first record from `start_offset` on whose timestamp is at least `timestamp`.

    None if there is none. Raises OSError, and CorruptBatchError if damage hides the answer.
    """
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start_offset:
            continue
        latest = load_max_timestamp(segment)
        if latest is None or latest >= timestamp:
            found = find_timestamp(segment, timestamp, start_offset)
            if found is not None:
                return found
    return None


def latest_record(segments: Sequence[LogSegment]) -> TimestampOffset | None:
    """Return the first record with the largest timestamp; None if no record has a timestamp.

    Raises OSError, and CorruptBatchError if the record is in a damaged batch.
    """
    latest = NO_TIMESTAMP
    holder: LogSegment | None = None
    for segment in segments:
        timestamp = load_max_timestamp(segment)
        if timestamp is not None and timestamp > latest:
            latest, holder = timestamp, segment
    return None if holder is None else find_max_timestamp(holder)


def first_timestamp_from(segments: Sequence[LogSegment], offset: int) -> int | None:
    """Return the timestamp of the first record at or after `offset`; NO_TIMESTAMP if the record has
    none, None if there is no such record. `offset` must not be below the first segment.

    Raises OSError, and CorruptBatchError if damage hides the answer.
    """
    for segment in segments:
        found = timestamp_at(segment, offset)
        if found is not None:
            return found
    return None


class LogReader(LogState):
    """The read operations of a log. `detached_*` return queries to run in another thread, with
    `LogSegment` objects of their own; all other methods may be called only in the log's thread.

    Methods may raise StorageError, and CorruptBatchError if damage hides the result.
    """

    def read(self, offset: int, max_bytes: int, *, up_to_offset: int, min_one: bool) -> bytes:
        """Return whole batches, starting with the one that contains `offset`, all from one segment.

        b"" at the end, and without `min_one` also if the first batch is longer than `max_bytes`.
        Raises OffsetOutOfRangeError.

        Args:
            up_to_offset: return only batches that end before this offset.
        """
        data = self._read(offset, max_bytes, up_to_offset, min_one=min_one, as_range=False)
        assert isinstance(data, bytes)
        return data

    def read_cached(
        self, offset: int, max_bytes: int, *, up_to_offset: int, min_one: bool, as_range: bool
    ) -> BatchData | None:
        """Like `read`, but return None if it might have to verify data or access the disk.

        Args:
            as_range: return large data as a file range, for sendfile.
        """
        self._check_readable(offset)
        if as_range:
            found = self._find_range(offset, max_bytes, up_to_offset)
            if found is not None:
                return found
        if not self.active.is_recent(offset):
            with self.errors_as("cannot be read"):
                segment = self.segments[self.segment_number(offset)]
                if not is_cached(segment, offset, max_bytes):
                    return None
        return self._read(offset, max_bytes, up_to_offset, min_one=min_one, as_range=as_range)

    def _find_range(self, offset: int, max_bytes: int, up_to_offset: int) -> FileRange | None:
        """Like `read_cached`, but return a file range or None; None even for some cached data."""
        number = self.segment_number(offset)
        if up_to_offset < self.end_of_segment(number):
            return None
        try:
            return cached_range(self.segments[number], offset, max_bytes)
        except OSError:
            # The data is not in the page cache, or it is damaged, which `_read` will report.
            return None

    def _read(
        self, offset: int, max_bytes: int, up_to_offset: int, *, min_one: bool, as_range: bool
    ) -> BatchData:
        self._check_readable(offset)
        segments = self.segments[self.segment_number(offset) :]
        with self.errors_as("cannot be read"):
            data = read_on(
                segments,
                offset,
                max_bytes,
                end_offset=self.log_end_offset,
                limit=min(up_to_offset, self.log_end_offset),
                min_one=min_one,
                epoch_at=self.epochs.epoch_at,
                as_range=as_range,
            )
        return b"" if data is None else data

    def detached_read(
        self, offset: int, max_bytes: int, *, up_to_offset: int, min_one: bool, as_range: bool
    ) -> Detached[BatchData | None]:
        """Return `read` as a query for another thread. It reads at most SEGMENTS_READ_MAX segments.
        If these have no data, its result is None: then call `read`.
        """
        self._check_readable(offset)
        number = self.segment_number(offset)
        asked = self.segments[number : number + SEGMENTS_READ_MAX]
        read = partial(
            read_on,
            offset=offset,
            max_bytes=max_bytes,
            end_offset=self.end_of_segment(number + len(asked) - 1),
            limit=min(up_to_offset, self.log_end_offset),
            min_one=min_one,
            epoch_at=self.epochs.epoch_at,
            as_range=as_range,
        )
        return Detached(self.path, asked, read)

    def offset_for_timestamp(self, timestamp: int, *, up_to_offset: int) -> TimestampOffset | None:
        """Return the first record whose timestamp is at least `timestamp`; None if there is none
        below `up_to_offset`.
        """
        self.check_usable()
        with self.errors_as("timestamps cannot be read"):
            entry = first_at_or_after(self.segments, timestamp, self.log_start_offset)
        return entry if entry is not None and entry.offset < up_to_offset else None

    def detached_offset_for_timestamp(self, timestamp: int) -> Detached[TimestampOffset | None]:
        """Like `offset_for_timestamp` up to the log's end, but as a query for another thread."""
        self.check_usable()
        start_offset = self.log_start_offset
        asked = []
        late_count = 0
        for segment, end_offset in with_ends(self.segments, self.log_end_offset):
            latest = segment.max_timestamp
            if end_offset <= start_offset or (latest is not None and latest < timestamp):
                continue
            asked.append(segment)
            late_count += latest is not None
            # In the first segment whose latest record is late enough, that record may be below the
            # log start. In the second one it is not, so no further segment is needed.
            if late_count == 2:
                break
        return Detached(
            self.path, asked, lambda twins: first_at_or_after(twins, timestamp, start_offset)
        )

    def max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the latest timestamp; None if no record has a timestamp."""
        self.check_usable()
        with self.errors_as("timestamps cannot be read"):
            return latest_record(self.segments)

    def detached_max_timestamp(self) -> Detached[TimestampOffset | None]:
        self.check_usable()
        known = [segment for segment in self.segments if segment.max_timestamp is not None]
        best = max(known, key=lambda segment: segment.max_timestamp or 0, default=None)
        asked = [
            segment for segment in self.segments if segment is best or segment.max_timestamp is None
        ]
        return Detached(self.path, asked, latest_record)

    def detached_timestamp_at(self, offset: int) -> Detached[int | None]:
        """Return a query for another thread: the timestamp of the first record at or after
        `offset`; NO_TIMESTAMP if it has none, None if there is no such record.
        """
        self.check_usable()
        wanted = max(offset, self.log_start_offset)
        first = self.segment_number(wanted)
        asked = self.segments[first : first + SEGMENTS_READ_MAX]
        return Detached(self.path, asked, lambda twins: first_timestamp_from(twins, wanted))

    def _check_readable(self, offset: int) -> None:
        self.check_usable()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(f"{offset} is not in {self!r}")

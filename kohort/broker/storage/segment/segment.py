"""One segment of a log: a .log file of batches and its indexes.

This module appends and owns the files; :mod:`kohort.broker.storage.segment.search` finds offsets,
:mod:`kohort.broker.storage.segment.read` reads batches, :mod:`kohort.broker.storage.segment.times`
looks up timestamps.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from copy import copy

from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.filesystem import Buffer, File, FileSystem, write_fully
from kohort.broker.storage.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from kohort.broker.storage.segment.batch_walk import (
    FEW_BYTES,
    BatchAt,
    crc_of_range,
    header_at,
    walk_batches,
)
from kohort.broker.storage.segment.indexes import OffsetIndex, TimeIndex
from kohort.broker.storage.segment.transaction_index import TransactionIndex
from kohort.protocol.records.batch import NO_TIMESTAMP, BatchHeader

RANGES_MAX = 64


class VerifiedRanges:
    """Half-open byte ranges, disjoint and ascending.

    Batches whose CRC was checked once since the start are served without another check; so are
    batches that this process appended, which are not in these ranges. Everything else is verified
    when it is first read. Adjacent ranges are merged, so a consumer that reads through a segment
    leaves one range; RANGES_MAX bounds what scattered reads leave.
    """

    __slots__ = ("_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def copy(self) -> VerifiedRanges:
        twin = VerifiedRanges()
        twin._starts, twin._stops = self._starts.copy(), self._stops.copy()
        return twin

    def add_all(self, others: VerifiedRanges) -> None:
        """Add the ranges of another object for the same file."""
        for start, stop in zip(others._starts, others._stops, strict=True):
            if not self.covers(start, stop):
                self.add(start, stop)

    def covers(self, start: int, stop: int) -> bool:
        """Whether every byte from start up to (not including) stop is verified."""
        number = bisect_right(self._starts, start) - 1
        return start >= stop or (number >= 0 and stop <= self._stops[number])

    def add(self, start: int, stop: int) -> None:
        """Add a range; the shortest one is dropped if there are too many."""
        starts, stops = self._starts, self._stops
        if stops and stops[-1] == start:  # A sequential reader.
            stops[-1] = stop
            return
        first = bisect_right(stops, start - 1)
        last = bisect_right(starts, stop)
        if first < last:
            start = min(start, starts[first])
            stop = max(stop, stops[last - 1])
        starts[first:last] = [start]
        stops[first:last] = [stop]
        if len(starts) > RANGES_MAX:
            shortest = min(range(len(starts)), key=lambda number: stops[number] - starts[number])
            del starts[shortest], stops[shortest]

    def cut(self, size: int) -> None:
        """Drop everything at or after `size`, where the file was truncated."""
        while self._starts and self._starts[-1] >= size:
            del self._starts[-1], self._stops[-1]
        if self._stops:
            self._stops[-1] = min(self._stops[-1], size)


POSITION_MAX = (1 << 31) - 1
"""Kafka's positions are signed 32-bit numbers."""
HINTS_MAX = 64
RECENT_BYTES = 2 << 20
SAVE_ENTRIES = 256
"""Index entries are written to disk when this many are unsaved: 2 KB after each MB of log, if there
is an entry for every 4 KiB."""

logger = logging.getLogger(__name__)


class LogSegment:
    """One segment of a log; for one thread, except `sync`. All methods may raise OSError."""

    __slots__ = (
        "_appended_from", "_first_crc", "_hinted", "_hints", "_is_compared", "_marks",
        "_verified", "aborted", "base_offset", "created_ms", "directory", "first_timestamp",
        "following_offset", "index", "is_damaged", "is_deleted", "is_index_rebuilt", "is_sealed",
        "is_synced", "is_twin", "log", "max_timestamp", "max_timestamp_offset", "size_bytes",
        "time_index", "unindexed_bytes",
    )  # fmt: skip

    def __init__(
        self, files: FileSystem, directory: str, base_offset: int, sizes: Mapping[str, int]
    ) -> None:
        """Create an object for files with these sizes, by suffix; `create` makes a new segment."""
        self.directory = directory
        self.base_offset = base_offset
        self.log: File = files.file(self.path(LOG_SUFFIX))
        self.size_bytes = sizes.get(LOG_SUFFIX, 0)
        self.index = OffsetIndex(
            files, self.path(INDEX_SUFFIX), base_offset, sizes.get(INDEX_SUFFIX)
        )
        self.time_index = TimeIndex(
            files, self.path(TIME_INDEX_SUFFIX), base_offset, sizes.get(TIME_INDEX_SUFFIX)
        )
        self.aborted: TransactionIndex | None = None
        """The aborted transactions whose marker is in this segment; None if there are none."""
        if TRANSACTION_INDEX_SUFFIX in sizes:
            self.add_transaction_index(files, sizes[TRANSACTION_INDEX_SUFFIX])
        self._verified = VerifiedRanges()
        """The ranges of batches that were verified when they were read."""
        self._first_crc: int | None = None
        """The CRC of the first batch, which identifies the .log."""
        self._is_compared = True
        """Whether `check_identity` has nothing to do: the .log was compared, or `_first_crc` is
        unknown.
        """
        self._appended_from = self.size_bytes
        """All bytes from here on were appended by this object, and need no verification."""
        self.created_ms = 0
        """Wall-clock time of the creation, or of the last write as found when the log was
        opened."""
        self.following_offset: int | None = None
        """Base offset of the next segment; None for the active one, and if it is not needed because
        this process wrote the segment without gaps."""
        self.first_timestamp: int | None = None
        """Max timestamp of the first batch, once known: rolling by time counts from it."""
        self.max_timestamp: int | None = None
        """Max timestamp of all batches, NO_TIMESTAMP if none has one; None if not yet known."""
        self.max_timestamp_offset = -1
        """Last offset of the first batch with `max_timestamp`."""
        self.is_sealed = False
        """Whether nothing more is appended, and the indexes are complete."""
        self.is_synced = False
        """Whether all files of a sealed segment are on disk."""
        self.is_deleted = False
        self.is_damaged = False
        """Whether compaction has found a damaged batch in the segment."""
        self.is_index_rebuilt = False
        """Whether the index has been rebuilt since the log was opened; it is not rebuilt again."""
        self.is_twin = False
        """Whether this object is a copy for one reader in another thread."""
        self.unindexed_bytes = 0
        """Bytes appended since the last index entry."""
        self._hints: dict[int, int] = {}
        """Base offset of a batch -> index of its position in `_hinted`; the oldest hint first."""
        self._hinted = array("q")
        """Positions of batches, as `_hints` indexes them. An array, because thousands of separate
        objects would be scattered over the memory."""
        self._marks: tuple[tuple[int, int], tuple[int, int]] | None = None
        """(base offset, position) of two batches that this process appended, the later one within
        RECENT_BYTES of the end."""

    @classmethod
    def create(
        cls, files: FileSystem, directory: str, base_offset: int, wall_ms: int
    ) -> LogSegment:
        """Create an empty segment. Its name is durable only after the directory is synced."""
        segment = cls(files, directory, base_offset, {})
        segment.log = files.create(segment.path(LOG_SUFFIX))
        segment.created_ms = wall_ms
        segment.max_timestamp = NO_TIMESTAMP
        return segment

    def __repr__(self) -> str:
        return f"LogSegment({self.path(LOG_SUFFIX)}, {self.size_bytes} bytes)"

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    def append(
        self, parts: tuple[Buffer, Buffer], header: BatchHeader, base_offset: int, interval: int
    ) -> None:
        """Write one batch after all others.

        On OSError the file may contain a part of the batch; see `undo_append`. Nothing else has
        changed.

        Args:
            parts: the batch as it is to be stored, in two pieces.
            header: the header of the batch, except for the base offset.
            interval: bytes between two index entries.
        """
        position = self.size_bytes
        stop = write_fully(self.log, parts, position)
        last_offset = base_offset + header.last_offset_delta
        assert self.max_timestamp is not None
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset
        if self.unindexed_bytes > interval:
            self.add_index_entries(last_offset, position)
            self.unindexed_bytes = 0
        if position == 0:
            self.first_timestamp = header.max_timestamp
        self.unindexed_bytes += stop - position
        self.size_bytes = stop
        self.hint(base_offset, position)
        marks = self._marks
        if marks is None:
            self._marks = ((base_offset, position), (base_offset, position))
        elif stop - marks[1][1] > RECENT_BYTES:
            self._marks = (marks[1], (base_offset, position))

    def undo_append(self) -> None:
        """Truncate the bytes that a failed append may have left."""
        self.log.truncate(self.size_bytes)

    def is_verified(self, start: int, stop: int) -> bool:
        """Whether all bytes from start to before stop were appended or verified by this process."""
        appended_from = self._appended_from
        return start >= appended_from or self._verified.covers(start, min(stop, appended_from))

    def note_verified(self, start: int, stop: int) -> None:
        """Remember that these bytes have been verified."""
        if start < self._appended_from:
            self._verified.add(start, min(stop, self._appended_from))

    def is_recent(self, offset: int) -> bool:
        """Whether the data from an offset on was recently appended by this process.

        It is then small, verified, and readable without the disk.
        """
        if self._marks is None or offset < self._marks[0][0]:
            return False
        return self.size_bytes - self._marks[0][1] <= 4 * RECENT_BYTES

    def hint(self, offset: int, position: int) -> None:
        """Remember where a batch with this base offset starts, or will start when it is appended.

        A consumer that continues where its last read ended, or at the end of the log, then needs no
        index search.
        """
        hints = self._hints
        place = hints.get(offset)
        if place is None:
            if len(hints) < HINTS_MAX:
                place = len(hints)
                self._hinted.append(position)
            else:
                place = hints.pop(next(iter(hints)))
            hints[offset] = place
        self._hinted[place] = position

    def hinted(self, offset: int) -> int | None:
        """Return the position that `hint` stored for an offset, or None."""
        place = self._hints.get(offset)
        return None if place is None else self._hinted[place]

    def walk(
        self,
        start: int,
        expected_offset: int | None,
        *,
        check_crc: bool = False,
        chunk_bytes: int = FEW_BYTES,
    ) -> Iterator[BatchAt]:
        """Yield the batches from a position to the end of the segment; see `walk_batches`."""
        self.check_identity()
        return walk_batches(
            self.log,
            start,
            self.size_bytes,
            expected_offset=expected_offset,
            following_offset=self.following_offset,
            check_crc=check_crc and not self.is_verified(start, self.size_bytes),
            chunk_bytes=chunk_bytes,
        )

    def add_index_entries(self, last_offset: int, position: int) -> None:
        """Add a batch to both indexes; `max_timestamp` must already include the batch."""
        self.index.append(last_offset, position)
        if self.max_timestamp is not None:
            self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset)
        if self.index.unsaved_count >= SAVE_ENTRIES:
            try:
                self.save_indexes()
            except OSError as error:
                # Index entries must be on disk only when the segment is sealed: until then, a start
                # rebuilds missing ones from the batches.
                logger.warning(
                    "The indexes of %r stay in memory: they cannot be written: %s", self, error
                )

    def add_transaction_index(
        self,
        files: FileSystem,
        size_bytes: int | None = None,
        *,
        noted_sum: int | None = None,
        damage: str | None = None,
        is_noted: bool = True,
    ) -> TransactionIndex:
        self.aborted = TransactionIndex(
            files,
            self.path(TRANSACTION_INDEX_SUFFIX),
            self.base_offset,
            size_bytes,
            noted_sum=noted_sum,
            damage=damage,
            is_noted=is_noted,
        )
        return self.aborted

    def note_first_crc(self, crc: int | None) -> None:
        """Let `check_identity` compare the first batch's CRC with this one; None: no check."""
        self._first_crc = crc
        self._is_compared = crc is None

    def first_crc(self, *, reads: bool = False) -> int | None:
        """Return the CRC of the first batch; if unknown, read it if `reads`, else return None."""
        if self._first_crc is None and reads:
            header = header_at(self.log, 0, self.size_bytes)
            self._first_crc = None if header is None else header.crc
        return self._first_crc

    def check_identity(self) -> None:
        """Check once that the .log is not that of another partition or segment.

        Raises CorruptBatchError. A damaged first batch is accepted here; reading it fails.
        """
        if self._is_compared:
            return
        header = header_at(self.log, 0, self.size_bytes)
        if (
            header is not None
            and header.crc != self._first_crc
            and crc_of_range(self.log, 0, header.size_bytes) == header.crc
        ):
            first, following = self.base_offset, self.following_offset
            offsets = f"from {first} on" if following is None else f"{first} to {following - 1}"
            raise CorruptBatchError(
                f"{self.path(LOG_SUFFIX)} has the batches of another segment: offsets {offsets} "
                "cannot be read"
            )
        self._is_compared = True

    def note_index_sums(
        self, files: FileSystem, size_bytes: int | None, sums: Mapping[str, int | None]
    ) -> None:
        """Set the checksum that the transaction index must have; without one, the index is rebuilt
        before it is used.

        Args:
            size_bytes: the size of the file, None if it does not exist.
            sums: checksums by file name, None if the file must not exist.
        """
        name = file_name(self.base_offset, TRANSACTION_INDEX_SUFFIX)
        noted_sum = sums.get(name)
        problem = None
        if name not in sums:
            problem = "has no checksum"
        elif (noted_sum is None) != (size_bytes is None):
            problem = "is missing" if size_bytes is None else "should not exist"
        damage = None if problem is None else f"{self.directory}/{name} {problem}"
        if damage is not None or size_bytes is not None:
            self.add_transaction_index(
                files, size_bytes, noted_sum=noted_sum, damage=damage, is_noted=name in sums
            )

    def save_indexes(self) -> None:
        # In this order, so that after a kill the .timeindex covers at least what the .index covers.
        self.time_index.save()
        self.index.save()

    def complete_indexes(self) -> None:
        """Add the maximum timestamp to the time index and save both indexes: required before the
        segment is sealed.

        Afterwards both files exist, as Kafka's tools expect.
        """
        if self.max_timestamp is not None:
            self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset)
        self.save_indexes()

    def sync(self, *, with_indexes: bool = False) -> None:
        """Flush the batches to disk, and the indexes if the segment is sealed. For any thread."""
        sealed = self.is_sealed
        self.log.sync()
        if self.aborted is not None:
            self.aborted.sync()
        if sealed or with_indexes:
            # If a power failure removed the last entry of the .timeindex, all headers of the
            # segment would have to be read to find its latest timestamp.
            self.index.sync()
            self.time_index.sync()
            self.is_synced = sealed

    def close(self) -> None:
        self.log.close()
        self.index.close()
        self.time_index.close()
        if self.aborted is not None:
            self.aborted.close()

    def twin(self) -> LogSegment:
        """Return a copy for another thread to read from."""
        twin = copy(self)
        twin.index, twin.time_index = self.index.twin(), self.time_index.twin()
        twin._verified = self._verified.copy()  # noqa: SLF001 - its own.
        twin._hints, twin._hinted = self._hints.copy(), self._hinted[:]  # noqa: SLF001 - its own.
        # Only the appending thread may rewrite an index that is still being appended to.
        twin.is_index_rebuilt = self.is_index_rebuilt or not self.is_sealed
        twin.is_twin = True
        return twin

    def learn_from(self, twin: LogSegment) -> None:
        """Adopt verified ranges, the last hint and indexes from a copy made by `twin`."""
        self._verified.add_all(twin._verified)
        self._is_compared = self._is_compared or twin._is_compared
        if twin._hints:
            offset = next(reversed(twin._hints))
            if offset not in self._hints:
                self.hint(offset, twin._hinted[twin._hints[offset]])
        if not twin.is_sealed:
            return
        if twin.is_index_rebuilt and not self.is_index_rebuilt:
            self.index, self.is_index_rebuilt = twin.index, True
        if twin.max_timestamp is not None and self.max_timestamp is None:
            self.time_index = twin.time_index
            self.max_timestamp = twin.max_timestamp
            self.max_timestamp_offset = twin.max_timestamp_offset

    def truncate(self, size_bytes: int) -> None:
        """Truncate the .log to this size; the caller handles indexes and timestamps."""
        self.log.truncate(size_bytes)
        self.size_bytes = size_bytes
        self._verified.cut(size_bytes)
        self._appended_from = min(self._appended_from, size_bytes)
        self._hints.clear()
        del self._hinted[:]


def with_ends(segments: Sequence[LogSegment], end_offset: int) -> Iterator[tuple[LogSegment, int]]:
    """Pair adjacent segments with the offsets where they end, the last one with `end_offset`."""
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    return zip(segments, ends, strict=True)

"""The reads of one partition: records, and offsets by time.

Consumers see records below the high watermark, or below the last stable offset if they read
committed records only; the partition keeps both. Each attempt of a read determines its limit before
another thread starts; the limit then stays fixed, however long the thread takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from kohort.broker.runtime.slices import Monotonic, Slice, run
from kohort.broker.storage.log.detached import Detached
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.segment.indexes import TimestampOffset
from kohort.broker.topics.tail_cache import TailCache
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.core.partition.transactions import AbortedTransaction
    from kohort.broker.storage.file_range import FileRange
    from kohort.broker.storage.log.transactions import AbortedSearch
    from kohort.broker.topics.partition import Partition


T = TypeVar("T")
Records: TypeAlias = "bytes | memoryview | FileRange"
"""Whole batches, in memory or as a file range for sendfile."""

OFFLOADED_ATTEMPTS: Final = 3
"""Maximum attempts to read in another thread: a segment may be deleted or compacted meanwhile."""
REPAIR_ATTEMPTS: Final = 3
"""Maximum attempts to repair an index: each checks the result of the one before, and segments may
be compacted meanwhile."""


class PartitionReads:
    """Reads of a partition, on the event loop or in another thread."""

    def __init__(
        self, partition: Partition, log: PartitionLog, executor: Executor, tail_cache: TailCache
    ) -> None:
        """`partition` provides the high watermark and the last stable offset; it is only read."""
        self._partition = partition
        self._log = log
        self._executor = executor
        self._tail_cache = tail_cache

    def read(
        self, offset: int, max_bytes: int, *, min_one: bool, committed_only: bool = False
    ) -> bytes | memoryview:
        """Return whole batches from ``offset`` up to the high watermark, b"" if there are none.

        Args:
            max_bytes: limit of the result, exceeded only by the first batch if ``min_one``.
            committed_only: read up to the last stable offset only; aborted records are included.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE or KAFKA_STORAGE_ERROR.
        """
        partition = self._partition
        limit = self._committed_end(offset) if committed_only else partition.high_watermark
        data = self._known(offset, max_bytes, limit, min_one=min_one)
        return self._read(offset, max_bytes, limit, min_one=min_one) if data is None else data

    def read_cached(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool,
        as_range: bool = False,
        committed_only: bool = False,
    ) -> Records | None:
        """Like `read`, but return None if it would have to verify data or access the disk; then
        call `read_in_thread`.

        Args:
            as_range: whether a large result may be a file range, for sendfile.
        """
        partition = self._partition
        limit = self._committed_end(offset) if committed_only else partition.high_watermark
        data: Records | None = self._known(offset, max_bytes, limit, min_one=min_one)
        if committed_only and data != b"" and self._log.aborted.unready(offset):
            return None
        if data is None:
            data = self._log.read_cached(
                offset, max_bytes, up_to_offset=limit, min_one=min_one, as_range=as_range
            )
            if isinstance(data, bytes):
                # File ranges are not cached: locating one is as fast as a cache lookup.
                key = self._read_key(offset, max_bytes, limit, min_one=min_one)
                self._tail_cache.put(key, data)
        return data

    async def read_in_thread(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool,
        as_range: bool = False,
        committed_only: bool = False,
    ) -> Records:
        """Like `read_cached`, but in another thread; the limit is determined beforehand."""
        partition = self._partition
        if committed_only:
            await repair_indexes(self._log, offset, self._executor)
        for _ in range(OFFLOADED_ATTEMPTS):
            limit = self._committed_end(offset) if committed_only else partition.high_watermark
            data = self._known(offset, max_bytes, limit, min_one=min_one)
            if data is not None:
                return data
            read = self._log.detached_read(
                offset, max_bytes, up_to_offset=limit, min_one=min_one, as_range=as_range
            )
            key = self._read_key(offset, max_bytes, limit, min_one=min_one)
            is_valid, result = await self._run(read)
            if is_valid and result is not None:
                if isinstance(result, bytes):
                    self._tail_cache.put(key, result)
                return result
        # No attempt had a valid result: segments were removed meanwhile, or there is a wide gap.
        # Read in the loop's thread instead, where nothing can intervene.
        return self.read(offset, max_bytes, min_one=min_one, committed_only=committed_only)

    async def read_committed_in_thread(
        self, offset: int, max_bytes: int, *, min_one: bool, as_range: bool, clock: Monotonic
    ) -> tuple[Records, list[AbortedTransaction]]:
        """Like `read_in_thread`; also return the aborted transactions with records in the data."""
        for _ in range(OFFLOADED_ATTEMPTS):
            data = await self.read_in_thread(
                offset, max_bytes, min_one=min_one, as_range=as_range, committed_only=True
            )
            # No await from here on: the log still contains what was read.
            search = self._search(offset, len(data))
            try:
                aborted = await run(search.steps(), Slice(clock))
            except KafkaError:
                self._partition.check_online()
                if not search.is_void:
                    raise
                continue
            if not search.is_void:
                return data, aborted
        data = self.read(offset, max_bytes, min_one=min_one, committed_only=True)
        return data, self.aborted_in_read(offset, len(data))

    def aborted_in_read(self, offset: int, byte_count: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in the `byte_count` bytes that a committed
        read from `offset` has returned in this event loop iteration.

        Unlike Kafka, normally omits transactions that begin after these bytes.
        """
        return self._search(offset, byte_count).at_once() if byte_count else []

    def aborted_cached(self, offset: int, byte_count: int) -> list[AbortedTransaction] | None:
        """Like `aborted_in_read`; None if that takes long: then use `read_committed_in_thread`."""
        if not byte_count:
            return []
        return self._search(offset, byte_count).at_once_if_short()

    def _search(self, offset: int, byte_count: int) -> AbortedSearch:
        return self._log.aborted.in_read(
            offset, byte_count, up_to_offset=self._partition.last_stable_offset
        )

    async def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first visible record that is not older than
        ``timestamp``.

        The search runs in another thread. Raises KafkaError like `read`.
        """
        entry = await self._look_up(lambda: self._log.detached_offset_for_timestamp(timestamp))
        if entry is None or entry.offset >= self._partition.high_watermark:
            return None
        return entry.offset, entry.timestamp

    async def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the record with the highest timestamp, None for an empty
        log. Runs and raises like `offset_for_timestamp`.
        """
        entry = await self._look_up(self._log.detached_max_timestamp)
        return None if entry is None else (entry.offset, entry.timestamp)

    def _committed_end(self, offset: int) -> int:
        """Return the offset at which a read of committed records from `offset` must end."""
        return self._log.aborted.limit_of_read(offset, self._partition.last_stable_offset)

    def _known(
        self, offset: int, max_bytes: int, limit: int, *, min_one: bool
    ) -> bytes | memoryview | None:
        """Return the result of a read up to `limit` if it is empty or cached, else None."""
        if self._partition.failure is not None:
            self._partition.check_online()
        if not self._log.log_start_offset <= offset <= self._partition.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset >= limit or (max_bytes <= 0 and not min_one):
            return b""
        return self._tail_cache.get(self._read_key(offset, max_bytes, limit, min_one=min_one))

    def _read_key(self, offset: int, max_bytes: int, limit: int, *, min_one: bool) -> Hashable:
        """Return everything that determines the result of a read at this moment."""
        return self, self._log.rewrite_count, offset, max_bytes, limit, min_one

    def _read(self, offset: int, max_bytes: int, limit: int, *, min_one: bool) -> bytes:
        data = self._log.read(offset, max_bytes, up_to_offset=limit, min_one=min_one)
        self._tail_cache.put(self._read_key(offset, max_bytes, limit, min_one=min_one), data)
        return data

    async def _run(self, read: Detached[T]) -> tuple[bool, T | None]:
        """Run a read in another thread; return (False, None) if its segments have changed."""
        loop = asyncio.get_running_loop()
        try:
            result = await loop.run_in_executor(self._executor, read.run)
        except KafkaError:
            self._partition.check_online()
            if not read.is_void:
                raise
            return False, None
        if read.is_void:
            return False, None
        read.take_over()
        return True, result

    async def _look_up(
        self, new_search: Callable[[], Detached[TimestampOffset | None]]
    ) -> TimestampOffset | None:
        for _ in range(OFFLOADED_ATTEMPTS):
            self._partition.check_online()
            is_valid, result = await self._run(new_search())
            if is_valid:
                return result
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, "segments were removed while they were read"
        )


async def repair_indexes(log: PartitionLog, offset: int, executor: Executor) -> None:
    """Read or rebuild the indexes of aborted transactions from an offset on.

    Indexes that cannot be read or rebuilt stay as they are; using them raises the error.
    """
    loop = asyncio.get_running_loop()
    for _ in range(REPAIR_ATTEMPTS):
        try:
            repairs = [log.aborted.repair(segment) for segment in log.aborted.unready(offset)]
            if not repairs:
                return
            for repair in repairs:
                await loop.run_in_executor(executor, repair.run)
                repair.take_over()
        except KafkaError:
            return

"""Reads several partitions for one Fetch request, at once or when enough data has arrived.

A fetch that finds fewer bytes than it requires waits in the purgatory, with its partitions as keys.
It keeps only the number of missing bytes: an append subtracts its size, at the same cost however
many partitions the request has. The partitions are read again only when that number reaches zero,
or the wait time is over.

Data that was appended recently, or is known to be verified and in the page cache, is read on the
event loop, in a few microseconds. Other data may have to be read from disk or verified, so another
thread reads it. Large data is only located, and sent from its file (sendfile).
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, TypeVar

from kohort.broker.core.delayed_operation import Completion, DelayedOperation
from kohort.broker.core.partition.transactions import AbortedTransaction as LogAborted
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import Monotonic, Slice, yield_to_loop
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.partition_reads import Records
from kohort.groups.steps import FEW
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.fetch import AbortedTransaction

T = TypeVar("T")

ITERATION_BYTES: Final = 1 << 20
"""Bytes after which a request waits for the next event loop iteration: about 1 ms."""

ITERATION_PARTITIONS: Final = 1_000
"""Maximum number of partitions that a request reads per event loop iteration: about 2 ms."""


@dataclass(slots=True, eq=False)
class PartitionRead:
    """One partition of a request, and the result of its last read."""

    partition_index: int
    partition: Partition | None
    offset: int
    max_bytes: int
    error: ErrorCode = ErrorCode.NONE
    """Set before reading if the partition does not exist; otherwise set by the read."""
    data: Records = b""
    as_range: bool = False
    """Large data may be returned as a file range."""
    committed_only: bool = False
    """Read only up to the last stable offset."""
    aborted: list[AbortedTransaction] | None = None
    """The aborted transactions in the data, if `committed_only`; as protocol structures, because
    the compiled codec accepts no others."""
    _visible_bytes_seen: int = 0

    def read_cached(self, bytes_left: int, *, min_one: bool) -> int | None:
        """Read up to ``bytes_left`` and return the number of bytes; None if it would have to verify
        data or access the disk.

        Errors are stored in `error`.
        """
        if self.partition is None:
            return 0
        partition = self.partition
        limit = min(self.max_bytes, bytes_left)
        try:
            committed_only = self.committed_only
            self._visible_bytes_seen = (
                partition.stable_bytes if committed_only else partition.visible_bytes
            )
            data = partition.reads.read_cached(
                self.offset,
                limit,
                min_one=min_one,
                as_range=self.as_range,
                committed_only=committed_only,
            )
            if committed_only and data is not None:
                aborted = partition.reads.aborted_cached(self.offset, len(data))
                if aborted is None:
                    return None
                self.aborted = [_to_message(entry) for entry in aborted]
        except KafkaError as error:
            self._fail(error)
            return 0
        if data is None:
            return None
        self.data = data
        return len(data)

    async def read_in_thread(self, bytes_left: int, *, min_one: bool, clock: Monotonic) -> int:
        """Like `read_cached`, but read in another thread, and convert long results in slices."""
        partition = self.partition
        assert partition is not None
        # Taken before the first await, so that `bytes_since` counts bytes that arrive later.
        self._visible_bytes_seen = (
            partition.stable_bytes if self.committed_only else partition.visible_bytes
        )
        limit = min(self.max_bytes, bytes_left)
        try:
            if not self.committed_only:
                self.data = await partition.reads.read_in_thread(
                    self.offset, limit, min_one=min_one, as_range=self.as_range
                )
            else:
                self.data, aborted = await partition.reads.read_committed_in_thread(
                    self.offset, limit, min_one=min_one, as_range=self.as_range, clock=clock
                )
                time_slice = Slice(clock)
                self.aborted = []
                for number in range(0, len(aborted), FEW):
                    self.aborted += [_to_message(entry) for entry in aborted[number : number + FEW]]
                    await time_slice.pause()
        except KafkaError as error:
            self._fail(error)
        return len(self.data)

    def bytes_since(self) -> int:
        """Return the number of bytes that became visible to the request since the last read, or the
        last call of this method.
        """
        partition = self.partition
        if partition is None:
            return 0
        seen = self._visible_bytes_seen
        self._visible_bytes_seen = (
            partition.stable_bytes if self.committed_only else partition.visible_bytes
        )
        return self._visible_bytes_seen - seen

    def _fail(self, error: KafkaError) -> None:
        self.error, self.data, self.aborted = error.code, b"", None


def _to_message(entry: LogAborted) -> AbortedTransaction:
    return AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)


class FetchPass:
    """Reads partitions in the order of the request, until they have ``max_bytes`` in total.

    The first batch found is returned whole even above the limits, so that a consumer always makes
    progress.
    """

    __slots__ = ("_done_count", "_max_bytes", "_reads", "total_bytes")

    def __init__(self, reads: list[PartitionRead], max_bytes: int) -> None:
        self._reads = reads
        self._max_bytes = max_bytes
        self._done_count = 0
        self.total_bytes = 0

    def read_cached(self) -> bool:
        """Read partitions until one is not cached, or one of the limits per event loop iteration
        is exceeded; return whether all were read.
        """
        # Inlined as far as possible: every fetch pays for this.
        reads, total, max_bytes = self._reads, self.total_bytes, self._max_bytes
        total_max = total + ITERATION_BYTES
        number = self._done_count
        end = min(len(reads), number + ITERATION_PARTITIONS)
        while number < end and total <= total_max:
            byte_count = reads[number].read_cached(max(max_bytes - total, 0), min_one=total == 0)
            if byte_count is None:
                break
            total += byte_count
            number += 1
        self.total_bytes, self._done_count = total, number
        return number == len(reads)

    async def finish(self, threads: asyncio.Semaphore, clock: Monotonic) -> None:
        """Read the remaining partitions; `threads` limits concurrent reads in other threads."""
        while not self.read_cached():
            read = self._reads[self._done_count]
            if read.partition is None:
                self._done_count += 1
                await yield_to_loop()
                continue
            async with threads:
                bytes_left = max(self._max_bytes - self.total_bytes, 0)
                byte_count = await read.read_in_thread(
                    bytes_left, min_one=self.total_bytes == 0, clock=clock
                )
            self.total_bytes += byte_count
            self._done_count += 1


class DelayedFetch(DelayedOperation, Generic[T]):
    """A fetch that waits until its partitions have ``bytes_missing`` more bytes."""

    __slots__ = ("_answer", "_by_partition", "_bytes_missing", "_read_again", "_reads")

    kind: ClassVar[str] = "Fetch"

    def __init__(
        self,
        reads: list[PartitionRead],
        *,
        bytes_missing: int,
        read_again: Callable[[Deferred[T]], None],
        answer: Deferred[T],
        owner: Hashable,
    ) -> None:
        super().__init__(owner=owner, held_bytes=200 * len(reads))
        self._reads = reads
        self._by_partition = {read.partition: read for read in reads}
        self._bytes_missing = bytes_missing
        self._read_again = read_again
        self._answer = answer

    @property
    def keys(self) -> list[Partition]:
        return [partition for partition in self._by_partition if partition is not None]

    def try_complete(self, key: Hashable | None = None) -> bool:
        """Whether enough data has become visible, or a partition has failed."""
        changed = self._reads if key is None else [self._by_partition[key]]  # type: ignore[index]
        for read in changed:
            if read.partition is not None and read.partition.failure is not None:
                return True
            self._bytes_missing -= read.bytes_since()
        return self._bytes_missing <= 0

    def on_complete(self, completion: Completion) -> None:
        """Read again and respond with the available data, whatever the reason for completion."""
        del completion
        self._read_again(self._answer)

    def on_failed(self, error: Exception) -> None:
        """Fail the response with ``error``, unless the response is set already."""
        if not self._answer.is_done:
            self._answer.set_exception(error)

"""Reading several partitions for one Fetch request, at once or when enough has arrived.

A fetch that finds less than it asked for waits in the purgatory under its partitions. What it still
lacks is a running number of bytes: an append takes its size off it, so a wake-up costs the same
however many partitions the request has. Only when the number reaches zero, or time is up, are the
partitions read again.

What was appended lately, or is known to be verified and in memory, is read on the loop, in a few
microseconds; everything else may have to come from a disk, or to be verified, and is read by
another thread. What is large need not be read at all: it is found, and sent from its file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, TypeVar

from kohort.broker.core.delayed_operation import Completion, DelayedOperation
from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.runtime.later import Later
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.partition_reads import Records
from kohort.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

TURN_BYTES: Final = 1 << 20
"""How much one request reads on the loop before others get their turn: a millisecond's worth."""


@dataclass(slots=True, eq=False)
class PartitionRead:
    """What a request wants from one partition, and what it got when last read."""

    partition_index: int
    partition: Partition | None
    offset: int
    max_bytes: int
    error: ErrorCode = ErrorCode.NONE
    """Known before reading, for a partition that does not exist; else set by reading."""
    data: Records = b""
    as_range: bool = False
    """Large data may be given as a range of a file."""
    committed_only: bool = False
    """Up to the last stable offset, and no further."""
    aborted: list[AbortedTransaction] | None = None
    """The aborted transactions in the data, if `committed_only`."""
    _visible_bytes_seen: int = 0

    def read_at_hand(self, bytes_left: int, *, min_one: bool) -> int | None:
        """Read up to ``bytes_left`` if that is quick, and return the bytes read; else None.

        Errors are kept as data.
        """
        if self.partition is None:
            return 0
        partition = self.partition
        limit = min(self.max_bytes, bytes_left)
        try:
            if not self.committed_only:
                self._visible_bytes_seen = partition.visible_bytes
                data = partition.reads.at_hand(
                    self.offset, limit, min_one=min_one, as_range=self.as_range
                )
            else:
                self._visible_bytes_seen = partition.stable_bytes
                data = partition.reads.at_hand(
                    self.offset,
                    limit,
                    min_one=min_one,
                    as_range=self.as_range,
                    committed_only=True,
                )
                if data is not None:
                    self.aborted = partition.reads.aborted_in_read(self.offset, len(data))
        except KafkaError as error:
            self._fail(error)
            return 0
        if data is None:
            return None
        self.data = data
        return len(data)

    async def read_aside(self, bytes_left: int, *, min_one: bool) -> int:
        """The same on another thread."""
        partition = self.partition
        assert partition is not None
        # Read before the first await: what comes after it is for `bytes_since`.
        self._visible_bytes_seen = (
            partition.stable_bytes if self.committed_only else partition.visible_bytes
        )
        limit = min(self.max_bytes, bytes_left)
        try:
            self.data = await partition.reads.aside(
                self.offset,
                limit,
                min_one=min_one,
                as_range=self.as_range,
                committed_only=self.committed_only,
            )
            if self.committed_only:
                # At once: what was read is still what the log holds.
                self.aborted = partition.reads.aborted_in_read(self.offset, len(self.data))
        except KafkaError as error:
            self._fail(error)
        return len(self.data)

    def bytes_since(self) -> int:
        """Bytes that the request may have and that came since the last read or the last call."""
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


class FetchPass:
    """Reads partitions in the order of the request, until ``max_bytes``.

    The first batch that is found is taken whole even above the limits, so that a consumer always
    gets ahead.
    """

    __slots__ = ("_done_count", "_max_bytes", "_reads", "total_bytes")

    def __init__(self, reads: list[PartitionRead], max_bytes: int) -> None:
        self._reads = reads
        self._max_bytes = max_bytes
        self._done_count = 0
        self.total_bytes = 0

    def read_at_hand(self) -> bool:
        """Read what is quick to read; whether that was all. `finish` does the rest."""
        # Straight through: this is what every fetch costs.
        reads, total, max_bytes = self._reads, self.total_bytes, self._max_bytes
        turn_bytes_max = total + TURN_BYTES
        number = self._done_count
        while number < len(reads) and total <= turn_bytes_max:
            found = reads[number].read_at_hand(max(max_bytes - total, 0), min_one=total == 0)
            if found is None:
                break
            total += found
            number += 1
        self.total_bytes, self._done_count = total, number
        return number == len(reads)

    async def finish(self, threads: asyncio.Semaphore) -> None:
        """Read the rest. `threads` bounds how many requests are at it on other threads."""
        while not self.read_at_hand():
            read = self._reads[self._done_count]
            async with threads:
                bytes_left = max(self._max_bytes - self.total_bytes, 0)
                found = await read.read_aside(bytes_left, min_one=self.total_bytes == 0)
            self.total_bytes += found
            self._done_count += 1


class DelayedFetch(DelayedOperation, Generic[T]):
    """A fetch that waits for ``bytes_missing`` more, under its partitions as keys."""

    __slots__ = ("_answer", "_by_partition", "_bytes_missing", "_read_again", "_reads")

    kind: ClassVar[str] = "Fetch"

    def __init__(
        self,
        reads: list[PartitionRead],
        *,
        bytes_missing: int,
        read_again: Callable[[Later[T]], None],
        answer: Later[T],
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
        """What to watch."""
        return [partition for partition in self._by_partition if partition is not None]

    def try_complete(self, key: Hashable | None = None) -> bool:
        """Has enough become visible, or has a partition failed?"""
        changed = self._reads if key is None else [self._by_partition[key]]  # type: ignore[index]
        for read in changed:
            if read.partition is not None and read.partition.failure is not None:
                return True
            self._bytes_missing -= read.bytes_since()
        return self._bytes_missing <= 0

    def on_complete(self, completion: Completion) -> None:
        """Have it read again and answered with what there is, whatever the reason."""
        del completion
        self._read_again(self._answer)

    def on_failed(self, error: Exception) -> None:
        """Answer ``error``, unless there is an answer already."""
        if not self._answer.is_done:
            self._answer.fail(error)

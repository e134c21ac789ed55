"""Reading several partitions for one Fetch request, at once or when enough has arrived.

A fetch that finds less than it asked for waits in the purgatory under its partitions. What it still
lacks is a running number of bytes: an append takes its size off it, so a wake-up costs the same
however many partitions the request has. Only when the number reaches zero, or time is up, are the
partitions read again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import ClassVar

from broker.core.delayed_operation import Completion, DelayedOperation
from broker.topics.partition import Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import dataclass


@dataclass(slots=True, eq=False)
class PartitionRead:
    """What a request wants from one partition, and what it got when last read."""

    partition_index: int
    partition: Partition | None
    offset: int
    max_bytes: int
    error: ErrorCode = ErrorCode.NONE
    """Known before reading, for a partition that does not exist; else set by reading."""
    data: bytes | memoryview = b""
    _visible_bytes_seen: int = 0

    def read(self, bytes_left: int, *, min_one: bool) -> int:
        """Read up to ``bytes_left``; errors are kept as data. Returns the bytes read."""
        if self.partition is None:
            return 0
        self._visible_bytes_seen = self.partition.visible_bytes
        limit = min(self.max_bytes, bytes_left)
        try:
            self.data = self.partition.read(self.offset, limit, min_one=min_one)
        except KafkaError as error:
            self.error, self.data = error.code, b""
        return len(self.data)

    def bytes_since(self) -> int:
        """Bytes that became visible since the last read or the last call."""
        if self.partition is None:
            return 0
        seen, self._visible_bytes_seen = self._visible_bytes_seen, self.partition.visible_bytes
        return self._visible_bytes_seen - seen


def read_partitions(reads: list[PartitionRead], max_bytes: int) -> int:
    """Read in request order until ``max_bytes``; return the bytes read.

    The first batch that is found is taken whole even above the limits, so that a consumer always
    gets ahead.
    """
    total = 0
    for read in reads:
        total += read.read(max(max_bytes - total, 0), min_one=total == 0)
    return total


class DelayedFetch(DelayedOperation):
    """A fetch that waits for ``bytes_missing`` more, under its partitions as keys."""

    __slots__ = ("_answer", "_by_partition", "_bytes_missing", "_fail", "_max_bytes", "_reads")

    kind: ClassVar[str] = "Fetch"

    def __init__(
        self,
        reads: list[PartitionRead],
        *,
        max_bytes: int,
        bytes_missing: int,
        answer: Callable[[list[PartitionRead]], None],
        fail: Callable[[Exception], None],
        owner: Hashable,
    ) -> None:
        super().__init__(owner=owner, held_bytes=200 * len(reads))
        self._reads = reads
        self._by_partition = {read.partition: read for read in reads}
        self._max_bytes = max_bytes
        self._bytes_missing = bytes_missing
        self._answer = answer
        self._fail = fail

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
        """Read again and answer with what there is, whatever the reason."""
        del completion
        read_partitions(self._reads, self._max_bytes)
        self._answer(self._reads)

    def on_failed(self, error: Exception) -> None:
        """Hand ``error`` to whoever waits for the answer."""
        self._fail(error)

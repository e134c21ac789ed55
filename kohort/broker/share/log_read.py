"""Reads the log for the acquisition of records: whole batches, and their headers.

Acquisition ends at a maximum number of records. So only the estimated size of these records is
read, not the request's maximum size, which is 50 MB in most clients.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.runtime.clock import Clock
from kohort.broker.topics.partition import Partition
from kohort.groups.share.window import LogBatch
from kohort.protocol.errors import KafkaError
from kohort.protocol.records.batch import CONTROL_BIT, LENGTH_OVERHEAD_BYTES, TRANSACTIONAL_BIT

_HEADER: Final = Struct(">qi9xhi16xq")
"""Base offset, length, attributes, last offset delta and producer id of a batch."""


class LogRead(NamedTuple):
    """Whole batches read from the log, and their headers."""

    data: bytes | memoryview
    batches: Sequence[LogBatch]
    stops: Sequence[int]
    """Where each batch ends in the data; the next batch starts there."""

    def part(self, first_offset: int, last_offset: int) -> bytes | memoryview:
        """Return the batches from the one with `first_offset` to the one with `last_offset`."""
        start = stop = 0
        for batch, batch_stop in zip(self.batches, self.stops, strict=True):
            if batch.last_offset < first_offset:
                start = batch_stop
            elif batch.first_offset > last_offset:
                break
            stop = batch_stop
        if start == 0 and stop == len(self.data):
            return self.data
        return memoryview(self.data)[start:stop]

    def since(self, offset: int) -> "LogRead":
        """Return a copy without the batches that end below an offset."""
        count = sum(batch.last_offset < offset for batch in self.batches)
        return LogRead(self.data, self.batches[count:], self.stops[count:]) if count else self

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return self.batches[-1].last_offset + 1


NOTHING: Final = LogRead(b"", (), ())


class Wanted(NamedTuple):
    """How much of a partition's log to read."""

    offset: int
    stop_offset: int
    """Batches from this offset on are not needed."""
    max_bytes: int
    """Maximum size of the data; the first batch may exceed it."""
    chunk_bytes: int
    """Bytes to read at once: the estimated size of the wanted records."""
    committed_only: bool


def read_cached(partition: Partition, wanted: Wanted) -> LogRead | None:
    """Read cached batches; None if the first batch is not cached. Raises KafkaError."""
    reads, committed_only = partition.reads, wanted.committed_only
    chunks: list[bytes | memoryview] = []
    batches: list[LogBatch] = []
    stops: list[int] = []
    offset, size = wanted.offset, 0
    while offset < wanted.stop_offset and (not chunks or size < wanted.max_bytes):
        data = reads.read_cached(
            offset,
            min(wanted.chunk_bytes, wanted.max_bytes - size),
            min_one=not chunks,
            committed_only=committed_only,
        )
        aborted: Sequence[AbortedTransaction] | None = ()
        if data and committed_only:
            aborted = reads.aborted_cached(offset, len(data))
        if data is None or aborted is None:
            if not chunks:
                return None
            break
        if not data:
            break
        assert isinstance(data, bytes | memoryview)
        chunks.append(data)
        _add_batches(data, aborted, size, batches, stops)
        size += len(data)
        offset = batches[-1].last_offset + 1
    if not chunks:
        return NOTHING
    return LogRead(chunks[0] if len(chunks) == 1 else b"".join(chunks), batches, stops)


async def read_in_thread(partition: Partition, wanted: Wanted, clock: Clock) -> LogRead:
    """Read like `read_cached`, but in another thread, and only one chunk. Raises KafkaError."""
    chunk_bytes = min(wanted.chunk_bytes, wanted.max_bytes)
    aborted: Sequence[AbortedTransaction] = ()
    if wanted.committed_only:
        data, aborted = await partition.reads.read_committed_in_thread(
            wanted.offset, chunk_bytes, min_one=True, as_range=False, clock=clock
        )
    else:
        data = await partition.reads.read_in_thread(wanted.offset, chunk_bytes, min_one=True)
    if not data:
        return NOTHING
    assert isinstance(data, bytes | memoryview)
    read = LogRead(data, [], [])
    _add_batches(data, aborted, 0, read.batches, read.stops)  # type: ignore[arg-type]
    return read


def readable_bytes(partition: Partition, offset: int, enough: int, *, committed_only: bool) -> int:
    """Return how many bytes can be read from an offset on, up to about `enough`; `enough` if the
    data is not cached, 0 if it cannot be read.
    """
    try:
        end = partition.last_stable_offset if committed_only else partition.high_watermark
        if offset >= end:
            return 0
        if enough <= 1:
            return enough
        data = partition.reads.read_cached(
            offset, enough, min_one=True, committed_only=committed_only
        )
    except KafkaError:
        return 0
    return enough if data is None else len(data)


def _add_batches(
    data: bytes | memoryview,
    aborted: Iterable[AbortedTransaction],
    position: int,
    batches: list[LogBatch],
    stops: list[int],
) -> None:
    """Add the batches in `data`, which begins at byte `position` of all data read."""
    by_producer: dict[int, list[AbortedTransaction]] = {}
    for transaction in aborted:
        by_producer.setdefault(transaction.producer_id, []).append(transaction)
    at, size = 0, len(data)
    while at < size:
        base_offset, length, attributes, last_delta, producer_id = _HEADER.unpack_from(data, at)
        at += length + LENGTH_OVERHEAD_BYTES
        is_aborted = False
        if by_producer and attributes & TRANSACTIONAL_BIT and not attributes & CONTROL_BIT:
            is_aborted = any(
                transaction.first_offset <= base_offset < transaction.last_offset
                for transaction in by_producer.get(producer_id, ())
            )
        batches.append(LogBatch(base_offset, base_offset + last_delta, is_aborted))
        stops.append(position + at)

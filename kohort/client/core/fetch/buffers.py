"""Buffers of fetched data per partition, filled by the fetcher and emptied by the consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, TypeAlias

from kohort.client.core.errors import RecordError
from kohort.client.core.fetch.batches import Fetched
from kohort.client.core.fetch.deserialisers import BackgroundDeserialiser, NotMadeYet
from kohort.client.core.fetch.positions import PartitionState, Positions
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord

Records: TypeAlias = dict[TopicPartition, list[AnyRecord]]

PartitionFilter: TypeAlias = AbstractSet[TopicPartition] | None
"""The partitions to read; None: all."""

_Read: TypeAlias = Callable[[Fetched, int, int], list[AnyRecord]]

AHEAD_RECORDS: Final = 64
"""How many records are decoded at a time for a reader that takes them one by one."""

CHUNK_OVERHEAD_BYTES: Final = 512
"""Bytes added to each response's size, so that the limit also bounds many tiny responses."""


class _Waiting:
    """Fetched data of one partition that was not taken yet, the oldest first."""

    __slots__ = ("byte_count", "chunks", "fence", "next_offset")

    def __init__(self, fence: int) -> None:
        self.fence = fence
        self.next_offset = 0
        """The offset after the last waiting record."""
        self.byte_count = 0
        self.chunks: deque[Fetched] = deque()


class _PartlyRead:
    """The batches that are decompressed and partly read, least recently read first.

    Together they take at most `bytes_limit` bytes, not counting the batch that is being read. A
    caller that reads a few records of each of many partitions has such a batch in every partition.
    """

    def __init__(self, bytes_limit: int) -> None:
        self.byte_count = 0
        self._bytes_limit = bytes_limit
        self._chunks: dict[TopicPartition, tuple[Fetched, int]] = {}

    def make_room(self, partition: TopicPartition) -> None:
        """Drop decompressed data above the limit before another partition is read."""
        if self.byte_count > self._bytes_limit and partition not in self._chunks:
            self._shed()

    def was_read(self, partition: TopicPartition, chunk: Fetched) -> None:
        """Record a read, and drop decompressed data above the limit, least recently read first."""
        self.forget(partition)
        if byte_count := chunk.inflated_bytes:
            self._chunks[partition] = chunk, byte_count
            self.byte_count += byte_count
        self._shed(but_one=True)

    def forget(self, partition: TopicPartition) -> None:
        _, byte_count = self._chunks.pop(partition, (None, 0))
        self.byte_count -= byte_count

    def clear(self) -> None:
        self._chunks.clear()
        self.byte_count = 0

    def _shed(self, *, but_one: bool = False) -> None:
        while self.byte_count > self._bytes_limit and len(self._chunks) > but_one:
            oldest = next(iter(self._chunks))
            self._chunks[oldest][0].deflate()
            self.forget(oldest)


class _Place(NamedTuple):
    """A partition's position before the last records that its reader got."""

    placed: int
    offset: int
    leader_epoch: int


class _Ahead(NamedTuple):
    """Records that have been decoded and not returned yet."""

    partition: TopicPartition
    records: Iterator[AnyRecord]
    version: int
    """`Positions.version` when the records were decoded; if it has changed, they are read again."""


class FetchBuffers:
    def __init__(
        self,
        positions: Positions,
        *,
        inflated_bytes_limit: int,
        on_less: Callable[[TopicPartition, int], None],
        on_failed: Callable[[TopicPartition, RecordError], None],
        background: BackgroundDeserialiser | None = None,
    ) -> None:
        """Create empty buffers.

        Args:
            positions: moved past the records that are taken.
            inflated_bytes_limit: for all batches that are decompressed and partly read; the one
                being read is decompressed in any case.
            on_less: called with a partition whose data was removed, and its remaining bytes.
            on_failed: called when a partition's next record cannot be returned, after the
                partition's data is dropped.
            background: runs deserialisers that are coroutine functions; None if there are none.
        """
        self._background = background
        self._positions = positions
        self._partly_read = _PartlyRead(inflated_bytes_limit)
        self._on_less = on_less
        self._on_failed = on_failed
        self._waiting: dict[TopicPartition, _Waiting] = {}
        """Waiting records by partition, in round-robin order."""
        self._ahead: _Ahead | None = None
        self._in_hand: dict[TopicPartition, _Place] = {}
        self._record_in_hand: tuple[TopicPartition, AnyRecord] | None = None

    # Called by the fetcher.

    def next_offset(self, partition: TopicPartition) -> int | None:
        """The offset to fetch next; None if the partition has no buffered data."""
        waiting = self._waiting.get(partition)
        return None if waiting is None else waiting.next_offset

    def fetch_offset(self, partition: TopicPartition, state: PartitionState) -> int:
        """The offset to fetch next: after the buffered data; without any, the position."""
        offset = self.next_offset(partition)
        if offset is None:
            offset = state.position
        assert offset is not None
        return offset

    def add(self, partition: TopicPartition, fence: int, chunk: Fetched) -> int:
        """Append data fetched for the position with this fence; return the buffered bytes."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = _Waiting(fence)
        assert waiting.fence == fence
        waiting.chunks.append(chunk)
        waiting.next_offset = chunk.next_offset
        waiting.byte_count += chunk.byte_count + CHUNK_OVERHEAD_BYTES
        return waiting.byte_count

    def drop_outdated(self) -> None:
        """Forget data that was fetched for positions that have changed."""
        has_fence = self._positions.has_fence
        outdated = [tp for tp, its in self._waiting.items() if not has_fence(tp, its.fence)]
        # Remove all of them before any callback: a callback may send the next request.
        for partition in outdated:
            del self._waiting[partition]
            self._partly_read.forget(partition)
        if self._background is not None:
            self._background.forget(outdated)
        for partition in outdated:
            self._on_less(partition, 0)

    def clear(self) -> None:
        self._waiting.clear()
        self._partly_read.clear()
        if self._background is not None:
            self._background.clear()
        self._ahead = None

    @property
    def inflated_bytes(self) -> int:
        """The decompressed size of partly read batches; not counted in the buffered bytes."""
        return self._partly_read.byte_count

    def has_readable(self, only: PartitionFilter = None) -> bool:
        """Whether a partition (of `only`, if given) has data that can be read."""
        return any(True for _ in self._readable(only))

    # Called by the consumer.

    def mark_processed(self, only: PartitionFilter) -> None:
        """Mark the last records from `only` (None: all) as processed: their reader polls again."""
        self._record_in_hand = None
        if only is None:
            self._in_hand.clear()
        else:
            for partition in only:
                self._in_hand.pop(partition, None)

    def processed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions, but not past the records that each reader got last: these may be in
        progress.
        """
        processed = self._positions.consumed()
        if self._record_in_hand is not None:
            partition, record = self._record_in_hand
            state = self._positions.find(partition)
            if state is not None and state.position == record.offset + 1:
                processed[partition] = OffsetAndMetadata(record.offset, "", record.leader_epoch)
        for partition, place in self._in_hand.items():
            if self._positions.has_place(partition, place.placed):
                processed[partition] = OffsetAndMetadata(place.offset, "", place.leader_epoch)
        return processed

    def take(self, max_records: int, only: PartitionFilter = None) -> Records:
        """Return records, from as many partitions as needed; positions move past them."""
        self._put_back()
        taken: Records = {}
        left = max_records
        for partition in self._readable(only):
            while left and (records := self._read(partition, left, Fetched.read_on)) is not None:
                last = records[-1]
                if partition not in self._in_hand:
                    self._hold(partition)
                self._positions.advance(partition, last.offset + 1, last.leader_epoch)
                left -= len(records)
                if partition in taken:
                    taken[partition] += records
                else:
                    taken[partition] = records
            if not left:
                break
        return taken

    def next_made(self) -> AnyRecord | None:
        """Fast path of `next_record` for records that are deserialised already."""
        ahead = self._ahead
        if ahead is not None and ahead.version == self._positions.version:
            for record in ahead.records:
                partition = ahead.partition
                self._positions.advance(partition, record.offset + 1, record.leader_epoch)
                self._record_in_hand = partition, record
                return record
        return None

    def next_record(self) -> AnyRecord | None:
        """Return the next record, or None; its partition's position moves past it."""
        record = self.next_made()
        if record is not None:
            return record
        self._put_back()
        for partition in self._readable():
            records = self._read(partition, AHEAD_RECORDS, Fetched.read)
            if records is not None:
                self._ahead = _Ahead(partition, iter(records), self._positions.version)
                return self.next_made()
        return None

    def _hold(self, partition: TopicPartition) -> None:
        state = self._positions.state(partition)
        assert state.position is not None
        self._in_hand[partition] = _Place(state.placed, state.position, state.leader_epoch)

    def _readable(self, only: PartitionFilter = None) -> Iterator[TopicPartition]:
        find = self._positions.find
        for partition in list(self._waiting):
            if only is not None and partition not in only:
                continue
            if self._background is not None and self._background.is_making(partition):
                continue
            state = find(partition)
            waiting = self._waiting.get(partition)
            if (
                state is not None
                and waiting is not None
                and state.is_readable
                and state.fence == waiting.fence
            ):
                yield partition

    def _read(self, partition: TopicPartition, wanted: int, read: _Read) -> list[AnyRecord] | None:
        """Read records without moving the position past them; None: try another partition."""
        waiting = self._waiting[partition]
        state = self._positions.state(partition)
        assert state.position is not None
        chunk = waiting.chunks[0]
        had_bytes = chunk.byte_count
        self._partly_read.make_room(partition)
        try:
            records = read(chunk, state.position, wanted)
        except NotMadeYet:
            self._partly_read.was_read(partition, chunk)
            return None
        except RecordError as error:
            self._drop(partition)
            self._on_failed(partition, error)
            return None
        self._partly_read.was_read(partition, chunk)
        if records:
            used_bytes = had_bytes - chunk.byte_count
        else:
            if chunk.next_offset > state.position:
                # Only control records, aborted records and compaction gaps are left: move past
                # them.
                self._positions.advance(partition, chunk.next_offset, chunk.leader_epoch)
            used_bytes = had_bytes + CHUNK_OVERHEAD_BYTES
            waiting.chunks.popleft()
            del self._waiting[partition]
            if waiting.chunks:
                self._waiting[partition] = waiting
        if used_bytes:
            waiting.byte_count -= used_bytes
            self._on_less(partition, waiting.byte_count)
        return records or None

    def _put_back(self) -> None:
        """Rewind the buffer to the first record that was decoded but not returned."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and next(ahead.records, None) is not None:
            waiting = self._waiting.get(ahead.partition)
            if waiting is not None:
                waiting.chunks[0].rewind()

    def _drop(self, partition: TopicPartition) -> None:
        del self._waiting[partition]
        self._partly_read.forget(partition)
        self._on_less(partition, 0)

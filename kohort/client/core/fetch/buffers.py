"""What was fetched and not taken yet, partition by partition, and how it is taken.

No sockets and no clock here: `FetchBuffers` is filled by the fetcher and emptied by the consumer.
"""

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
"""The partitions that one reader wants; None: all."""

AHEAD_RECORDS: Final = 64
"""How many records are made at a time for who reads one by one."""

CHUNK_OVERHEAD_BYTES: Final = 512
"""What an answer costs beside its bytes; else small ones would not count."""


class _Waiting:
    """What waits of one partition, the oldest first."""

    __slots__ = ("byte_count", "chunks", "fence", "next_offset")

    def __init__(self, fence: int) -> None:
        self.fence = fence
        self.next_offset = 0
        """Behind the last of it."""
        self.byte_count = 0
        self.chunks: deque[Fetched] = deque()


class _PartlyRead:
    """The batches that are decompressed and partly read, the one that was read longest ago first.

    Together they have `bytes_limit` at most, not counting the one that is being read, however
    large. A caller that reads a few records of each of many partitions has one in every partition.
    """

    def __init__(self, bytes_limit: int) -> None:
        self.byte_count = 0
        self._bytes_limit = bytes_limit
        self._chunks: dict[TopicPartition, tuple[Fetched, int]] = {}

    def make_room(self, partition: TopicPartition) -> None:
        """It is about to be read: what is above the limit goes first, not afterwards."""
        if self.byte_count > self._bytes_limit and partition not in self._chunks:
            self._shed()

    def was_read(self, partition: TopicPartition, chunk: Fetched) -> None:
        """The oldest that are too many are kept compressed only, and decompressed again later."""
        self.forget(partition)
        if byte_count := chunk.inflated_bytes:
            self._chunks[partition] = chunk, byte_count
            self.byte_count += byte_count
        self._shed(but_one=True)

    def forget(self, partition: TopicPartition) -> None:
        """Its batch is gone."""
        _, byte_count = self._chunks.pop(partition, (None, 0))
        self.byte_count -= byte_count

    def clear(self) -> None:
        """All of them are gone."""
        self._chunks.clear()
        self.byte_count = 0

    def _shed(self, *, but_one: bool = False) -> None:
        while self.byte_count > self._bytes_limit and len(self._chunks) > but_one:
            oldest = next(iter(self._chunks))
            self._chunks[oldest][0].deflate()
            self.forget(oldest)


class _Place(NamedTuple):
    """Where a partition stood before records of it were handed out."""

    placed: int
    offset: int
    leader_epoch: int


class _Ahead(NamedTuple):
    """Records that were made and not returned yet."""

    partition: TopicPartition
    records: Iterator[AnyRecord]
    version: int
    """The version of the positions; after a change it has to be seen what still holds."""


class FetchBuffers:
    """The buffers of one consumer."""

    def __init__(
        self,
        positions: Positions,
        *,
        inflated_bytes_limit: int,
        on_less: Callable[[TopicPartition, int], None],
        on_failed: Callable[[TopicPartition, RecordError], None],
        background: BackgroundDeserialiser | None = None,
    ) -> None:
        """Make some that are empty.

        Args:
            positions: moved by what is taken.
            inflated_bytes_limit: for all batches that are decompressed and partly read; the one
                that is being read is decompressed in any case.
            on_less: so many bytes of the partition are left.
            on_failed: its next record cannot be given out, and what was there is forgotten.
            background: calls deserialisers that are coroutine functions; None if there are none.
        """
        self._background = background
        self._positions = positions
        self._partly_read = _PartlyRead(inflated_bytes_limit)
        self._on_less = on_less
        self._on_failed = on_failed
        self._waiting: dict[TopicPartition, _Waiting] = {}
        """In the order in which partitions have their turn."""
        self._ahead: _Ahead | None = None
        self._in_hand: dict[TopicPartition, _Place] = {}
        self._record_in_hand: tuple[TopicPartition, AnyRecord] | None = None

    # For the fetcher.

    def next_offset(self, partition: TopicPartition) -> int | None:
        """Where to fetch on; None if nothing of it waits."""
        waiting = self._waiting.get(partition)
        return None if waiting is None else waiting.next_offset

    def fetch_offset(self, partition: TopicPartition, state: PartitionState) -> int:
        """Where to fetch on: behind what waits, or where its position is, which it has to have."""
        offset = self.next_offset(partition)
        if offset is None:
            offset = state.position
        assert offset is not None
        return offset

    def add(self, partition: TopicPartition, fence: int, chunk: Fetched) -> int:
        """What follows upon what waits already; how many bytes of the partition wait now."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = _Waiting(fence)
        assert waiting.fence == fence
        waiting.chunks.append(chunk)
        waiting.next_offset = chunk.next_offset
        waiting.byte_count += chunk.byte_count + CHUNK_OVERHEAD_BYTES
        return waiting.byte_count

    def drop_outdated(self) -> None:
        """Forget what was fetched for a position that is not one any more."""
        has_fence = self._positions.has_fence
        outdated = [one for one, its in self._waiting.items() if not has_fence(one, its.fence)]
        # All at once: the first that is told of may have the next request sent.
        for partition in outdated:
            del self._waiting[partition]
            self._partly_read.forget(partition)
        if self._background is not None:
            self._background.forget(outdated)
        for partition in outdated:
            self._on_less(partition, 0)

    def clear(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self._partly_read.clear()
        if self._background is not None:
            self._background.clear()
        self._ahead = None

    @property
    def inflated_bytes(self) -> int:
        """The decompressed size of batches that are partly read; not part of what waits."""
        return self._partly_read.byte_count

    def has_readable(self, only: PartitionFilter = None) -> bool:
        """Whether there is something to take, of these partitions if they are given."""
        return any(True for _ in self._readable(only))

    # For the consumer.

    def mark_processed(self, only: PartitionFilter) -> None:
        """A reader of `only` (None: all) has come for more: what it was given last is processed."""
        self._record_in_hand = None
        if only is None:
            self._in_hand.clear()
        else:
            for partition in only:
                self._in_hand.pop(partition, None)

    def processed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """All positions that are known, without what was returned last by each reader: whether
        that is processed is not known before it asks for more.
        """
        found = self._positions.consumed()
        if self._record_in_hand is not None:
            partition, record = self._record_in_hand
            state = self._positions.find(partition)
            if state is not None and state.position == record.offset + 1:
                found[partition] = OffsetAndMetadata(record.offset, "", record.leader_epoch)
        for partition, place in self._in_hand.items():
            if self._positions.has_place(partition, place.placed):
                found[partition] = OffsetAndMetadata(place.offset, "", place.leader_epoch)
        return found

    def take(self, max_records: int, only: PartitionFilter = None) -> Records:
        """Records of as many partitions as it takes; positions move past them."""
        self._put_back()
        taken: Records = {}
        left = max_records
        for partition in self._readable(only):
            while left and (records := self._read(partition, left)) is not None:
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
        """`next_record` for records that are made already: nothing else can change."""
        ahead = self._ahead
        if ahead is not None and ahead.version == self._positions.version:
            for record in ahead.records:
                partition = ahead.partition
                self._positions.advance(partition, record.offset + 1, record.leader_epoch)
                self._record_in_hand = partition, record
                return record
        return None

    def next_record(self) -> AnyRecord | None:
        """One record, None if there is none; its position moves past it."""
        record = self.next_made()
        if record is not None:
            return record
        self._put_back()
        for partition in self._readable():
            records = self._read(partition, AHEAD_RECORDS)
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

    def _read(self, partition: TopicPartition, wanted: int) -> list[AnyRecord] | None:
        """Some records, which the position has not moved past yet; None: no more of this answer,
        and another partition's turn.
        """
        waiting = self._waiting[partition]
        state = self._positions.state(partition)
        assert state.position is not None
        chunk = waiting.chunks[0]
        had_bytes = chunk.byte_count
        self._partly_read.make_room(partition)
        try:
            records = chunk.read(state.position, wanted)
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
                # Markers, and what compaction took away.
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
        """What was made ahead and not returned has to be made again."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and next(ahead.records, None) is not None:
            waiting = self._waiting.get(ahead.partition)
            if waiting is not None:
                waiting.chunks[0].rewind()

    def _drop(self, partition: TopicPartition) -> None:
        del self._waiting[partition]
        self._partly_read.forget(partition)
        self._on_less(partition, 0)

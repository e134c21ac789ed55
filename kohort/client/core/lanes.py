"""Records that wait for or run in handlers, by partition and lane; a lane runs in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Final

from kohort.client.core.offsets import UNKNOWN_EPOCH, OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord


class Failure:
    """A record's failed attempts, and how it is handled next."""

    __slots__ = ("attempts", "error", "failed_at_ms", "is_alone", "is_final", "write_failures")

    def __init__(self) -> None:
        self.attempts = 0
        """How many attempts have failed."""
        self.error: Exception | None = None
        """The error of the last failed attempt."""
        self.failed_at_ms = 0
        """When the last attempt failed, in milliseconds since the epoch."""
        self.is_final = False
        """Whether the record is now to be stored as a dead letter, without another call of its
        handler."""
        self.write_failures = 0
        """How often storing the dead letter has failed."""
        self.is_alone = False
        """Whether to handle the record in a batch of its own, such as after its batch failed."""


class Item:
    """A record that waits or is being handled; or several of a lane, handled as one batch."""

    __slots__ = (
        "began_ms",
        "byte_count",
        "failure",
        "lane",
        "members",
        "offset",
        "record",
        "runs_since_ms",
    )

    def __init__(self, lane: Lane, record: AnyRecord, offset: int, byte_count: int) -> None:
        self.lane = lane
        self.record = record
        self.offset = offset
        self.byte_count = byte_count
        self.failure: Failure | None = None
        self.began_ms: int | None = None
        """When the first attempt began."""
        self.runs_since_ms: int | None = None
        """When the current attempt began; None if none is running."""
        self.members: list[Item] | None = None
        """The items of the batch that this item begins; None outside of batches."""

    @property
    def partition(self) -> TopicPartition:
        return self.lane.share.partition

    @property
    def is_void(self) -> bool:
        """Whether the partition was revoked, so that the result is ignored."""
        return self.lane.share.is_dropped

    @property
    def is_final(self) -> bool:
        """Whether the record is to be stored as a dead letter."""
        return self.failure is not None and self.failure.is_final

    def singles(self) -> list[Item]:
        """Split a batch into its records, and reset their `began_ms`."""
        members, self.members = self.members or [self], None
        for member in members:
            member.began_ms = None
        return members

    def failing(self) -> Failure:
        if self.failure is None:
            self.failure = Failure()
        return self.failure


class Lane:
    """Records handled in order. A lane is ready unless its first record is running or waiting for a
    retry.
    """

    __slots__ = ("items", "key", "resting", "share", "since_ms")

    def __init__(self, key: Hashable, share: Share) -> None:
        self.key = key
        self.share = share
        self.items: deque[Item] = deque()
        self.resting = 0
        """Number of the lane's valid entry in the heap `Work._resting`; 0 if it does not wait."""
        self.since_ms: int | None = None
        """With batches: when the lane began to wait for more records for its next batch; None if it
        does not wait."""


class Share:
    """The records of one partition that `run` processes, for as long as the consumer owns it."""

    __slots__ = (
        "done",
        "drain_until_ms",
        "end",
        "is_dropped",
        "is_held",
        "lanes",
        "partition",
        "running_count",
        "settled",
        "started_to",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.lanes: dict[Hashable, Lane] = {}
        self.done = DoneOffsets()
        self.running_count = 0
        self.started_to = NOTHING_BEGUN
        """The highest offset of a record that was started."""
        self.settled: list[Item] = []
        """With transactions: the records that are done in the current transaction."""
        self.is_dropped = False
        self.release()

    def release(self) -> None:
        self.is_held = False
        """Whether to start no record above `started_to`, or at or above `end`."""
        self.drain_until_ms: float = float("inf")
        """When the drain ends; infinite if there is none. Retries that were due later are made at
        once, and no more are scheduled for later."""
        self.end: float = float("inf")
        """While `is_held`, no record at or above this offset starts; such records are delivered
        again. The offset of the first abandoned record, or NOTHING_BEGUN to start none."""

    def restart(self, items: Iterable[Item]) -> None:
        """Put the records of these items into new lanes, in order of offset; none is done yet."""
        singles = [single for item in items for single in item.singles()]
        self.lanes = {}
        self.done = DoneOffsets()
        self.started_to = NOTHING_BEGUN
        self.settled = []
        for item in sorted(singles, key=attrgetter("offset")):
            key = item.lane.key
            lane = self.lanes.get(key)
            if lane is None:
                lane = self.lanes[key] = Lane(key, self)
            item.lane = lane
            lane.items.append(item)
            self.done.begin([(item.offset, item.record.leader_epoch)])

    def may_start(self, item: Item) -> bool:
        return not self.is_held or (item.offset <= self.started_to and item.offset < self.end)


NOTHING_BEGUN: Final = -1


class DoneOffsets:
    """Tracks up to which offset one partition's records are done; they may finish in any order.

    A position may be committed when everything before it is done. Offsets have gaps (compaction,
    transaction markers), so this tracks the added records in order instead of counting offsets.
    Memory grows with `open_count`, which the caller bounds.
    """

    __slots__ = ("_begun", "_done", "_last_done", "last_begun")

    def __init__(self) -> None:
        self._begun: deque[tuple[int, int]] = deque()
        """Offset and leader epoch of each added record, from the first that is not done."""
        self._done: set[int] = set()
        """Offsets in `_begun` that are done already."""
        self.last_begun = NOTHING_BEGUN
        self._last_done = (NOTHING_BEGUN - 1, UNKNOWN_EPOCH)
        """Offset and leader epoch of the last record before `position`."""

    @property
    def position(self) -> OffsetAndMetadata | None:
        """The offset below which all added records are done, to be committed; None if none was
        added. At first it is the first record's offset: without that commit, a restarted consumer
        with auto_offset_reset=latest would skip the record.
        """
        if self.last_begun < 0:
            return None
        offset, leader_epoch = self._last_done
        return OffsetAndMetadata(offset + 1, "", leader_epoch)

    @property
    def open_count(self) -> int:
        """The number of added records, counted from the first that is not done."""
        return len(self._begun)

    def begin(self, records: Sequence[tuple[int, int]]) -> None:
        """Add records to be handled: offset and leader epoch of each, in order of offset."""
        first_offset = records[0][0]
        assert first_offset > self.last_begun, "records come in order"
        if self.last_begun < 0:
            self._last_done = first_offset - 1, UNKNOWN_EPOCH
        self.last_begun = records[-1][0]
        self._begun.extend(records)

    def finish(self, offset: int) -> None:
        """Mark a record as done; to be called once for each record."""
        begun, done = self._begun, self._done
        if begun[0][0] != offset:
            assert offset not in done, "done twice"
            done.add(offset)
            return
        last = begun.popleft()
        while done and begun[0][0] in done:
            last = begun.popleft()
            done.remove(last[0])
        self._last_done = last

"""Scheduling of concurrent handlers: which records may be handled, which are done, and what may be
committed.

Records wait in lanes: the records of one lane are handled one after another, lanes concurrently. A
lane is a key of a partition, or a whole partition. A record whose handler failed stays at the head
of its lane until its next attempt, so that order is kept; other lanes continue.

There is no clock and no task here: times are passed in, and the caller of `next` does the work. The
records and bytes held are bounded, and so are the records of a partition after its committable
position.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, KeysView, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from kohort.client.core.done_offsets import NOTHING_BEGUN, DoneOffsets
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition

ROOM_SHARE: Final = 4
"""Once full, one part in this many of the limit must be free before records are taken again, to
avoid taking them one by one."""

FIRST_TAKE: Final = 16
"""How many records are taken before their size is known."""


class Phase(Enum):
    """The next action for a record."""

    HANDLE = "handle"
    DEAD_LETTER = "dead letter"
    """Store it as a dead letter; its handler is not called any more."""


class Entry(NamedTuple):
    offset: int
    leader_epoch: int
    lane: Hashable
    """Records of one partition with equal lanes are handled in order."""
    byte_count: int
    record: Any


class Item:
    """A record being handled or waiting. `began_ms` is None until its first attempt."""

    __slots__ = (
        "attempts",
        "began_ms",
        "byte_count",
        "dead_letter_failures",
        "error",
        "failed_at_ms",
        "is_running",
        "lane",
        "offset",
        "phase",
        "record",
        "runs_since_ms",
        "share",
    )

    def __init__(self, lane: _Lane, entry: Entry) -> None:
        self.lane = lane
        self.share = lane.share
        self.offset = entry.offset
        self.byte_count = entry.byte_count
        self.record = entry.record
        self.phase = Phase.HANDLE
        self.attempts = 0
        """How many attempts have failed."""
        self.dead_letter_failures = 0
        """How often storing the dead letter has failed."""
        self.began_ms: int | None = None
        self.is_running = False
        self.runs_since_ms = 0
        """When the current attempt began, while it is running."""
        self.error: Exception | None = None
        self.failed_at_ms = 0
        """When the last attempt failed, in milliseconds since the epoch."""

    @property
    def partition(self) -> TopicPartition:
        return self.share.partition

    @property
    def is_void(self) -> bool:
        """Whether its partition was revoked, so that its result is ignored."""
        return self.share.is_dropped


class _Lane:
    """Records handled in order. Its head runs or waits for a retry, or it is ready."""

    __slots__ = ("items", "key", "share")

    def __init__(self, key: Hashable, share: _Share) -> None:
        self.key = key
        self.share = share
        self.items: deque[Item] = deque()


class _Share:
    """One partition, for as long as it is owned."""

    __slots__ = (
        "done",
        "drain_until_ms",
        "end",
        "is_dropped",
        "is_held",
        "lanes",
        "partition",
        "running_count",
        "started_to",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.lanes: dict[Hashable, _Lane] = {}
        self.done = DoneOffsets()
        self.running_count = 0
        self.started_to = NOTHING_BEGUN
        """The highest offset of a record that was started."""
        self.is_held = False
        """Whether only records up to `started_to` may start."""
        self.drain_until_ms: float = float("inf")
        """While held: later attempts are not made."""
        self.end: float = float("inf")
        """While held: no record from this offset on may start, because an earlier one is given up,
        so that it would be handled again in any case."""
        self.is_dropped = False

    def may_start(self, item: Item) -> bool:
        return not self.is_held or (item.offset <= self.started_to and item.offset < self.end)


class WorkLimits(NamedTuple):
    records: int
    byte_count: int
    """Bytes of these records. The last ones that were taken may exceed it."""
    uncommitted: int
    """Records of one partition after its committable position, done or not."""


class Work:
    """The records of one consumer that are being handled."""

    def __init__(self, limits: WorkLimits) -> None:
        self._limits = limits
        self._shares: dict[TopicPartition, _Share] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._ready: deque[_Lane] = deque()
        self._resting: list[tuple[int, int, _Lane]] = []
        """A heap of retry time, tie-breaker, and the lane whose head waits for a retry."""
        self._rests = 0
        self._begun: set[Item] = set()
        self._gone: set[TopicPartition] = set()
        """Partitions revoked and not reassigned: records read from them may not be done."""
        self._was_full = False
        self._mean_bytes = 0.0
        self.held_records = 0
        self.held_bytes = 0
        self.drop_count = 0
        """How often partitions were revoked."""

    # Incoming records.

    def room(self) -> int:
        """How many records may be taken now; once full, 0 until a quarter is free."""
        limits = self._limits
        if self._was_full:
            needed_records = max(1, limits.records // ROOM_SHARE)
            needed_bytes = max(1, limits.byte_count // ROOM_SHARE)
        else:
            needed_records = needed_bytes = 1
        free_records = limits.records - self.held_records
        free_bytes = limits.byte_count - self.held_bytes
        self._was_full = free_records < needed_records or free_bytes < needed_bytes
        if self._was_full:
            return 0
        if not self._mean_bytes:
            return min(free_records, FIRST_TAKE)
        return max(1, min(free_records, int(free_bytes / self._mean_bytes)))

    def has_room(self, partition: TopicPartition) -> bool:
        """Whether the partition's own limit allows more records."""
        share = self._shares.get(partition)
        if share is None:
            return True
        return not share.is_held and share.done.open_count < self._limits.uncommitted

    def feed(self, partition: TopicPartition, entries: Iterable[Entry]) -> None:
        """Add records that were read, in order, from an owned partition.

        An offset that is not after the previous ones means that the application has sought back:
        running handlers of the partition no longer count, and it starts over from there.
        """
        share = self._share(partition)
        for entry in entries:
            if entry.offset <= share.done.last_begun:
                self.drop([partition])
                share = self._share(partition)
            lane = share.lanes.get(entry.lane)
            if lane is None:
                lane = share.lanes[entry.lane] = _Lane(entry.lane, share)
                self._ready.append(lane)
            lane.items.append(Item(lane, entry))
            share.done.begin(entry.offset, entry.leader_epoch)
            self.held_records += 1
            self.held_bytes += entry.byte_count
            # The average follows gradual changes within some hundred records, and large increases
            # at once.
            self._mean_bytes += (entry.byte_count - self._mean_bytes) / 64
            self._mean_bytes = max(self._mean_bytes, entry.byte_count / 8)

    # Handling.

    @property
    def ready_count(self) -> int:
        """How many records could be started now, at most."""
        return len(self._ready)

    def due_ms(self) -> int | None:
        """When the next retry is due; None if none is waiting."""
        return self._resting[0][0] if self._resting else None

    def wake_rested(self, now_ms: int) -> None:
        """Make records ready whose retry is due."""
        resting = self._resting
        while resting and resting[0][0] <= now_ms:
            self._ready.append(heapq.heappop(resting)[2])

    def next(self, now_ms: int) -> Item | None:
        """Return a record to run, or None; give it back with `finish`, `rest` or `abandon`."""
        if self._resting:
            self.wake_rested(now_ms)
        ready = self._ready
        while ready:
            lane = ready.popleft()
            item, share = lane.items[0], lane.share
            if share.is_held and not share.may_start(item):
                continue
            share.running_count += 1
            share.started_to = max(share.started_to, item.offset)
            item.is_running = True
            item.runs_since_ms = now_ms
            if item.began_ms is None:
                item.began_ms = now_ms
                self._begun.add(item)
            return item
        return None

    def finish(self, item: Item) -> None:
        """Mark a record as done, whatever its result: the position may move past it."""
        share, lane = item.share, item.lane
        share.running_count -= 1
        item.is_running = False
        self._release(item)
        if share.is_dropped:
            return
        share.done.finish(item.offset)
        lane.items.popleft()
        if lane.items:
            self._ready.append(lane)
        else:
            del share.lanes[lane.key]

    def rest(self, item: Item, until_ms: int) -> None:
        """Schedule the next attempt, or the next attempt at its dead letter; its lane waits. A held
        partition's record is given up if that is too late.
        """
        share = item.share
        if share.is_held and until_ms > share.drain_until_ms:
            self.abandon(item)
            return
        self._take_back(item)
        if share.is_dropped:
            return
        self._rests += 1
        heapq.heappush(self._resting, (until_ms, self._rests, item.lane))

    def abandon(self, item: Item) -> None:
        """Give up a record, whose handler was cancelled or may not be called again: it is not done,
        and the rest of its partition is not started once the partition is held.
        """
        self._take_back(item)
        item.share.end = min(item.share.end, item.offset)

    def _take_back(self, item: Item) -> None:
        item.share.running_count -= 1
        item.is_running = False
        if item.share.is_dropped:
            self._release(item)

    def _release(self, item: Item) -> None:
        self.held_records -= 1
        self.held_bytes -= item.byte_count
        self._begun.discard(item)

    # Rebalances.

    @property
    def partitions(self) -> KeysView[TopicPartition]:
        return self._shares.keys()

    def drain(self, partitions: Iterable[TopicPartition], until_ms: int) -> None:
        """Start no more records of these partitions after the last one started. Those before it
        are still handled: otherwise the ones behind them, which are done, would be delivered again.

        Retries due by `until_ms` happen when they are due, and all others once, at once.
        """
        for partition in partitions:
            share = self._share(partition)
            share.is_held = True
            share.drain_until_ms = min(share.drain_until_ms, until_ms)
        resting, self._resting = self._resting, []
        for retry in resting:
            if retry[2].share.is_held and retry[0] > retry[2].share.drain_until_ms:
                self._ready.append(retry[2])
            else:
                self._resting.append(retry)
        heapq.heapify(self._resting)

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Start no more records of these partitions."""
        for partition in partitions:
            share = self._share(partition)
            share.is_held = True
            share.end = NOTHING_BEGUN

    def is_busy(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether a record of these held partitions is running, or will be."""
        shares = [share for tp in partitions if (share := self._shares.get(tp)) is not None]
        return any(share.running_count for share in shares) or any(
            share.may_start(lane.items[0]) for share in shares for lane in share.lanes.values()
        )

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget these partitions: results of running handlers no longer count."""
        self.drop_count += 1
        for partition in list(partitions):
            self._committed.pop(partition, None)
            self._gone.add(partition)
            share = self._shares.pop(partition, None)
            if share is None:
                continue
            share.is_held = share.is_dropped = True
            for lane in share.lanes.values():
                for item in lane.items:
                    # A running record stays in memory until it is returned.
                    if not item.is_running:
                        self._release(item)
        self._ready = deque(lane for lane in self._ready if not lane.share.is_dropped)
        self._resting = [retry for retry in self._resting if not retry[2].share.is_dropped]
        heapq.heapify(self._resting)

    def take_over(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that these partitions are owned again, from their committed offsets."""
        self._gone.difference_update(partitions)

    def _share(self, partition: TopicPartition) -> _Share:
        share = self._shares.get(partition)
        if share is None:
            self._gone.discard(partition)
            share = self._shares[partition] = _Share(partition)
        return share

    # Commits.

    def committable(
        self, positions: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offset up to which everything is done, of each partition with a position.

        `positions`: the read positions. They are used where everything that arrived is done: any
        offsets before them hold no records for handlers, but transaction markers perhaps.
        Partitions that were revoked and not reassigned are left out.
        """
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, position in positions.items():
            if partition in self._gone:
                continue
            share = self._shares.get(partition)
            if share is None or not share.done.open_count:
                offsets[partition] = position
            elif share.done.position is not None:
                offsets[partition] = share.done.position
        return offsets

    def uncommitted(
        self, positions: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The part of `committable` that has not been committed yet."""
        offsets = self.committable(positions)
        return {tp: at for tp, at in offsets.items() if self._committed.get(tp) != at}

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._committed.update(offsets)

    # State for observers.

    @property
    def begun_count(self) -> int:
        """The number of records started and not done: running, or waiting for a retry."""
        return len(self._begun)

    def oldest(self) -> Item | None:
        """The record in flight that was started first."""
        return min(self._begun, key=_began_ms, default=None)

    def running_since_ms(self) -> int | None:
        """When the longest-running attempt began; None if none is running."""
        return min((item.runs_since_ms for item in self._begun if item.is_running), default=None)


def _began_ms(item: Item) -> int:
    assert item.began_ms is not None
    return item.began_ms

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
from collections.abc import Hashable, Iterable, Iterator, KeysView, Mapping, Sequence

from kohort.client.core.lanes import NOTHING_BEGUN, Failure, Item, Lane, Share
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord
from kohort.client.core.work_limits import (
    FIRST_TAKE,
    RECORD_OVERHEAD_BYTES,
    BatchLimits,
    WorkLimits,
)


class Work:
    """The records of one consumer that are in handlers or wait for one."""

    def __init__(
        self,
        limits: WorkLimits,
        *,
        by_key: bool = False,
        batches: BatchLimits | None = None,
        is_transactional: bool = False,
    ) -> None:
        """Create the state of a run without records.

        Args:
            by_key: whether a lane is a key of a partition; otherwise it is a whole partition.
            batches: None: records are handled one by one.
            is_transactional: whether records that are done are kept until `settle`, because `undo`
                may be called instead.
        """
        self._limits = limits
        self._most_held = limits.most_held(once_full=False)
        self._most_held_once_full = limits.most_held(once_full=True)
        self._by_key = by_key
        self._batches = batches
        self._is_transactional = is_transactional
        self.start_limit: float = float("inf")
        """How many records may be started before the next `settle` or `undo`."""
        self.started_count = 0
        """How many records were started since the last `settle` or `undo`."""
        self._shares: dict[TopicPartition, Share] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._ready: deque[Lane] = deque()
        self._resting: list[tuple[int, int, Lane]] = []
        """A heap of (due time, number, lane): the lane's first record waits for a retry, or for
        more records of its batch. An entry is void unless `number` equals `lane.resting`."""
        self._rests = 0
        self._gone: set[TopicPartition] = set()
        """Partitions revoked and not reassigned. They have no committable offset, because records
        read from them may be unfinished."""
        self._is_closed = False
        self._was_full = False
        self._mean_bytes = 0.0
        self.held_records = 0
        self.held_bytes = 0
        self.drop_count = 0
        """How often `drop` was called."""

    # Incoming records.

    def room(self) -> int:
        """How many records may be taken now; once full, 0 until a quarter is free."""
        limits = self._limits
        self._was_full = not self.has_space
        if self._was_full:
            return 0
        free_records = limits.records - self.held_records
        if not self._mean_bytes:
            return min(free_records, FIRST_TAKE)
        free_bytes = limits.byte_count - self.held_bytes
        return max(1, min(free_records, int(free_bytes / self._mean_bytes)))

    @property
    def has_space(self) -> bool:
        """Whether `room` would return more than 0."""
        records, byte_count = self._most_held_once_full if self._was_full else self._most_held
        return self.held_records <= records and self.held_bytes <= byte_count

    def has_room(self, partition: TopicPartition) -> bool:
        """Whether the partition's own limit allows more records."""
        share = self._shares.get(partition)
        return share is None or share.done.open_count < self._limits.uncommitted

    def feed(self, partition: TopicPartition, records: Sequence[AnyRecord], now_ms: int) -> None:
        """Add records that were read from an owned partition, at least one, in order of offset.

        If the first offset is not after the previous offsets, the application has sought back: the
        partition starts over from that offset, and results of running handlers are ignored.
        """
        share = self._share(partition)
        if records[0].offset <= share.done.last_begun:
            self.drop([partition])
            share = self._share(partition)
        by_key, batches = self._by_key, self._batches
        begun: list[tuple[int, int]] = []
        total_bytes = largest_bytes = 0
        lane: Lane | None = None
        for record in records:
            # A slice of a named tuple is a tuple, which Python unpacks several times faster.
            offset, _, _, key, _, key_size, value_size, headers, leader_epoch = record[2:]
            byte_count = RECORD_OVERHEAD_BYTES + key_size + value_size
            if headers:
                for name, value in headers:
                    byte_count += len(name) + len(value or b"")
            if by_key or lane is None:
                lane_key = key if by_key else None
                lane = share.lanes.get(lane_key) or self._open_lane(share, lane_key)
            lane.items.append(Item(lane, record, offset, byte_count))
            if batches is not None and len(lane.items) in {1, batches.records}:
                self._line_up(lane, now_ms)
            begun.append((offset, leader_epoch))
            total_bytes += byte_count
            if byte_count > largest_bytes:  # noqa: PLR1730 - max() takes longer.
                largest_bytes = byte_count
        share.done.begin(begun)
        self.held_records += len(begun)
        self.held_bytes += total_bytes
        # The mean size adapts to gradual changes within some hundred records, and to a much larger
        # record at once.
        weight = 1 - (63 / 64) ** len(begun)
        mean_bytes = self._mean_bytes
        mean_bytes += (total_bytes / len(begun) - mean_bytes) * weight
        self._mean_bytes = max(mean_bytes, largest_bytes / 8)

    def feed_final(
        self, partition: TopicPartition, last_offset: int, record: AnyRecord, now_ms: int
    ) -> Failure:
        """Add a dead letter in place of the unreadable records up to `last_offset`."""
        share = self._share(partition)
        lane = share.lanes.get(None) or self._open_lane(share, None)
        item = Item(lane, record, last_offset, RECORD_OVERHEAD_BYTES)
        lane.items.append(item)
        if self._batches is not None and len(lane.items) in {1, self._batches.records}:
            self._line_up(lane, now_ms)
        share.done.begin([(last_offset, record.leader_epoch)])
        self.held_records += 1
        self.held_bytes += item.byte_count
        failure = item.failing()
        failure.is_final = failure.is_alone = True
        return failure

    def _open_lane(self, share: Share, key: Hashable) -> Lane:
        """Create a lane for a record that the caller then adds; without batches, the lane is ready
        at once.
        """
        lane = share.lanes[key] = Lane(key, share)
        if self._batches is None:
            self._ready.append(lane)
        return lane

    def _line_up(self, lane: Lane, now_ms: int) -> None:
        """Make a lane ready unless its first record is running. With batches, wait for a full batch
        or until the batch is due.
        """
        batches = self._batches
        head = lane.items[0]
        if head.runs_since_ms is not None:
            return
        if batches is None or len(lane.items) >= batches.records or head.failure is not None:
            lane.resting = 0
            self._ready.append(lane)
            return
        if lane.since_ms is None:
            lane.since_ms = now_ms
        self._rest(lane, lane.since_ms + batches.wait_ms)

    # Handling.

    @property
    def ready_count(self) -> int:
        """Maximum number of records that can be started now."""
        return len(self._ready)

    def due_ms(self) -> int | None:
        """When the next retry or incomplete batch is due; None if none is waiting."""
        resting = self._resting
        while resting and resting[0][2].resting != resting[0][1]:
            heapq.heappop(resting)
        return resting[0][0] if resting else None

    def hurry(self) -> None:
        """Make incomplete batches ready, because there is no room for more records."""
        for _, number, lane in self._resting:
            if lane.resting == number and lane.items[0].began_ms is None:
                lane.resting = 0
                self._ready.append(lane)

    def wake_rested(self, now_ms: int) -> None:
        """Make ready all lanes whose retry or incomplete batch is due."""
        due_ms = self.due_ms()
        while due_ms is not None and due_ms <= now_ms:
            lane = heapq.heappop(self._resting)[2]
            lane.resting = 0
            self._ready.append(lane)
            due_ms = self.due_ms()

    def next(self, now_ms: int) -> Item | None:
        """Return a record to handle, or None. The caller gives it back with `finish`, `rest` or
        `abandon`.
        """
        if self._resting:
            self.wake_rested(now_ms)
        ready = self._ready
        while ready and self.started_count < self.start_limit:
            lane = ready.popleft()
            item, share = lane.items[0], lane.share
            if share.is_held and not share.may_start(item):
                continue
            if self._batches is not None:
                self._gather(lane, self._batches)
            self._start(item, share, now_ms)
            return item
        return None

    def _start(self, item: Item, share: Share, now_ms: int) -> None:
        share.running_count += 1
        item.runs_since_ms = now_ms
        count, offset = 1, item.offset
        if item.members is not None:
            count, offset = len(item.members), item.members[-1].offset
        if item.began_ms is None:
            item.began_ms = now_ms
            self.started_count += count
        if offset > share.started_to:  # noqa: PLR1730 - max() takes longer.
            share.started_to = offset

    def _gather(self, lane: Lane, batches: BatchLimits) -> None:
        """Combine the first records of a lane into a batch."""
        lane.since_ms = None
        head = lane.items[0]
        if head.members is not None:
            return
        head.members = [head]
        if head.failure is not None and head.failure.is_alone:
            return
        share = lane.share
        while (
            len(lane.items) > 1
            and len(head.members) < batches.records
            and lane.items[1].failure is None
            and (not share.is_held or share.may_start(lane.items[1]))
        ):
            head.members.append(lane.items[1])
            del lane.items[1]

    def split(self, item: Item, now_ms: int) -> None:
        """Return a failed batch to its lane as single records, to be handled one by one."""
        assert item.members is not None
        members, item.members = item.members, None
        self._take_back(item)
        if item.is_void:
            return
        item.lane.items.popleft()
        item.lane.items.extendleft(reversed(members))
        for member in members:
            member.failure = Failure()
            member.failure.is_alone = True
        self._line_up(item.lane, now_ms)

    def finish(self, item: Item, now_ms: int = 0, *, goes_on: bool = False) -> Item | None:
        """Mark a record as done, whatever its result: the position may move past it.

        With `goes_on`, return the next record of the lane, if it may be started; see `next`.
        """
        lane = item.lane
        share = lane.share
        share.running_count -= 1
        item.runs_since_ms = None
        if self._is_transactional and not share.is_dropped:
            share.settled.append(item)
        elif item.members is None:
            # `_release` inlined: the call would take as long as its work.
            self.held_records -= 1
            self.held_bytes -= item.byte_count
        else:
            self._release(item)
        if share.is_dropped:
            return None
        if item.members is None:
            share.done.finish(item.offset)
        else:
            for member in item.members:
                share.done.finish(member.offset)
        items = lane.items
        items.popleft()
        if not items:
            del share.lanes[lane.key]
        elif self._batches is not None:
            self._line_up(lane, now_ms)
        elif goes_on and not share.is_held and self.started_count < self.start_limit:
            item = items[0]
            self._start(item, share, now_ms)
            return item
        else:
            self._ready.append(lane)
        return None

    def rest(self, item: Item, until_ms: int) -> None:
        """Schedule the next attempt to handle a record or store its dead letter; its lane waits.
        Abandon the record if its partition is draining and the drain ends before `until_ms`.
        """
        share = item.lane.share
        if share.is_held and until_ms > share.drain_until_ms:
            self.abandon(item)
            return
        self._take_back(item)
        if not share.is_dropped:
            self._rest(item.lane, until_ms)

    def _rest(self, lane: Lane, until_ms: int) -> None:
        self._rests += 1
        lane.resting = self._rests
        heapq.heappush(self._resting, (until_ms, self._rests, lane))

    def abandon(self, item: Item) -> None:
        """Leave a record undone: its handler was cancelled, or must not be called now. While its
        partition is draining or held, no record from this offset on is started.
        """
        self._take_back(item)
        share = item.lane.share
        share.end = min(share.end, item.offset)

    def _take_back(self, item: Item) -> None:
        share = item.lane.share
        share.running_count -= 1
        item.runs_since_ms = None
        if share.is_dropped:
            self._release(item)

    def _release(self, item: Item) -> None:
        for single in item.members or (item,):
            self.held_records -= 1
            self.held_bytes -= single.byte_count

    # Rebalances and the end.

    @property
    def partitions(self) -> KeysView[TopicPartition]:
        return self._shares.keys()

    def drain(self, partitions: Iterable[TopicPartition], until_ms: int) -> None:
        """Start no records of these partitions beyond the last one started. Records before it are
        still handled: otherwise records that are done would be delivered again.

        Retries due by `until_ms` are made when due, later ones at once; no more are scheduled for a
        time after `until_ms`.
        """
        for partition in partitions:
            share = self._share(partition)
            share.is_held = True
            share.drain_until_ms = min(share.drain_until_ms, until_ms)
        for due_ms, number, lane in self._resting:
            if lane.share.is_held and due_ms > lane.share.drain_until_ms and lane.resting == number:
                lane.resting = 0
                self._ready.append(lane)

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Start no more records of these partitions, not even to finish a drain."""
        for partition in partitions:
            share = self._share(partition)
            share.is_held = True
            share.end = NOTHING_BEGUN

    def is_busy(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether a handler of these draining or held partitions is running or will be started."""
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
            for item in share.settled:
                self._release(item)
            for lane in share.lanes.values():
                for item in lane.items:
                    # A running record counts as held until its worker gives it back.
                    if item.runs_since_ms is None:
                        self._release(item)
        self._ready = deque(lane for lane in self._ready if not lane.share.is_dropped)
        self._resting = [retry for retry in self._resting if not retry[2].share.is_dropped]
        heapq.heapify(self._resting)

    def take_over(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that these partitions are owned again; they are read from committed offsets."""
        self._gone.difference_update(partitions)

    def _share(self, partition: TopicPartition) -> Share:
        share = self._shares.get(partition)
        if share is None:
            self._gone.discard(partition)
            share = self._shares[partition] = Share(partition)
            share.is_held = self._is_closed
        return share

    # Transactions.

    @property
    def has_records(self) -> bool:
        """Whether there are records that are not done."""
        return any(share.lanes for share in self._shares.values())

    def close(self, until_ms: int) -> None:
        """Drain all partitions, including those assigned later, until `resume`."""
        self._is_closed = True
        self.start_limit = float("inf")
        self.drain(self._shares, until_ms)

    def settle(self) -> None:
        """Release the records that are done: their transaction was committed."""
        self.started_count = 0
        for share in self._shares.values():
            for item in share.settled:
                self._release(item)
            share.settled.clear()

    def undo(self) -> None:
        """Put all records that are done or were started back into their lanes: their transaction
        was aborted. No handler may be running. Failed attempts are remembered.
        """
        self.started_count = 0
        for share in self._shares.values():
            items = [*share.settled]
            for lane in share.lanes.values():
                items += lane.items
            share.restart(items)

    def resume(self, now_ms: int) -> None:
        """Allow records to be started again after `close` or `hold`."""
        self._is_closed = False
        self._ready.clear()
        self._resting.clear()
        for share in self._shares.values():
            share.release()
            for lane in share.lanes.values():
                self._line_up(lane, now_ms)

    # Commits.

    def committable(
        self, positions: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return, for each partition with a position, the offset up to which everything is done.

        `positions`: the read positions. If all records read from a partition are done, its read
        position is returned, even if transaction markers precede it. Partitions that were revoked
        and not reassigned are left out.
        """
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, position in positions.items():
            if partition in self._gone:
                continue
            share = self._shares.get(partition)
            if share is None or not share.done.open_count:
                offsets[partition] = position
            elif position.offset <= share.done.last_begun:
                # The application sought back, or the topic was recreated; see `feed`.
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
        return sum(len(item.members or (item,)) for item in self.begun())

    def begun(self) -> Iterator[Item]:
        """Records and batches that have been started and are not done."""
        for share in self._shares.values():
            for lane in share.lanes.values():
                if lane.items[0].began_ms is not None:
                    yield lane.items[0]

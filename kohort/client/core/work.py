"""What may be handled now, what is done, and what may be committed, if handlers run side by side.

Records wait in lanes: those of one lane are handled one after the other, lanes side by side. A
lane is a key of a partition, or a whole partition. A record whose handler failed stays at the head
of its lane until its next attempt, so that its order is kept; other lanes go on.

Here is no clock and no task: the time comes in, and the caller of `next` does the work. Bounded are
the records and bytes that are held, and how many records of a partition lie behind its position.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, KeysView, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from kohort.client.core.done_offsets import DoneOffsets
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition

ROOM_SHARE: Final = 4
"""What was full takes records again when a quarter of it is free: not one by one."""

FIRST_TAKE: Final = 16
"""How many records are taken before it is known how large they are."""


class Phase(Enum):
    """What is to be done with a record next."""

    HANDLE = "handle"
    """Call the handler."""
    DEAD_LETTER = "dead letter"
    """Write it to where dead letters go: its handler is not called any more."""


class Entry(NamedTuple):
    """A record that came in."""

    offset: int
    leader_epoch: int
    lane: Hashable
    """Records of one partition with equal lanes are handled in order."""
    byte_count: int
    record: Any


class Item:
    """A record on its way. `began_ms` is None until it is begun."""

    __slots__ = (
        "attempts",
        "began_ms",
        "byte_count",
        "dead_letter_failures",
        "error",
        "failed_at_ms",
        "is_running",
        "lane",
        "made",
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
        self.made: Any = None
        """What the deserialisers made of it, kept from one attempt to the next."""
        self.phase = Phase.HANDLE
        self.attempts = 0
        """How often its handler has failed."""
        self.dead_letter_failures = 0
        """How often it could not be written as a dead letter."""
        self.began_ms: int | None = None
        self.is_running = False
        self.runs_since_ms = 0
        """When its attempt began, while it is running."""
        self.error: Exception | None = None
        """What the last attempt came to."""
        self.failed_at_ms = 0
        """When, in milliseconds since the epoch."""

    @property
    def partition(self) -> TopicPartition:
        return self.share.partition

    @property
    def is_void(self) -> bool:
        """Whether its partition is gone: what becomes of it does not matter any more."""
        return self.share.is_dropped


class _Lane:
    """Records that wait for each other. Its head is running, resting, or the lane is ready."""

    __slots__ = ("items", "key", "share")

    def __init__(self, key: Hashable, share: _Share) -> None:
        self.key = key
        self.share = share
        self.items: deque[Item] = deque()


class _Share:
    """One partition, for as long as it is owned."""

    __slots__ = (
        "done",
        "is_dropped",
        "is_held",
        "lanes",
        "partition",
        "running_count",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.lanes: dict[Hashable, _Lane] = {}
        self.done = DoneOffsets()
        self.running_count = 0
        self.is_held = False
        """Nothing of it is begun any more."""
        self.is_dropped = False


class WorkLimits(NamedTuple):
    """What may be held."""

    records: int
    """Records that are not done."""
    byte_count: int
    """Bytes of these. The last records that were taken may go beyond."""
    uncommitted: int
    """Records of one partition behind the position that can be committed, done or not."""


class Work:
    """The records of one consumer that are being handled."""

    def __init__(self, limits: WorkLimits) -> None:
        self._limits = limits
        self._shares: dict[TopicPartition, _Share] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._ready: deque[_Lane] = deque()
        self._resting: list[tuple[int, int, _Lane]] = []
        """A heap: when, a number that tells those apart, and whose head has its next attempt."""
        self._rests = 0
        self._begun: set[Item] = set()
        self._gone: set[TopicPartition] = set()
        """Dropped, and not taken over again: what was read of them may not be done."""
        self._was_full = False
        self._mean_bytes = 0.0
        self.held_records = 0
        self.held_bytes = 0
        self.drop_count = 0
        """How often partitions have gone."""

    # What comes in.

    def room(self) -> int:
        """How many records may be taken now; 0 from when it is full until a quarter is free."""
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
        """Whether records of this partition may come, as far as it alone is concerned."""
        share = self._shares.get(partition)
        if share is None:
            return True
        return not share.is_held and share.done.open_count < self._limits.uncommitted

    def feed(self, partition: TopicPartition, entries: Iterable[Entry]) -> None:
        """Records that were read, in order, of a partition that is owned.

        One that is not behind those before means that the application has sought back: what is
        under way of the partition does not count any more, and it starts over there.
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
            # Follows changes within some hundred records, and larger ones at once.
            self._mean_bytes += (entry.byte_count - self._mean_bytes) / 64
            self._mean_bytes = max(self._mean_bytes, entry.byte_count / 8)

    # What is done with it.

    @property
    def ready_count(self) -> int:
        """How many could be begun now, at most."""
        return len(self._ready)

    def due_ms(self) -> int | None:
        """When the next rest is over; None if none rests."""
        return self._resting[0][0] if self._resting else None

    def wake_rested(self, now_ms: int) -> None:
        """Let those be begun whose rest is over by now."""
        resting = self._resting
        while resting and resting[0][0] <= now_ms:
            self._ready.append(heapq.heappop(resting)[2])

    def next(self, now_ms: int) -> Item | None:
        """The record to begin with, which then is running; None if there is none now.

        It is given back by one of `finish`, `rest` and `abandon`.
        """
        if self._resting:
            self.wake_rested(now_ms)
        ready = self._ready
        while ready:
            lane = ready.popleft()
            if lane.share.is_held:
                continue
            item = lane.items[0]
            lane.share.running_count += 1
            item.is_running = True
            item.runs_since_ms = now_ms
            if item.began_ms is None:
                item.began_ms = now_ms
                self._begun.add(item)
            return item
        return None

    def finish(self, item: Item) -> None:
        """It is done, whatever that means: the position may move past it."""
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
        """Its next attempt, or that of its dead letter, is due then; its lane waits."""
        self.abandon(item)
        if item.share.is_dropped:
            return
        self._rests += 1
        heapq.heappush(self._resting, (until_ms, self._rests, item.lane))

    def abandon(self, item: Item) -> None:
        """It was cut short, and is not done: nothing behind it is begun or committed here."""
        item.share.running_count -= 1
        item.is_running = False
        if item.share.is_dropped:
            self._release(item)

    def _release(self, item: Item) -> None:
        self.held_records -= 1
        self.held_bytes -= item.byte_count
        self._begun.discard(item)

    # Partitions that go.

    @property
    def partitions(self) -> KeysView[TopicPartition]:
        """Partitions of which something has come in, and that are still owned."""
        return self._shares.keys()

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin nothing more of these, for they are about to go."""
        for partition in partitions:
            self._share(partition).is_held = True

    def running_count(self, partitions: Iterable[TopicPartition]) -> int:
        """How many of their records are running."""
        shares = map(self._shares.get, partitions)
        return sum(share.running_count for share in shares if share is not None)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """They are gone: what is running of them will not count, and the rest is forgotten."""
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
                    # What is running is in memory until it is given back.
                    if not item.is_running:
                        self._release(item)
        self._ready = deque(lane for lane in self._ready if not lane.share.is_dropped)
        self._resting = [one for one in self._resting if not one[2].share.is_dropped]
        heapq.heapify(self._resting)

    def take_over(self, partitions: Iterable[TopicPartition]) -> None:
        """They are owned again, and are read from where nothing was handed out here."""
        self._gone.difference_update(partitions)

    def _share(self, partition: TopicPartition) -> _Share:
        share = self._shares.get(partition)
        if share is None:
            self._gone.discard(partition)
            share = self._shares[partition] = _Share(partition)
        return share

    # What may be committed.

    def committable(
        self, positions: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Up to where all is done, of each partition with a position.

        `positions`: where reading stands. It counts if everything that came in is done: then there
        is nothing for a handler before it, but markers of transactions perhaps. Of a partition that
        was dropped, and is not owned again, nothing is known.
        """
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, position in positions.items():
            if partition in self._gone:
                continue
            share = self._shares.get(partition)
            if share is None or not share.done.open_count:
                found[partition] = position
            elif share.done.position is not None:
                found[partition] = share.done.position
        return found

    def uncommitted(
        self, positions: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The part of `committable` that was not committed yet."""
        found = self.committable(positions)
        return {one: at for one, at in found.items() if self._committed.get(one) != at}

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These were stored."""
        self._committed.update(offsets)

    # For observers.

    @property
    def begun_count(self) -> int:
        """Records that were begun and are not done: running, or waiting for another attempt."""
        return len(self._begun)

    def oldest(self) -> Item | None:
        """The one of these that was begun first."""
        return min(self._begun, key=_began_ms, default=None)

    def running_since_ms(self) -> int | None:
        """When the attempt began that is under way longest; None if none is."""
        return min((item.runs_since_ms for item in self._begun if item.is_running), default=None)


def _began_ms(item: Item) -> int:
    assert item.began_ms is not None
    return item.began_ms

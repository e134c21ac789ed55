"""Plans fetches: which partitions to request from which broker, and how many bytes.

A partition is requested as soon as its buffered data is less than one response brings, so that the
next response arrives while polls return the previous one. It is left out while it is paused or
about to be revoked, during a backoff after a failure, and while its broker has a request in flight:
there is one request per broker at a time.

All buffered data is bounded by `FetchLimits.prefetch_bytes`, of which every broker has an equal
share, so that none of them can keep the others from being read. The bound is exceeded by at most
one batch per broker, because a broker returns a first batch however large it is (KIP-74), and by
the data of a broker's other partitions while its paused ones fill its share.

A broker fills a response in the order of the request. So each partition with data in a response
moves to the end of the order: round robin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from kohort.client.core.partitions import TopicPartition

NodeOf: TypeAlias = Callable[[TopicPartition], int | None]
"""Returns the broker to fetch a partition from: its leader or preferred read replica."""

IsReadable: TypeAlias = Callable[[TopicPartition], bool]

LEFTOVER_MS: Final = 100
"""Minimum interval of requests to a broker while one of its partitions has enough buffered data.
That partition will soon be due, so requests for the others do not allow the broker to wait for
data: without this interval, it would return empty responses in quick succession."""


class FetchLimits(NamedTuple):
    """Limits in bytes: for one response, for one partition in it, and for all buffered data."""

    answer_bytes: int
    partition_bytes: int
    prefetch_bytes: int


class PlannedFetch(NamedTuple):
    node_id: int
    partitions: Sequence[TopicPartition]
    """Partitions in the order in which they should be served."""
    bytes_max: int
    may_wait: bool
    """Whether the broker may delay the response until there is data."""


class Plan(NamedTuple):
    """The requests to send now, and when to plan again if no event occurs before."""

    fetches: Sequence[PlannedFetch]
    wake_ms: int | None
    leaderless: Sequence[TopicPartition]
    """Partitions to be read whose broker is unknown."""


class _Postponed(NamedTuple):
    until_ms: int
    node_id: int | None
    """The broker that failed; only requests to this broker are delayed."""


@dataclass(slots=True, eq=False)
class _Share:
    wanted: list[TopicPartition]
    waiting_bytes: int = 0
    readable_bytes: int = 0
    """The part of the buffered bytes that polls can return."""
    is_being_taken: bool = False
    """Whether some partition is not requested yet because enough of its data is buffered."""


class FetchPlan:
    """Plans the fetches of one consumer. Times are milliseconds of any monotonic clock."""

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._order: dict[TopicPartition, None] = {}
        self._waiting: dict[TopicPartition, int] = {}
        """Buffered bytes: received, and not returned by polls yet."""
        self._postponed: dict[TopicPartition, _Postponed] = {}
        self._busy: set[int] = set()
        self._node_count = 1
        self._sent_ms: dict[int, int] = {}
        self._node_not_before_ms: dict[int, int] = {}
        self._enough_bytes = max(1, min(limits.partition_bytes, limits.prefetch_bytes // 2))

    @property
    def waiting_bytes(self) -> int:
        return sum(self._waiting.values())

    def has_waiting(self, partition: TopicPartition) -> bool:
        return partition in self._waiting

    @property
    def is_saturated(self) -> bool:
        """Whether all brokers have a request in flight, so that there is nothing to plan."""
        return len(self._busy) >= self._node_count

    def set_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the assigned partitions. New ones are added at the end of the order."""
        wanted = dict.fromkeys(partitions)
        kept = [partition for partition in self._order if partition in wanted]
        self._order = dict.fromkeys((*kept, *wanted))
        for gone in (self._waiting.keys() | self._postponed.keys()) - wanted.keys():
            self._waiting.pop(gone, None)
            self._postponed.pop(gone, None)

    def set_waiting(self, partition: TopicPartition, byte_count: int) -> bool:
        """Set a partition's buffered bytes; return whether that makes it due for a request."""
        had = self._waiting.get(partition, 0)
        if byte_count:
            self._waiting[partition] = byte_count
        else:
            self._waiting.pop(partition, None)
        return byte_count < self._enough_bytes <= had or (byte_count == 0 < had)

    def sent(self, node_id: int, now_ms: int) -> None:
        self._busy.add(node_id)
        self._sent_ms[node_id] = now_ms

    def answered(self, node_id: int) -> None:
        """Record that the request to this broker has completed, successfully or not."""
        self._busy.discard(node_id)

    def served(self, partition: TopicPartition) -> None:
        """Move a partition to the end of the order, because a response had data of it."""
        if partition in self._order:
            del self._order[partition]
            self._order[partition] = None

    def postpone(self, partition: TopicPartition, node_id: int | None, until_ms: int) -> None:
        """Do not request the partition from this broker again before `until_ms`."""
        self._postponed[partition] = _Postponed(until_ms, node_id)

    def throttle(self, node_id: int, until_ms: int) -> None:
        """Do not send to this broker before `until_ms`, as it has demanded (KIP-219)."""
        self._node_not_before_ms[node_id] = until_ms

    def next(self, now_ms: int, node_of: NodeOf, is_readable: IsReadable) -> Plan:
        """Return the requests to send now. The caller calls `sent` for each that it sends."""
        shares: dict[int, _Share] = {}
        leaderless: list[TopicPartition] = []
        wakes: list[int] = []
        for partition in self._order:
            waiting_bytes = self._waiting.get(partition, 0)
            readable = is_readable(partition)
            if not (waiting_bytes or readable):
                continue
            node_id = node_of(partition)
            if node_id is None:
                if readable and self._is_due(partition, None, now_ms, wakes):
                    leaderless.append(partition)
                continue
            share = shares.get(node_id)
            if share is None:
                share = shares[node_id] = _Share([])
            share.waiting_bytes += waiting_bytes
            if not readable:
                continue
            share.readable_bytes += waiting_bytes
            if waiting_bytes >= self._enough_bytes:
                share.is_being_taken = True
            elif self._is_due(partition, node_id, now_ms, wakes):
                share.wanted.append(partition)
        self._node_count = max(1, len(shares))
        share_bytes = self._limits.prefetch_bytes // self._node_count
        planned = (
            self._fetch(node_id, share, share_bytes, now_ms, wakes)
            for node_id, share in shares.items()
            if share.wanted and node_id not in self._busy
        )
        fetches = [fetch for fetch in planned if fetch is not None]
        return Plan(fetches, min(wakes, default=None), leaderless)

    def _is_due(
        self, partition: TopicPartition, node_id: int | None, now_ms: int, wakes: list[int]
    ) -> bool:
        postponed = self._postponed.get(partition)
        if postponed is None:
            return True
        if postponed.until_ms > now_ms and postponed.node_id == node_id:
            wakes.append(postponed.until_ms)
            return False
        del self._postponed[partition]
        return True

    def _fetch(
        self, node_id: int, share: _Share, share_bytes: int, now_ms: int, wakes: list[int]
    ) -> PlannedFetch | None:
        not_before_ms = self._node_not_before_ms.get(node_id, now_ms)
        if share.is_being_taken:
            since_ms = self._sent_ms.get(node_id, now_ms - LEFTOVER_MS)
            not_before_ms = max(not_before_ms, since_ms + LEFTOVER_MS)
        if not_before_ms > now_ms:
            wakes.append(not_before_ms)
            return None
        limits = self._limits
        room = min(limits.answer_bytes, share_bytes - share.waiting_bytes)
        least = max(1, min(limits.answer_bytes, limits.partition_bytes, share_bytes) // 2)
        if room < least:
            if share.readable_bytes:
                # No wake-up time: when buffered data is read, the plan is made again.
                return None
            room = least
        return PlannedFetch(node_id, share.wanted, room, not share.is_being_taken)

"""Lag of groups, in records and in time.

Lag in time is exact: the age of the first record that the group has not read, by the record's
timestamp, which is read from the broker's logs.
"""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, Protocol, TypeAlias

from kohort.broker.groups_seen import GroupSeen, Position, ReadableOf, positions
from kohort.broker.metrics.partitions import readable
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.broker.storage.log.detached import Detached
from kohort.broker.topics.manager import TopicManager
from kohort.protocol.errors import KafkaError
from kohort.protocol.records.batch import NO_TIMESTAMP

ASKED_TOGETHER: Final = 64
"""Number of logs read by one call on another thread. The call takes a few milliseconds if the data
are in the page cache."""

SUMMED_TOGETHER: Final = 200
"""Number of positions summed at once, which takes a tenth of a millisecond."""

REMEMBERED_MAX: Final = 10_000
"""Maximum number of cached record timestamps (2 MB). They are cached because the positions of a
stuck group are looked up repeatedly."""

_Key: TypeAlias = tuple[bytes, int, int, int]


def total_lag(all_positions: Iterable[Position]) -> int | None:
    """Return the summed lag of the positions whose partitions exist; None if there are none."""
    lags = [position.lag for position in all_positions if position.lag is not None]
    return sum(lags) if lags else None


async def wait_total_lag(group: GroupSeen, readable: ReadableOf, time_slice: Slice) -> int | None:
    """Return `total_lag` of a group, summed in slices if it has many positions."""
    if group.offsets.count <= SUMMED_TOGETHER:
        return total_lag(positions(group, readable))
    total: int | None = None
    for position in positions(group, readable):
        if position.lag is not None:
            total = position.lag + (total or 0)
        await time_slice.pause()
    return total


class AgesSeen(Protocol):
    async def wait_ages(self, wanted: Sequence[Position], time_slice: Slice) -> list[int | None]:
        """Return the age of the first unread record of each position, in milliseconds; 0 if all are
        read, None if it is unknown.
        """
        ...


class Ages:
    """Reads the ages of unread records from the logs, with a cache."""

    def __init__(
        self,
        topics: TopicManager,
        clock: Clock,
        executor: Executor,
        offloaded_reads: asyncio.Semaphore,
    ) -> None:
        """`offloaded_reads` is acquired while another thread reads."""
        self._topics = topics
        self._clock = clock
        self._executor = executor
        self._offloaded_reads = offloaded_reads
        self._known: dict[_Key, int | None] = {}

    async def wait_ages(self, wanted: Sequence[Position], time_slice: Slice) -> list[int | None]:
        """Return the age of the first unread record of each position; see `AgesSeen`."""
        ages: list[int | None] = []
        asked: list[tuple[int, _Key, Detached[int | None]]] = []
        for number, position in enumerate(wanted):
            ages.append(0 if position.lag == 0 else None)
            if position.lag:
                lookup = self._look_up(position)
                if isinstance(lookup, int):
                    ages[number] = self._age(lookup)
                elif lookup is not None:
                    asked.append((number, *lookup))
            if len(asked) >= ASKED_TOGETHER:
                await self._wait_answers(asked, ages)
                asked = []
            await time_slice.pause()
        if asked:
            await self._wait_answers(asked, ages)
        return ages

    async def wait_oldest(self, group: GroupSeen, time_slice: Slice) -> int | None:
        """Return the age of the group's oldest unread record in milliseconds; 0 if it has read all,
        None if it is unknown.
        """
        of_group = list(positions(group, partial(readable, self._topics)))
        ages = await self.wait_ages(of_group, time_slice)
        return max((age for age in ages if age is not None), default=None)

    def _look_up(self, position: Position) -> "int | tuple[_Key, Detached[int | None]] | None":
        """Return the cached timestamp, or else the cache key and the lookup; None if the log
        cannot be read, or has no timestamp for the position.
        """
        topic = self._topics.get(position.topic)
        if topic is None or not 0 <= position.partition < len(topic.partitions):
            return None
        partition = topic.partitions.peek(position.partition)
        if partition is None or partition.failure is not None:
            return None
        log = partition.log
        first = max(position.committed.offset, log.log_start_offset)
        key = (topic.topic_id, position.partition, first, log.rewrite_count)
        if key in self._known:
            return self._known[key]
        try:
            return key, log.detached_timestamp_at(first)
        except KafkaError:
            return None

    async def _wait_answers(
        self, asked: list[tuple[int, _Key, Detached[int | None]]], ages: list[int | None]
    ) -> None:
        lookups = [lookup for _, _, lookup in asked]
        loop = asyncio.get_running_loop()
        async with self._offloaded_reads:
            answers = await loop.run_in_executor(self._executor, _run_all, lookups)
        for (number, key, lookup), timestamp in zip(asked, answers, strict=True):
            if lookup.is_void:
                continue
            lookup.take_over()
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[key] = timestamp
            ages[number] = self._age(timestamp)

    def _age(self, timestamp: int | None) -> int | None:
        if timestamp is None or timestamp == NO_TIMESTAMP:
            return None
        # A producer's clock may be fast.
        return max(self._clock.wall_ms() - timestamp, 0)


def _run_all(lookups: list[Detached[int | None]]) -> list[int | None]:
    """Run all lookups; a failure affects only its own result."""
    answers: list[int | None] = []
    for lookup in lookups:
        try:
            answers.append(lookup.run())
        except KafkaError:
            answers.append(None)
    return answers

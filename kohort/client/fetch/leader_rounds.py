"""Sends requests to partition leaders independently, so that a slow leader delays only its own
partitions.

The user of `LeaderRounds` defines the requests and interprets the responses. This module decides
when a leader is queried: at once, even while an outdated query is pending; after a failure only
once a growing backoff has ended, unless the partition has a new leader.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Generic, NamedTuple, TypeVar

from kohort.client.clock import loop_ms
from kohort.client.core.backoff import Backoffs
from kohort.client.core.partitions import TopicPartition

T = TypeVar("T")


class _Postponed(NamedTuple):
    until_ms: int
    leader: int | None


class LeaderRounds(Generic[T]):
    """Sends queries to partition leaders, on the running loop. `T`: the query for a partition."""

    def __init__(
        self,
        name: str,
        ask: Callable[[int, Mapping[TopicPartition, T]], Awaitable[Collection[TopicPartition]]],
        *,
        leader_of: Callable[[TopicPartition], int | None],
        backoff_ms: tuple[int, int],
        on_due: Callable[[], None],
        on_answered: Callable[[], None],
        on_metadata_wanted: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """Create an instance without pending requests.

        Args:
            name: name of the tasks.
            ask: asks one broker, given by node id, and returns the partitions to ask about again.
            leader_of: node id of the broker to ask; None if it is unknown.
            backoff_ms: the first and the longest wait after a failure.
            on_due: called when a backoff has ended, so that `begin` would send the query again.
            on_answered: called after each response and each failure.
            on_metadata_wanted: called if a leader is unknown or did not answer.
            on_failed: called with the exception that `ask` raised.
        """
        self._name = name
        self._ask = ask
        self._leader_of = leader_of
        self._on_due = on_due
        self._on_answered = on_answered
        self._on_metadata_wanted = on_metadata_wanted
        self._on_failed = on_failed
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: dict[TopicPartition, tuple[T, int]] = {}
        """Pending queries, with the queried broker."""
        self._postponed: dict[TopicPartition, _Postponed] = {}
        self._backoffs: Backoffs[TopicPartition] = Backoffs(*backoff_ms, random.random)
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, wanted: Mapping[TopicPartition, T]) -> None:
        """Send the queries in `wanted` that are neither pending nor in a backoff. Forget the
        backoffs of all other partitions.
        """
        self._backoffs.keep_only(wanted.keys())
        for gone in self._postponed.keys() - wanted.keys():
            del self._postponed[gone]
        now = loop_ms()
        by_leader: dict[int, dict[TopicPartition, T]] = defaultdict(dict)
        is_leaderless = False
        for partition, question in wanted.items():
            leader = self._leader_of(partition)
            postponed = self._postponed.get(partition)
            if postponed and postponed.leader == leader and postponed.until_ms > now:
                continue
            if leader is None:
                self._postpone(partition, None, now)
                is_leaderless = True
            elif self._under_way.get(partition) != (question, leader):
                by_leader[leader][partition] = question
        for leader, questions in by_leader.items():
            self._start(leader, questions)
        self._set_timer(now)
        if is_leaderless:
            self._on_metadata_wanted()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, leader: int, questions: Mapping[TopicPartition, T]) -> None:
        for partition, question in questions.items():
            self._under_way[partition] = question, leader
            self._postponed.pop(partition, None)
        task = asyncio.get_running_loop().create_task(
            self._run(leader, questions), name=f"{self._name} of broker {leader}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, leader: int, questions: Mapping[TopicPartition, T]) -> None:
        again: Collection[TopicPartition] = questions
        try:
            again = await self._ask(leader, questions)
        except Exception as failure:  # noqa: BLE001 - unexpected; passed to `on_failed`.
            self._on_failed(failure)
        finally:
            for partition, question in questions.items():
                if self._under_way.get(partition) == (question, leader):
                    del self._under_way[partition]
        now = loop_ms()
        for partition in again:
            self._postpone(partition, leader, now)
        self._set_timer(now)
        self._on_answered()
        if again:
            self._on_metadata_wanted()

    def _postpone(self, partition: TopicPartition, leader: int | None, now: int) -> None:
        self._postponed[partition] = _Postponed(now + self._backoffs.fail(partition), leader)

    def _set_timer(self, now: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waits_ms = [wait.until_ms - now for wait in self._postponed.values() if wait.until_ms > now]
        if waits_ms:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(waits_ms) / 1000, self._on_due)

"""What went wrong with fetching: who is told of it, and when it is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from kohort.client.clock import now_ms
from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import ConsumerError, RecordError
from kohort.client.core.failing import Failing, Failures
from kohort.client.core.fetch.buffers import Only
from kohort.client.core.fetch.config import FetchConfig
from kohort.client.core.fetch.plan import FetchPlan
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.partitions import TopicPartition
from kohort.client.fetch.sources import FetchSources


class _Unread(NamedTuple):
    """A partition that cannot be read on at its position."""

    place: tuple[int, int | None]
    """The fence and the position."""
    error: ConsumerError
    failures: Failures


class Troubles:
    """Those of one fetcher."""

    def __init__(
        self,
        sources: FetchSources,
        positions: Positions,
        plan: FetchPlan,
        config: FetchConfig,
        *,
        on_due: Callable[[], None],
    ) -> None:
        """`on_due`: there is something to be raised."""
        self._sources = sources
        self._positions = positions
        self._plan = plan
        self._config = config
        self._on_due = on_due
        self._errors: dict[TopicPartition, tuple[int, ConsumerError]] = {}
        """To be raised, with the fence of the position that they are about."""
        self._failure: BaseException | None = None
        """To be raised, about nothing in particular."""
        self._backoffs: dict[TopicPartition, Backoff] = {}
        self._unread: dict[TopicPartition, _Unread] = {}
        self._unanswered: dict[TopicPartition, int] = {}
        """Since when nobody has answered for it."""
        self._answered: dict[TopicPartition, int] = {}
        """When somebody last did."""
        self._placeless: dict[TopicPartition, int] = {}
        """Since when it wants a position."""

    # To be told.

    def fail(self, partition: TopicPartition, error: ConsumerError) -> None:
        """To be raised, if nobody seeks before; the partition is asked for again after a while.

        Nothing happens if it is not assigned any more.
        """
        state = self._positions.find(partition)
        if state is None:
            return
        self._errors[partition] = (state.fence, error)
        self._unanswered.pop(partition, None)
        self.postpone(partition)
        self._on_due()

    def failed(self, failure: BaseException) -> None:
        """Whoever polls next is told."""
        self._failure = failure
        self._on_due()

    def are_due(self, only: Only = None) -> bool:
        """Whether there is something to be raised to who reads `only`."""
        return bool(self._failure or self._due_errors(only))

    def _due_errors(self, only: Only) -> list[TopicPartition]:
        """The partitions that are asked for, and have one."""
        is_aside = self._positions.is_aside
        return [one for one in self._errors if (one in only if only else not is_aside(one))]

    def raise_due(self, only: Only = None) -> None:
        """Raise the next one, once, to who reads `only`."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        for partition in self._due_errors(only):
            fence, error = self._errors.pop(partition)
            if self._positions.has_fence(partition, fence):
                self._note_told(partition, error)
                raise error

    def _note_told(self, partition: TopicPartition, error: ConsumerError) -> None:
        state = self._positions.state(partition)
        place = state.fence, state.position
        unread = self._unread.get(partition)
        if unread is None or unread.place != place:
            unread = self._unread[partition] = _Unread(place, error, Failures())
        unread.failures.failed(error, now_ms())

    def clear(self) -> None:
        """Forget what nobody has been told."""
        self._errors.clear()
        self._failure = None

    # For who watches.

    def unread(self, now: int) -> dict[TopicPartition, Failing]:
        """Partitions whose errors were raised, and that were not read on since."""
        found = {}
        for partition, (place, _, failures) in self._unread.items():
            state = self._positions.find(partition)
            failing = failures.now(now)
            if failing and state is not None and place == (state.fence, state.position):
                found[partition] = failing
        return found

    def unanswered(self, now: int) -> dict[TopicPartition, float]:
        """For how many seconds nobody has answered for partitions that are to be read, and of
        which there is nothing here.
        """
        found = {}
        for since, is_placed in ((self._placeless, False), (self._unanswered, True)):
            for partition, since_ms in since.items():
                state = self._positions.find(partition)
                if state is None or (state.position is not None) != is_placed:
                    continue
                is_kept_back = state.is_paused or state.is_held or state.is_aside
                if not is_kept_back and not self._plan.has_waiting(partition):
                    found[partition] = (now - since_ms) / 1000
        return found

    def placeless(self, partitions: Iterable[TopicPartition], now: int) -> None:
        """These wait for a position, and all others have one."""
        self._placeless = {one: self._placeless.get(one, now) for one in partitions}

    def answered(self, partition: TopicPartition) -> int | None:
        """When a fetch of it was last answered; None: never since it was assigned."""
        return self._answered.get(partition)

    # To be tried again.

    def unserved(self, partitions: Iterable[TopicPartition], since_ms: int) -> list[int]:
        """Nobody has answered for these: their leader is not known, is gone, or is none. Those of
        them that are still assigned are tried again after a while; when.
        """
        return [self.postpone(partition) for partition in self.unheard(partitions, since_ms)]

    def unheard(self, partitions: Iterable[TopicPartition], since_ms: int) -> list[TopicPartition]:
        """Nobody has answered for these; those of them that are still assigned."""
        left = [one for one in partitions if self._positions.find(one) is not None]
        for partition in left:
            self._unanswered.setdefault(partition, since_ms)
        return left

    def postpone(self, partition: TopicPartition) -> int:
        """Let it be until a time, which grows from failure to failure."""
        backoff = self._backoffs.get(partition)
        if backoff is None:
            config = self._config
            backoff = self._backoffs[partition] = Backoff(
                config.retry_backoff_ms, config.retry_backoff_max_ms, random.random
            )
        until_ms = now_ms() + backoff.fail()
        self._plan.postpone(partition, self._sources.node(partition), until_ms)
        return until_ms

    def succeeded(self, partition: TopicPartition, at_ms: int) -> None:
        """A fetch of it was answered; its next failure is a first one."""
        self._backoffs.pop(partition, None)
        self._answered[partition] = at_ms
        self._unanswered.pop(partition, None)
        unread = self._unread.get(partition)
        if unread is not None and not isinstance(unread.error, RecordError):
            # What was refused is not any more. Records that cannot be given out stay so.
            del self._unread[partition]

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """The others are not assigned any more."""
        for gone in self._backoffs.keys() - partitions:
            del self._backoffs[gone]
        for gone in self._unread.keys() - partitions:
            del self._unread[gone]
        for times in (self._unanswered, self._answered, self._placeless):
            for gone in times.keys() - partitions:
                del times[gone]

"""What went wrong with fetching: who is told of it, and when it is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable

from client.core.backoff import Backoff
from client.core.errors import ConsumerError
from client.core.fetch_plan import FetchPlan
from client.core.partitions import TopicPartition
from client.core.positions import Positions
from client.fetch_buffers import Only
from client.fetch_config import FetchConfig
from client.fetch_sources import FetchSources
from client.leader_rounds import now_ms


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

    # To be told.

    def fail(self, partition: TopicPartition, error: ConsumerError) -> None:
        """To be raised, if nobody seeks before; the partition is asked for again after a while.

        Nothing happens if it is not assigned any more.
        """
        state = self._positions.find(partition)
        if state is None:
            return
        self._errors[partition] = (state.fence, error)
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
                raise error

    def clear(self) -> None:
        """Forget what nobody has been told."""
        self._errors.clear()
        self._failure = None

    # To be tried again.

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

    def postpone_all(self, partitions: Iterable[TopicPartition]) -> None:
        """Those of them that are still assigned."""
        for partition in partitions:
            if self._positions.find(partition) is not None:
                self.postpone(partition)

    def succeeded(self, partition: TopicPartition) -> None:
        """Its next failure is a first one."""
        self._backoffs.pop(partition, None)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """The others are not assigned any more."""
        for gone in self._backoffs.keys() - partitions:
            del self._backoffs[gone]

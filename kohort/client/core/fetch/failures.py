"""Fetch errors: those to raise to the user, and those that persist.

An error is raised once, by the next poll. Persisting errors, and partitions for which no broker has
answered, are kept so that the consumer's state can show them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from kohort.client.core.backoff import OngoingFailure, OngoingFailures
from kohort.client.core.errors import ConsumerError, RecordError
from kohort.client.core.fetch.buffers import PartitionFilter
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.partitions import TopicPartition


class _Unread(NamedTuple):
    """A partition that cannot be read further from its position."""

    place: tuple[int, int | None]
    """The position at which reading failed: its fence (see `positions`) and its offset."""
    error: ConsumerError
    failures: OngoingFailures


class FetchFailures:
    """The failures of one consumer's partitions. Times are those of a monotonic clock."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._errors: dict[TopicPartition, tuple[int, ConsumerError]] = {}
        """Errors to raise; each is void once the position has another fence (see `positions`)."""
        self._failure: BaseException | None = None
        """An error to raise that does not concern a single partition."""
        self._unread: dict[TopicPartition, _Unread] = {}
        self._unanswered: dict[TopicPartition, int] = {}
        """Since when fetches of a partition have gone unanswered."""
        self._answered: dict[TopicPartition, int] = {}
        """The time at which a fetch of a partition was last answered."""
        self._placeless: dict[TopicPartition, int] = {}
        """Since when a partition has been waiting for a position."""

    # Errors to raise.

    def add(self, partition: TopicPartition, error: ConsumerError) -> bool:
        """Add an error to raise unless the position changes first; False if not assigned."""
        state = self._positions.find(partition)
        if state is None:
            return False
        self._errors[partition] = (state.fence, error)
        self._unanswered.pop(partition, None)
        return True

    def add_failure(self, failure: BaseException) -> None:
        """Add an error for the next reader of any partition to raise."""
        self._failure = failure

    def are_due(self, only: PartitionFilter = None) -> bool:
        """Whether there is an error to raise to a reader of the partitions `only`."""
        return bool(self._failure or self._due(only))

    def take(self, only: PartitionFilter, now_ms: int) -> BaseException | None:
        """Remove and return the next error to raise to a reader of the partitions `only`."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            return failure
        for partition in self._due(only) if self._errors else ():
            fence, error = self._errors.pop(partition)
            if self._positions.has_fence(partition, fence):
                self._note_raised(partition, error, now_ms)
                return error
        return None

    def _due(self, only: PartitionFilter) -> list[TopicPartition]:
        is_aside = self._positions.is_aside
        return [tp for tp in self._errors if (tp in only if only else not is_aside(tp))]

    def _note_raised(self, partition: TopicPartition, error: ConsumerError, now_ms: int) -> None:
        state = self._positions.state(partition)
        place = state.fence, state.position
        unread = self._unread.get(partition)
        if unread is None or unread.place != place:
            unread = self._unread[partition] = _Unread(place, error, OngoingFailures())
        unread.failures.failed(error, now_ms)

    def clear(self) -> None:
        """Forget the errors that have not been raised yet."""
        self._errors.clear()
        self._failure = None

    # State for observers.

    def answered(self, partition: TopicPartition, at_ms: int) -> None:
        self._answered[partition] = at_ms
        self._unanswered.pop(partition, None)
        unread = self._unread.get(partition)
        if unread is not None and not isinstance(unread.error, RecordError):
            # The broker serves the partition again. Only a RecordError lasts until a seek.
            del self._unread[partition]

    def note_unanswered(
        self, partitions: Iterable[TopicPartition], since_ms: int
    ) -> list[TopicPartition]:
        """Record unanswered requests for these partitions; return those still assigned."""
        left = [tp for tp in partitions if self._positions.find(tp) is not None]
        for partition in left:
            self._unanswered.setdefault(partition, since_ms)
        return left

    def placeless(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Record that these partitions, and only these, wait for a position."""
        self._placeless = {tp: self._placeless.get(tp, now_ms) for tp in partitions}

    def unread(self, now_ms: int) -> dict[TopicPartition, OngoingFailure]:
        """Return the partitions that have not been read further since their errors were raised."""
        failures_now = {}
        for partition, (place, _, failures) in self._unread.items():
            state = self._positions.find(partition)
            failing = failures.now(now_ms)
            if failing and state is not None and place == (state.fence, state.position):
                failures_now[partition] = failing
        return failures_now

    def unanswered(
        self, now_ms: int, has_waiting: Callable[[TopicPartition], bool]
    ) -> dict[TopicPartition, float]:
        """Return the seconds without a response, for each partition that is to be read and has no
        buffered data.
        """
        seconds = {}
        for since, is_placed in ((self._placeless, False), (self._unanswered, True)):
            for partition, since_ms in since.items():
                state = self._positions.find(partition)
                if state is None or (state.position is not None) != is_placed:
                    continue
                is_kept_back = state.is_paused or state.is_held or state.is_aside
                if not is_kept_back and not has_waiting(partition):
                    seconds[partition] = (now_ms - since_ms) / 1000
        return seconds

    def answered_ms(self, partition: TopicPartition) -> int | None:
        """When a fetch of the partition was last answered; None if never since its assignment."""
        return self._answered.get(partition)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all other partitions, which are no longer assigned."""
        for gone in self._unread.keys() - partitions:
            del self._unread[gone]
        for times in (self._unanswered, self._answered, self._placeless):
            for gone in times.keys() - partitions:
                del times[gone]

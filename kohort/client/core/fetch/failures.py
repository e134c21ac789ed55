"""What went wrong with reading: what the user is to be told, and what is wrong for how long.

An error is raised once, by the poll that comes next. What lasts after that, and what no broker has
answered for, is kept for observers of the consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from kohort.client.core.errors import ConsumerError, RecordError
from kohort.client.core.failing import Failing, Failures
from kohort.client.core.fetch.buffers import PartitionFilter
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.partitions import TopicPartition


class _Unread(NamedTuple):
    """A partition that cannot be read on at its position."""

    place: tuple[int, int | None]
    """The fence and the position."""
    error: ConsumerError
    failures: Failures


class FetchFailures:
    """The failures of one consumer's partitions. Times are of any clock that does not go back."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._errors: dict[TopicPartition, tuple[int, ConsumerError]] = {}
        """To be raised, with the fence of the position that they are about."""
        self._failure: BaseException | None = None
        """To be raised, about no partition in particular."""
        self._unread: dict[TopicPartition, _Unread] = {}
        self._unanswered: dict[TopicPartition, int] = {}
        """Since when no broker has answered for it."""
        self._answered: dict[TopicPartition, int] = {}
        """When a broker last did."""
        self._placeless: dict[TopicPartition, int] = {}
        """Since when it wants a position."""

    # To be told.

    def add(self, partition: TopicPartition, error: ConsumerError) -> bool:
        """To be raised, unless its position moves before; False: it is not assigned any more."""
        state = self._positions.find(partition)
        if state is None:
            return False
        self._errors[partition] = (state.fence, error)
        self._unanswered.pop(partition, None)
        return True

    def add_failure(self, failure: BaseException) -> None:
        """To be raised, whatever is read."""
        self._failure = failure

    def are_due(self, only: PartitionFilter = None) -> bool:
        """Whether there is something to be raised to who reads `only`."""
        return bool(self._failure or self._due(only))

    def take(self, only: PartitionFilter, now_ms: int) -> BaseException | None:
        """The next one to be raised to who reads `only`; it is not taken again."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            return failure
        for partition in self._due(only) if self._errors else ():
            fence, error = self._errors.pop(partition)
            if self._positions.has_fence(partition, fence):
                self._note_told(partition, error, now_ms)
                return error
        return None

    def _due(self, only: PartitionFilter) -> list[TopicPartition]:
        """The partitions that are asked for, and have one."""
        is_aside = self._positions.is_aside
        return [one for one in self._errors if (one in only if only else not is_aside(one))]

    def _note_told(self, partition: TopicPartition, error: ConsumerError, now_ms: int) -> None:
        state = self._positions.state(partition)
        place = state.fence, state.position
        unread = self._unread.get(partition)
        if unread is None or unread.place != place:
            unread = self._unread[partition] = _Unread(place, error, Failures())
        unread.failures.failed(error, now_ms)

    def clear(self) -> None:
        """Forget what was not raised."""
        self._errors.clear()
        self._failure = None

    # To be watched.

    def answered(self, partition: TopicPartition, at_ms: int) -> None:
        """A fetch of it was answered, and not refused."""
        self._answered[partition] = at_ms
        self._unanswered.pop(partition, None)
        unread = self._unread.get(partition)
        if unread is not None and not isinstance(unread.error, RecordError):
            # What was refused is not any more. Records that cannot be given out stay so.
            del self._unread[partition]

    def unheard(self, partitions: Iterable[TopicPartition], since_ms: int) -> list[TopicPartition]:
        """No broker has answered for these; those of them that are still assigned."""
        left = [one for one in partitions if self._positions.find(one) is not None]
        for partition in left:
            self._unanswered.setdefault(partition, since_ms)
        return left

    def placeless(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """These wait for a position, and all others have one."""
        self._placeless = {one: self._placeless.get(one, now_ms) for one in partitions}

    def unread(self, now_ms: int) -> dict[TopicPartition, Failing]:
        """Partitions whose errors were raised, and that were not read on since."""
        found = {}
        for partition, (place, _, failures) in self._unread.items():
            state = self._positions.find(partition)
            failing = failures.now(now_ms)
            if failing and state is not None and place == (state.fence, state.position):
                found[partition] = failing
        return found

    def unanswered(
        self, now_ms: int, has_waiting: Callable[[TopicPartition], bool]
    ) -> dict[TopicPartition, float]:
        """For how many seconds no broker has answered for partitions that are to be read, and of
        which nothing waits to be taken.
        """
        found = {}
        for since, is_placed in ((self._placeless, False), (self._unanswered, True)):
            for partition, since_ms in since.items():
                state = self._positions.find(partition)
                if state is None or (state.position is not None) != is_placed:
                    continue
                is_kept_back = state.is_paused or state.is_held or state.is_aside
                if not is_kept_back and not has_waiting(partition):
                    found[partition] = (now_ms - since_ms) / 1000
        return found

    def answered_ms(self, partition: TopicPartition) -> int | None:
        """When a fetch of it was last answered; None: never since it was assigned."""
        return self._answered.get(partition)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """The others are not assigned any more."""
        for gone in self._unread.keys() - partitions:
            del self._unread[gone]
        for times in (self._unanswered, self._answered, self._placeless):
            for gone in times.keys() - partitions:
                del times[gone]

"""Rebalances that are complete and wait for their record."""

import logging
from collections import deque
from typing import Final

from kohort.broker.core.history.facts import RebalanceFacts
from kohort.broker.core.history.fold import Closed

logger = logging.getLogger(__name__)

WEIGHT_MAX: Final = 500_000
"""Members of all that wait; beyond it rebalances go without a record."""


SMALL_WEIGHT: Final = 40
"""Ten members or so: less than half a millisecond, and a request right after finds the record."""


class Waiting:
    """One of them; or one that still runs and is to be written down as such; or, without facts,
    the end of a group.
    """

    __slots__ = ("closed", "group_id", "is_running", "until_ms", "weight")

    def __init__(
        self, group_id: str, closed: Closed | None, until_ms: int, *, is_running: bool = False
    ) -> None:
        """`until_ms` (monotonic) is when it was complete, or looked at."""
        self.is_running = is_running
        self.group_id = group_id
        self.closed = closed
        self.until_ms = until_ms
        self.weight = 10
        if isinstance(closed, RebalanceFacts):
            self.weight += len(closed.started.members) + len(closed.joins) + len(closed.gone)

    @property
    def is_small(self) -> bool:
        """Is its record made in one go?"""
        return self.weight <= SMALL_WEIGHT


class ClosingQueue:
    """First in, first out; what does not fit is dropped, told once and counted."""

    def __init__(self) -> None:
        self._queue: deque[Waiting] = deque()
        self.weight = 0
        """Members of all that wait, and ten more for each."""
        self.dropped_count = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, waiting: Waiting) -> None:
        if self._queue and self.weight + waiting.weight > WEIGHT_MAX:
            if not self.dropped_count:
                logger.warning("Too many rebalances at once: some will have no record")
            self.dropped_count += 1
            return
        self.weight += waiting.weight
        self._queue.append(waiting)

    def add_end(self, group_id: str) -> None:
        """Nothing of the group follows. Always fits: there are no more ends than groups."""
        self.weight += 10
        self._queue.append(Waiting(group_id, None, 0))

    def take(self) -> Waiting:
        waiting = self._queue.popleft()
        self.weight -= waiting.weight
        return waiting

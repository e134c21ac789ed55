"""The queue of rebalances to record in the history."""

import logging
from collections import deque
from typing import Final

from kohort.groups.history.facts import RebalanceFacts
from kohort.groups.history.fold import Closed

logger = logging.getLogger(__name__)

WEIGHT_MAX: Final = 500_000
"""Maximum total weight of the waiting rebalances; further rebalances are not recorded."""


SMALL_WEIGHT: Final = 40
"""Weight of a rebalance of about ten members. Its record takes less than half a millisecond, so it
is created without pauses, and a request directly after the rebalance finds it."""


class Waiting:
    """An entry of the queue: a complete rebalance, a running rebalance, or, if `closed` is None,
    the removal of a group.
    """

    __slots__ = ("closed", "group_id", "is_running", "until_ms", "weight")

    def __init__(
        self, group_id: str, closed: Closed | None, until_ms: int, *, is_running: bool = False
    ) -> None:
        """`until_ms`: monotonic time at which the rebalance completed or, if it is running, its
        facts were copied.
        """
        self.is_running = is_running
        self.group_id = group_id
        self.closed = closed
        self.until_ms = until_ms
        self.weight = 10
        if isinstance(closed, RebalanceFacts):
            self.weight += len(closed.started.members) + len(closed.joins) + len(closed.gone)

    @property
    def is_small(self) -> bool:
        """Whether the rebalance is so small that its record is created without pauses."""
        return self.weight <= SMALL_WEIGHT


class ClosingQueue:
    """A FIFO queue of rebalances to record. Rebalances that exceed `WEIGHT_MAX` are dropped and
    counted; only the first is logged.
    """

    def __init__(self) -> None:
        self._queue: deque[Waiting] = deque()
        self.weight = 0
        """Total weight of the entries: ten each, plus a rebalance's members, joins and removals."""
        self.dropped_count = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, waiting: Waiting) -> None:
        if self._queue and self.weight + waiting.weight > WEIGHT_MAX:
            if not self.dropped_count:
                logger.warning("Too many rebalances at once: some are not recorded")
            self.dropped_count += 1
            return
        self.weight += waiting.weight
        self._queue.append(waiting)

    def add_end(self, group_id: str) -> None:
        """Enqueue the removal of a group, even above the limit, because its entry is small."""
        self.weight += 10
        self._queue.append(Waiting(group_id, None, 0))

    def take(self) -> Waiting:
        waiting = self._queue.popleft()
        self.weight -= waiting.weight
        return waiting

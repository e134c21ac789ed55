"""Signs of life of a member: its commits.

A commit of a classic member starts its session anew, in Stable and PreparingRebalance, as a
heartbeat does. So a member that has committed within its session timeout cannot have expired.
Commits in transactions do not.
"""

from collections import deque
from statistics import median
from typing import Final

_TOGETHER_MS: Final = 50
"""Records of one commit have nearly the same timestamp."""

_KEPT: Final = 8
"""Intervals from which the usual one is computed."""

_REGULAR: Final = 3
"""Fewest intervals that make a rhythm."""

_TOLERANCE_MS: Final = 300

_EARLY_MS: Final = 1_000
"""A commit that is early by less may have been due: a loaded client is late by as much."""


class Signs:
    """The commits of one member, since the join phase in which it was last seen alive."""

    __slots__ = ("_intervals", "count", "early_ms", "in_transaction", "last_ms", "since_ms")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        """When the join phase ended: all of its members were alive."""
        self.last_ms = since_ms
        """The last sign of life."""
        self.count = 0
        self.early_ms: int | None = None
        """The first commit that came earlier than usual: consumers commit when they give up
        partitions, and when they are closed."""
        self.in_transaction = False
        """Whether the last commit was in a transaction, which does not start the session anew."""
        self._intervals: deque[int] = deque(maxlen=_KEPT)

    def renew(self, since_ms: int) -> None:
        """Begin a new generation; the rhythm remains."""
        self.since_ms = self.last_ms = since_ms
        self.count = 0
        self.early_ms = None

    def prove(self, at_ms: int) -> None:
        """Note that it was alive at `at_ms`, without a commit."""
        self.last_ms = max(self.last_ms, at_ms)

    def commit(self, at_ms: int, *, in_transaction: bool = False) -> None:
        """Note a commit."""
        self.in_transaction = in_transaction
        interval = at_ms - self.last_ms
        if self.count and interval > _TOGETHER_MS:
            usual = self.usual_ms
            if usual is not None and usual - interval > max(usual // 5, _EARLY_MS):
                self.early_ms = at_ms if self.early_ms is None else self.early_ms
            else:
                self._intervals.append(interval)
        self.count += 1
        self.last_ms = max(self.last_ms, at_ms)

    @property
    def usual_ms(self) -> int | None:
        """The usual interval between commits; None if they are rare or irregular."""
        if len(self._intervals) < _REGULAR:
            return None
        usual = int(median(self._intervals))
        allowed = usual // 4 + _TOLERANCE_MS
        regular = sum(abs(interval - usual) <= allowed for interval in self._intervals)
        return usual if 4 * regular >= 3 * len(self._intervals) else None

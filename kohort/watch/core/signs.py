"""Signs of life of a member: its commits.

A commit of a classic member starts its session anew, in Stable and PreparingRebalance, as a
heartbeat does. So a member that has committed within its session timeout cannot have expired.
Commits in transactions do not.
"""

from collections import deque
from itertools import pairwise
from statistics import median
from typing import Final

_TOGETHER_MS: Final = 50
"""Records of one commit have nearly the same timestamp."""

_KEPT: Final = 10
"""Commits from which the usual interval is computed."""

_REGULAR: Final = 3
"""Fewest intervals from which the usual one is computed."""

_TOLERANCE_MS: Final = 300

_EARLY_MS: Final = 1_000
"""A commit that is early by less may have been due: a loaded client is late by as much."""


class Signs:
    """The commits of one member, since the join phase in which it was last seen alive."""

    __slots__ = (
        "_times",
        "commit_ms",
        "count",
        "in_transaction",
        "last_ms",
        "restarted_ms",
        "since_ms",
    )

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        """When the join phase ended: all of its members were alive."""
        self.last_ms = since_ms
        """The last sign of life."""
        self.restarted_ms = since_ms
        """The first record of the coordinator; it had started the session anew before."""
        self.count = 0
        self.commit_ms = -1
        """Time of the last commit; -1 if it was in a transaction."""
        self.in_transaction = False
        """Whether the last commit was in a transaction, which does not start the session anew."""
        self._times: deque[int] = deque(maxlen=_KEPT)

    def renew(self, since_ms: int) -> None:
        """Start a new generation, and keep the times of the last commits."""
        self.since_ms = self.last_ms = since_ms
        self.count = 0
        self.commit_ms = -1

    def prove(self, at_ms: int) -> None:
        """Record that the member was alive at `at_ms`, without a commit."""
        self.last_ms = max(self.last_ms, at_ms)

    def commit(self, at_ms: int, *, in_transaction: bool = False) -> None:
        """Note a commit."""
        self.in_transaction = in_transaction
        self.commit_ms = -1 if in_transaction else at_ms
        self.count += 1
        times = self._times
        if not times or at_ms > times[-1] + _TOGETHER_MS:
            times.append(at_ms)
        self.last_ms = max(self.last_ms, at_ms)

    @property
    def usual_ms(self) -> int | None:
        """The usual interval between commits; None if they are rare or irregular."""
        intervals = [after - before for before, after in pairwise(self._times)]
        if len(intervals) < _REGULAR:
            return None
        usual = int(median(intervals))
        allowed = usual // 4 + _TOLERANCE_MS
        regular = sum(abs(interval - usual) <= allowed for interval in intervals)
        return usual if 4 * regular >= 3 * (len(intervals) - 1) else None

    @property
    def early_ms(self) -> int | None:
        """The first commit that came earlier than usual: consumers commit when they give up
        partitions, and when they are closed.
        """
        usual = self.usual_ms
        if usual is not None:
            for before, after in pairwise(self._times):
                if after > self.since_ms and usual - after + before > max(usual // 5, _EARLY_MS):
                    return after
        return None

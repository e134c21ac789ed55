"""Commits the handled offsets of a run periodically."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import ConsumerError
from kohort.client.core.work import Work
from kohort.client.group.commits import note_outcome
from kohort.client.processing.source import Positions, Source

logger = logging.getLogger(__name__)

SOON_S: Final = 0.001
"""A commit due within this time is made now, because timers are not more precise."""

INTERVAL_S_MIN: Final = 0.01
"""Minimum interval, so that a run with commit interval 0 does not commit continuously."""


class RunCommits:
    """The commits of one run; each contains the offsets that have changed since the last commit."""

    def __init__(
        self,
        work: Work,
        source: Source,
        *,
        interval_ms: float,
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self._work = work
        self._source = source
        self._interval_s = max(interval_ms / 1000, INTERVAL_S_MIN)
        self._backoff = Backoff(100, 1_000, random)
        self._clock = clock
        self._due_s = clock() + self._interval_s
        self._is_under_way = False

    @property
    def due_in_s(self) -> float:
        """Seconds until the next commit; infinite while one is in progress or none is possible."""
        if self._is_under_way or not self._source.can_commit:
            return float("inf")
        left_s = self._due_s - self._clock()
        return left_s if left_s > SOON_S else 0.0

    def begin_if_due(self) -> None:
        """Start a commit without waiting, if the interval has passed."""
        if self.due_in_s > 0:
            return
        self._due_s = self._clock() + self._interval_s
        wanted = self._work.uncommitted(self._source.positions)
        if not wanted:
            return
        self._is_under_way = True
        drops = self._work.drop_count
        self._source.commit_soon(wanted, lambda error: self._done(wanted, drops, error))

    async def commit_now(self, wanted: Positions, timeout_s: float) -> None:
        """Commit these offsets and wait. Log a failure; the records are then read again."""
        if not wanted or not self._source.can_commit:
            return
        try:
            await self._source.commit(wanted, timeout_s)
        except ConsumerError as error:
            logger.warning(
                "the last handled records were not committed and will be read again: %s", error
            )
        else:
            self._work.committed(wanted)

    def _done(self, wanted: Positions, drops: int, error: BaseException | None) -> None:
        self._is_under_way = False
        wait_s = note_outcome(error, self._backoff)
        if error is None and drops == self._work.drop_count:
            # Not after a revocation: the new owner may have committed other offsets since.
            self._work.committed(wanted)
        is_retried = isinstance(error, ConsumerError) and error.code.retriable
        if wait_s is not None and is_retried:
            self._due_s = min(self._due_s, self._clock() + wait_s)

"""Commits positions periodically while the application polls (enable.auto.commit)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import ConsumerError, RebalanceInProgressError
from kohort.client.group.commit_callbacks import Offsets
from kohort.client.group.offsets import GroupOffsets

SAME_AGAIN_S: Final = 1.0
"""The shortest time between two commits of unchanged positions, however short the interval: a poll
that is waiting has nothing new to commit."""

logger = logging.getLogger(__name__)


class AutoCommit:
    """Commits processed offsets: those of records returned before the latest poll."""

    def __init__(
        self,
        processed: Callable[[], Offsets],
        offsets: GroupOffsets,
        *,
        interval_ms: int,
        backoff: Backoff,
    ) -> None:
        self._processed = processed
        self._offsets = offsets
        self._interval_s = interval_ms / 1000
        self._backoff = backoff
        self.due_s = time.monotonic() + self._interval_s
        """When the next commit is due, on the monotonic clock."""
        self._is_under_way = False
        self._sent: Offsets = {}
        """The offsets of the last commit, unless it failed."""
        self._sent_s = 0.0
        self._rest_until_s = 0.0
        """The time before which only a new poll can bring something to commit."""

    @property
    def idle_until_s(self) -> float:
        """When auto commit next needs a poll; infinite during a commit, whose completion wakes the
        poll.
        """
        return float("inf") if self._is_under_way else max(self.due_s, self._rest_until_s)

    def polled(self, now_s: float) -> None:
        """Commit if the interval has passed; called at the beginning of each poll."""
        if now_s >= self.due_s and not self._is_under_way:
            self.begin(now_s)

    def begin(self, now_s: float) -> None:
        """Start a commit without waiting for it."""
        self.due_s = now_s + self._interval_s
        processed = self._processed()
        is_same = processed == self._sent and now_s < self._sent_s + SAME_AGAIN_S
        if not processed or is_same:
            self._rest_until_s = now_s + SAME_AGAIN_S
            return
        self._is_under_way = True
        self._sent, self._sent_s = processed, now_s
        self._offsets.commit_async(processed, None, on_done=self._done)

    def _done(self, error: BaseException | None) -> None:
        self._is_under_way = False
        if error is not None:
            self._sent = {}
        if error is None:
            if self._backoff.failure_count:
                logger.info("commits succeed again")
            self._backoff.succeed()
        elif isinstance(error, RebalanceInProgressError):
            # The commit before the rebalance covers these offsets, or the next commit will.
            logger.debug("a commit was interrupted by a rebalance: %s", error)
        else:
            # Logged as a warning only once: while the coordinator is away every attempt fails
            # alike.
            level = logging.DEBUG if self._backoff.failure_count else logging.WARNING
            logger.log(level, "a commit failed and will be retried: %s", error)
            wait_s = self._backoff.fail() / 1000
            again_s = time.monotonic() + wait_s
            is_retried = isinstance(error, ConsumerError) and error.code.retriable
            # Retry no earlier than this, even with a shorter interval.
            self.due_s = again_s if is_retried else max(self.due_s, again_s)

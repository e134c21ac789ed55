"""Commits positions while the application polls (enable.auto.commit)."""

from __future__ import annotations

import logging
import time

from client.core.backoff import Backoff
from client.core.errors import ConsumerError, RebalanceInProgressError
from client.core.positions import Positions
from client.group_offsets import GroupOffsets

logger = logging.getLogger(__name__)


class AutoCommit:
    """That of one consumer. Only positions of what polls have returned are committed."""

    def __init__(
        self, positions: Positions, offsets: GroupOffsets, *, interval_ms: int, backoff: Backoff
    ) -> None:
        self._positions = positions
        self._offsets = offsets
        self._interval_s = interval_ms / 1000
        self._backoff = backoff
        self.due_s = time.monotonic() + self._interval_s
        """When the next one is made, on the loop's clock."""
        self._is_under_way = False

    def polled(self, now_s: float) -> None:
        """A poll begins: commit if it is time to."""
        if now_s >= self.due_s and not self._is_under_way:
            self.begin(now_s)

    def begin(self, now_s: float) -> None:
        """Commit now, without waiting for it."""
        self.due_s = now_s + self._interval_s
        consumed = self._positions.consumed()
        if not consumed:
            return
        self._is_under_way = True
        self._offsets.commit_async(consumed, None, on_done=self._done)

    def _done(self, error: BaseException | None) -> None:
        self._is_under_way = False
        if error is None:
            if self._backoff.failure_count:
                logger.info("commits succeed again")
            self._backoff.succeed()
        elif isinstance(error, RebalanceInProgressError):
            # The commit before the rebalance has it, or the next one will.
            logger.debug("a commit came into a rebalance: %s", error)
        else:
            # Once: while the coordinator is away each attempt fails in the same way.
            level = logging.DEBUG if self._backoff.failure_count else logging.WARNING
            logger.log(level, "a commit failed, and will be tried again: %s", error)
            wait_s = self._backoff.fail() / 1000
            if isinstance(error, ConsumerError) and error.code.retriable:
                self.due_s = min(self.due_s, time.monotonic() + wait_s)

"""The commits of a consumer with a group: which positions count as processed, and who commits them.

Commits are made by the application (`commit`, `commit_async`), by auto commit, and by the consumer
when it closes. During `Consumer.run` only the run commits, because only it knows which records are
handled.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import (
    CommitError,
    ConsumerError,
    IllegalStateError,
    RebalanceInProgressError,
)
from kohort.client.core.fetch.positions import Positions, StoredOffsets
from kohort.client.core.group.subscription import Subscription
from kohort.client.core.offsets import OffsetAndMetadata, ToCommit, as_committed
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord
from kohort.client.fetch.fetcher import Fetcher
from kohort.client.group.callbacks import CommitCallback, Offsets
from kohort.client.group.offsets import Committed, GroupOffsets
from kohort.client.open_calls import OpenCalls

logger = logging.getLogger(__name__)

SAME_AGAIN_S: Final = 1.0
"""Minimum time between two commits of the same positions, even if auto_commit_interval_ms is
shorter: while a poll waits for records, positions do not change."""


def note_outcome(error: BaseException | None, backoff: Backoff) -> float | None:
    """Log how a periodic commit ended; `error` is None if it succeeded. Returns the seconds to wait
    before another attempt; None if the next commit is due as usual.
    """
    if error is None:
        if backoff.failure_count:
            logger.info("commits succeed again")
        backoff.succeed()
        return None
    if isinstance(error, RebalanceInProgressError):
        # The commit before the rebalance covers these offsets, or the next commit will.
        logger.debug("a commit was interrupted by a rebalance: %s", error)
        return None
    # Logged as a warning only once: while the coordinator is away every attempt fails alike.
    level = logging.DEBUG if backoff.failure_count else logging.WARNING
    logger.log(level, "a commit failed and will be retried: %s", error)
    return backoff.fail() / 1000


class AutoCommit:
    """Commits processed offsets periodically while the application polls (enable.auto.commit). The
    records that the latest poll returned do not count as processed yet.
    """

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
        """Auto commit need not run in a poll before this time: it had nothing new to commit."""

    @property
    def idle_until_s(self) -> float:
        """When auto commit next has to run in a poll; infinite during a commit."""
        return float("inf") if self._is_under_way else max(self.due_s, self._rest_until_s)

    def polled(self, now_s: float) -> None:
        """Commit if the interval has passed; called at the beginning of each poll."""
        if now_s >= self.due_s and not self._is_under_way:
            self.begin(now_s)

    def begin(self, now_s: float) -> None:
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
        wait_s = note_outcome(error, self._backoff)
        if wait_s is not None:
            again_s = time.monotonic() + wait_s
            is_retried = isinstance(error, ConsumerError) and error.code.retriable
            # After a retriable error, commit again after the backoff; after any other error, wait
            # for the rest of the interval as well.
            self.due_s = again_s if is_retried else max(self.due_s, again_s)


class Commits:
    def __init__(
        self,
        config: ConsumerConfig,
        offsets: GroupOffsets,
        *,
        subscription: Subscription,
        positions: Positions,
        fetcher: Fetcher,
        calls: OpenCalls,
    ) -> None:
        """`calls` are the application's calls that are waiting for the cluster."""
        self.offsets = offsets
        self.handled: Callable[[], Offsets] | None = None
        """During `Consumer.run`: returns the offsets to commit, those after handled records."""
        self._config = config
        self._subscription = subscription
        self._positions = positions
        self._calls = calls
        self._stored = StoredOffsets(positions)
        self.processed: Callable[[], Offsets] = (
            fetcher.state.processed if config.enable_auto_offset_store else self._stored.committable
        )
        """The offsets that auto commit may commit: in each partition, the one after the last
        processed record; without auto store, the one that the application has stored."""
        self._auto_commit: AutoCommit | None = None
        if config.enable_auto_commit:
            self._auto_commit = AutoCommit(
                self.processed,
                offsets,
                interval_ms=config.auto_commit_interval_ms,
                backoff=Backoff(
                    config.retry_backoff_ms, config.retry_backoff_max_ms, random.random
                ),
            )

    # Called by the application.

    async def commit(self, offsets: Mapping[TopicPartition, ToCommit] | None) -> None:
        wanted = self._wanted(offsets)
        try:
            with self._calls.call():
                await self.offsets.commit(wanted, self._config.default_api_timeout_ms / 1000)
        finally:
            # An exception from another commit's callback must not look like the result of this
            # commit.
            await self.offsets.callbacks.run_due(keeps_error=True)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, ToCommit] | None,
        callback: CommitCallback | None,
    ) -> None:
        self.offsets.commit_async(self._wanted(offsets), callback)

    async def committed(self, partitions: Collection[TopicPartition]) -> Committed:
        with self._calls.call():
            return await self.offsets.fetch(partitions, self._config.default_api_timeout_ms / 1000)

    def store(
        self, message: AnyRecord | None, offsets: Mapping[TopicPartition, ToCommit] | None
    ) -> None:
        if self._config.enable_auto_offset_store:
            raise IllegalStateError("store_offsets() needs enable_auto_offset_store=False")
        if (message is None) == (offsets is None):
            raise ValueError("store_offsets() takes either a message or offsets")
        if message is not None:
            partition = TopicPartition(message.topic, message.partition)
            offsets = {partition: OffsetAndMetadata(message.offset + 1, "", message.leader_epoch)}
        self._stored.store(as_committed(offsets or {}))

    def _wanted(self, offsets: Mapping[TopicPartition, ToCommit] | None) -> Offsets:
        """Return the offsets to commit: the given ones, or by default all that may be committed."""
        if offsets is None:
            return self._returned() if self.handled is None else self.handled()
        wanted = as_committed(offsets)
        self._check_owned(wanted)
        return wanted

    def _returned(self) -> Offsets:
        """Return the offsets after all returned records; without auto store, the stored offsets."""
        stores_itself = self._config.enable_auto_offset_store
        return self._positions.consumed() if stores_itself else self._stored.committable()

    def _check_owned(self, offsets: Offsets) -> None:
        """Check that a member commits only partitions it owns; otherwise it would overwrite another
        member's position.

        Raises:
            IllegalStateError: a partition is not assigned to this consumer by its group.
        """
        if not self._subscription.is_by_group or self._config.commit_unassigned:
            return
        try:
            self.offsets.committer.commit_identity()
        except CommitError:
            return  # The commit itself will fail, with a more specific error.
        strange = offsets.keys() - self._subscription.assigned
        if strange:
            names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(strange)[:10])
            raise IllegalStateError(
                f"{names} is not assigned to this consumer, so the group may have assigned it to"
                " another one; set commit_unassigned=True to commit it anyway"
            )

    # Automatic commits.

    @property
    def _active(self) -> AutoCommit | None:
        """The active auto commit; None during `Consumer.run`, which makes the commits."""
        return self._auto_commit if self.handled is None else None

    @property
    def idle_until_s(self) -> float:
        """When auto commit next has to run in a poll, on the monotonic clock."""
        active = self._active
        return float("inf") if active is None else active.idle_until_s

    def polled(self, now_s: float) -> None:
        """Give auto commit the opportunity to commit; called at the beginning of each poll."""
        if (active := self._active) is not None:
            active.polled(now_s)

    def begin(self) -> None:
        """Start committing the processed offsets, if auto commit is on, without waiting."""
        if (active := self._active) is not None:
            active.begin(time.monotonic())

    async def commit_last(self, deadline_s: float, *, commits_all: bool) -> None:
        """Make the final commit, if auto commit is on, before `deadline_s` on the monotonic clock.

        No records are returned after this call, unless it is cancelled.

        Args:
            commits_all: whether the records returned last count as processed.
        """
        if self._active is None:
            return
        held = self._positions.hold(self._positions.assigned)
        wanted = self._returned() if commits_all else self.processed()
        try:
            left_s = max(0.0, deadline_s - time.monotonic())
            await self.offsets.commit(wanted, left_s, is_automatic=True)
        except ConsumerError as error:
            logger.warning("the final commit failed: %s", error)
        except asyncio.CancelledError:
            self._positions.release(held)
            raise

"""The part of a rebalance that involves the application: commits, callbacks, the new assignment.

A poll that is cancelled midway loses nothing: the commit and a callback in progress continue, and
the next poll waits for them instead of starting them again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from kohort.client.core.errors import ConsumerError
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.group.actions import Apply, Prepare
from kohort.client.core.group.assignors import RebalanceProtocol
from kohort.client.core.group.subscription import Subscription
from kohort.client.core.partitions import TopicPartition
from kohort.client.fetch.fetcher import Fetcher
from kohort.client.group.callbacks import Callbacks, Offsets
from kohort.client.group.listener import (
    NO_LISTENER,
    BothListeners,
    CallbackResult,
    Partitions,
    RebalanceListener,
)
from kohort.client.group.offsets import GroupOffsets

logger = logging.getLogger(__name__)

NOTHING: Final[Partitions] = frozenset()


class Rebalance:
    """Performs one consumer's rebalances; keeps no state from one rebalance to the next."""

    def __init__(
        self,
        *,
        subscription: Subscription,
        positions: Positions,
        fetcher: Fetcher,
        offsets: GroupOffsets | None,
        processed: Callable[[], Offsets],
        commits_by_itself: bool,
        commit_timeout_s: float,
        on_progress: Callable[[], None],
    ) -> None:
        """`processed` returns the offsets to commit before a rebalance; that commit is abandoned
        after `commit_timeout_s`.
        """
        self.listener: RebalanceListener = NO_LISTENER
        self.first_listener: RebalanceListener | None = None
        """Listener of `Consumer.run`, notified first: it commits before other members take over."""
        self._subscription = subscription
        self._positions = positions
        self._fetcher = fetcher
        self._offsets = offsets
        self._processed = processed
        self._commits_by_itself = commits_by_itself
        self._commit_timeout_s = commit_timeout_s
        self._on_progress = on_progress
        self._commit: asyncio.Task[None] | None = None
        self._is_committed = False
        self.callbacks = Callbacks(self._callback_failed)
        self._error: BaseException | None = None

    # Actions.

    async def prepare(self, action: Prepare, mode: RebalanceProtocol, deadline_s: float) -> bool:
        """Commit, notify the listener, own only `action.kept`; False if not committed in time."""
        if action.revoked is not None or mode is RebalanceProtocol.COOPERATIVE:
            held = self._subscription.assigned - action.kept
            if not action.lost and not await self._commit_before(held, deadline_s):
                return False
        if action.revoked is not None:
            await self._take_back("on_revoked", self._called_listener.on_revoked, action.revoked)
        if action.lost:
            await self._take_back("on_lost", self._called_listener.on_lost, action.lost)
        await self.callbacks.wait_over()
        # An interrupted earlier action may have revoked some partitions that this one would keep.
        self._finish(action.kept - self.callbacks.given_up)
        return True

    async def apply(self, action: Apply, deadline_s: float, is_valid: Callable[[], bool]) -> bool:
        """Commit, revoke, assign, notify the listener; False if the commit was not done in time."""
        if action.revoked and not self.callbacks.has_called("on_assigned"):
            if not await self._commit_before(action.revoked, deadline_s):
                return False
            await self._take_back("on_revoked", self._called_listener.on_revoked, action.revoked)
        if not is_valid():
            # Membership was lost meanwhile; the next action handles the rest.
            self._finish(self._subscription.assigned - action.revoked)
            return True
        self.own(action.assigned)
        # Do not read the added partitions until on_assigned returns, which may be during a later
        # poll.
        self._positions.hold(action.added)
        await self._call("on_assigned", self._called_listener.on_assigned, action.added)
        self._positions.release(action.added)
        self._fetcher.wake()
        self._finish(None)
        return True

    async def give_up(self, *, is_lost: bool) -> None:
        """Revoke all partitions outside of a rebalance: at close and unsubscribe."""
        await self.callbacks.wait_over()
        owned = self._subscription.assigned
        # An interrupted rebalance may have revoked some of them already.
        left = owned - self.callbacks.given_up
        has_called = bool(self.callbacks.given_up)
        self.callbacks.begin()
        try:
            if not is_lost and (left or not has_called):
                await self._take_back("on_revoked", self._called_listener.on_revoked, left)
            elif is_lost and left:
                await self._take_back("on_lost", self._called_listener.on_lost, left)
        finally:
            self._finish(NOTHING)

    def own(self, partitions: Partitions) -> None:
        """Read exactly these partitions."""
        if partitions == self._subscription.assigned == set(self._positions.assigned):
            # The assignment is unchanged, but no partition is held back any longer.
            self._positions.set_assigned(self._positions.assigned)
            self._fetcher.wake()
            return
        self._subscription.assigned = frozenset(partitions)
        self._positions.set_assigned(sorted(partitions))
        self._fetcher.assignment_changed()

    def close(self) -> None:
        """Cancel a commit that no caller waits for any more."""
        if self._commit is not None:
            self._commit.cancel()

    # Errors.

    def failed(self, error: BaseException) -> None:
        """Keep an error for the next poll to raise; the first one wins."""
        if self._error is None:
            self._error = error

    def raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    # Internals.

    @property
    def _called_listener(self) -> RebalanceListener:
        if self.first_listener is None:
            return self.listener
        return BothListeners(self.first_listener, self.listener)

    def _finish(self, owned: Partitions | None) -> None:
        if owned is not None:
            self.own(owned)
        self.callbacks.begin()
        self._is_committed = False
        if self._commit is not None:
            # The partitions of this commit are not owned any more.
            self._commit.cancel()
            self._commit = None

    async def _call(
        self, name: str, method: Callable[[Partitions], CallbackResult], partitions: Partitions
    ) -> None:
        await self.callbacks.call(name, method, partitions)

    async def _take_back(
        self, name: str, method: Callable[[Partitions], CallbackResult], partitions: Partitions
    ) -> None:
        """Stop returning records of these partitions, then notify the listener."""
        self._positions.hold(partitions)
        await self._call(name, method, partitions)

    def _callback_failed(self, name: str, error: Exception) -> None:
        logger.warning("%s raised %r; the rebalance continues", name, error)
        self.failed(error)

    async def _commit_before(self, held: Collection[TopicPartition], deadline_s: float) -> bool:
        """Commit returned records before a rebalance, and return no more records of `held`
        meanwhile. Returns False if the commit is still in progress at `deadline_s`.

        The commit then continues in the background, at most `commit_timeout_s` in total.
        """
        is_wanted = self._commits_by_itself and self.first_listener is None
        if not is_wanted or self._offsets is None or self._is_committed:
            return True
        if self._commit is None:
            self._positions.hold(held)
            processed = self._processed()
            if not processed:
                return True
            self._commit = asyncio.create_task(
                self._offsets.commit(processed, self._commit_timeout_s, is_automatic=True),
                name="commit before a rebalance",
            )
            self._commit.add_done_callback(lambda _: self._on_progress())
        left_s = max(0.0, deadline_s - time.monotonic())
        done, _ = await asyncio.wait([self._commit], timeout=left_s)
        if not done:
            return False
        task, self._commit = self._commit, None
        self._is_committed = True
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ConsumerError):
            logger.warning("the commit before a rebalance failed: %s", error)
        elif error is not None:
            raise error
        return True

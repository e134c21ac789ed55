"""Stops a consumer: `unsubscribe`, after which it can subscribe again, and `close`.

All waits for callbacks and the network have time limits, and cancelling the caller does not
interrupt the work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from kohort.client.core.errors import IllegalStateError
from kohort.client.group.callbacks import GRACE_S

if TYPE_CHECKING:
    from kohort.client.engine.engine import Engine

logger = logging.getLogger(__name__)

GROUP_SHARE: Final = 0.2
"""Share of the close timeout reserved for leaving the group."""

COMMIT_SHARE: Final = 0.5
"""Share of the close timeout for the final commit; the rest is for callbacks and leaving."""


class Shutdown:
    """Runs `unsubscribe` and `close` for one consumer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.is_closing = False
        """Whether closing has begun: polls are rejected, but callbacks may still commit."""
        self.is_closed = False
        self._unsubscribing: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._timeout: asyncio.Timeout | None = None
        """The time limit of a running `close`."""

    async def unsubscribe(self, timeout_s: float) -> None:
        engine = self._engine
        deadline_s = time.monotonic() + timeout_s
        if self._unsubscribing is None:
            try:
                async with engine.housekeeping.alone():
                    await self._commit_last(deadline_s, commits_all=True)
            except asyncio.CancelledError:
                engine.wake()  # No partition was given up: continue reading.
                raise
            self._unsubscribing = asyncio.create_task(
                self._unsubscribe(deadline_s), name="unsubscribe a consumer"
            )
        await asyncio.shield(self._unsubscribing)
        engine.rebalance.raise_error()

    def check_not_unsubscribing(self) -> None:
        """Raise an IllegalStateError during an unsubscribe, which would drop a new subscription."""
        if self._unsubscribing is not None:
            raise IllegalStateError("unsubscribe() is still in progress; await it first")

    async def close(self, timeout_s: float, *, leaves: bool | None, commits_all: bool) -> None:
        engine = self._engine
        if self._closing is None:
            # Set first: no more records may be returned, because the final commit would include
            # them.
            self.is_closing = True
            engine.wake()
            self._closing = asyncio.create_task(
                self._close(timeout_s, leaves=leaves, commits_all=commits_all),
                name="close a consumer",
            )
            # If the caller was cancelled the exception is never retrieved; avoid asyncio's warning.
            self._closing.add_done_callback(lambda task: task.cancelled() or task.exception())
        while not self._closing.done():
            try:
                await asyncio.wait([self._closing])
            except asyncio.CancelledError:
                self._hurry()
                await asyncio.wait([self._closing])
                raise
        self._closing.result()
        engine.rebalance.raise_error()

    async def _unsubscribe(self, deadline_s: float) -> None:
        engine = self._engine
        async with engine.housekeeping.alone():
            try:
                await self._leave("the consumer unsubscribed", deadline_s, leaves=None)
            finally:
                self._unsubscribing = None
                engine.subscription.unsubscribe()
                engine.rebalance.own(frozenset())
                engine.subscribed()

    async def _commit_last(self, deadline_s: float, *, commits_all: bool) -> None:
        if self._engine.commits is not None:
            await self._engine.commits.commit_last(deadline_s, commits_all=commits_all)

    async def _leave(self, reason: str, deadline_s: float, *, leaves: bool | None) -> None:
        member = self._engine.member
        if member is not None and self._engine.subscription.is_by_group:
            await member.give_up(reason, deadline_s, leaves=leaves)

    def _hurry(self) -> None:
        """Stop waiting for the network and cancel running callbacks."""
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())
        self._engine.rebalance.callbacks.end_by(0.0)
        if self._engine.member is not None:
            self._engine.member.leave_sender.give_up()

    async def _close(self, timeout_s: float, *, leaves: bool | None, commits_all: bool) -> None:
        engine = self._engine
        deadline_s = time.monotonic() + timeout_s
        # Leaves time for the LeaveGroup request even if a callback does not return.
        callbacks_end_s = deadline_s - GROUP_SHARE * timeout_s
        engine.rebalance.callbacks.end_by(callbacks_end_s)
        engine.calls.end(but=engine.rebalance.callbacks.task)
        engine.wake()
        try:
            async with asyncio.timeout(timeout_s + GRACE_S) as self._timeout:
                await engine.fetcher.stop_fetching()
                async with engine.housekeeping.alone():
                    await engine.lookups.close()
                    commit_end_s = deadline_s - (1 - COMMIT_SHARE) * timeout_s
                    await self._commit_last(commit_end_s, commits_all=commits_all)
                    await self._leave("the consumer is closed", deadline_s, leaves=leaves)
        except TimeoutError:
            logger.warning(
                "the consumer was closed before its final commit, callbacks and LeaveGroup had"
                " completed"
            )
        finally:
            self._timeout = None
            self.is_closed = True
            # Also end calls that a cancelled callback has in progress.
            engine.calls.end(but=None)
            engine.rebalance.callbacks.close()
            await engine.close_parts(max(0.0, deadline_s - time.monotonic()))
        if engine.commits is not None:
            callbacks = engine.commits.offsets.callbacks
            await callbacks.close(max(GRACE_S, deadline_s - time.monotonic()))

"""How a consumer ends: it gives up what it reads, to go on with something else or for good.

What a callback or the network holds up is waited for so long and no longer, and a caller that is
cancelled does not leave it half done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from kohort.client.core.errors import IllegalStateError
from kohort.client.group.callbacks import GRACE_S

if TYPE_CHECKING:
    from kohort.client.engine import Engine

logger = logging.getLogger(__name__)

GROUP_SHARE: Final = 0.2
"""The part of the time for the end that is kept for telling the group."""

COMMIT_SHARE: Final = 0.5
"""The part of it that the last commit may take, so that callbacks have some as well."""


class Ending:
    """The end of one consumer: `unsubscribe`, after which it may go on, and `close`."""

    def __init__(self, engine: Engine) -> None:
        """`engine` is what ends, with all of its parts."""
        self._engine = engine
        self.is_closing = False
        """No polls any more; callbacks may still commit."""
        self.is_closed = False
        self._unsubscribing: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._timeout: asyncio.Timeout | None = None
        """How long `close` may still take."""

    async def unsubscribe(self, timeout_s: float) -> None:
        """`Engine.unsubscribe`."""
        engine = self._engine
        deadline_s = time.monotonic() + timeout_s
        if self._unsubscribing is None:
            try:
                async with engine.duties.alone():
                    await self._commit_last(deadline_s, commits_all=True)
            except asyncio.CancelledError:
                engine.wake()  # It has not happened: read on.
                raise
            self._unsubscribing = asyncio.create_task(
                self._unsubscribe(deadline_s), name="unsubscribe a consumer"
            )
        await asyncio.shield(self._unsubscribing)
        engine.rebalance.raise_error()

    def check_not_unsubscribing(self) -> None:
        """Raise an IllegalStateError while an unsubscribe is under way, which would undo it."""
        if self._unsubscribing is not None:
            raise IllegalStateError("unsubscribe() is not over yet; wait for it")

    async def close(self, timeout_s: float, *, leaves: bool | None, commits_all: bool) -> None:
        """`Engine.close`."""
        engine = self._engine
        if self._closing is None:
            # From this moment on: who stops has nothing in hand, and is given nothing more.
            self.is_closing = True
            engine.wake()
            self._closing = asyncio.create_task(
                self._close(timeout_s, leaves=leaves, commits_all=commits_all),
                name="close a consumer",
            )
            # A caller that stops, and is cancelled, does not hear of an error.
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
        async with engine.duties.alone():
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
        """Wait no longer for the network or for callbacks, which are cancelled."""
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())
        self._engine.rebalance.callbacks.end_by(0.0)
        if self._engine.member is not None:
            self._engine.member.goodbye.give_up()

    async def _close(self, timeout_s: float, *, leaves: bool | None, commits_all: bool) -> None:
        engine = self._engine
        deadline_s = time.monotonic() + timeout_s
        # So that there is time for telling the group after one that does not return.
        callbacks_end_s = deadline_s - GROUP_SHARE * timeout_s
        engine.rebalance.callbacks.end_by(callbacks_end_s)
        engine.calls.end(but=engine.rebalance.callbacks.task)
        engine.wake()
        try:
            async with asyncio.timeout(timeout_s + GRACE_S) as self._timeout:
                await engine.fetcher.stop_fetching()
                async with engine.duties.alone():
                    await engine.lookups.close()
                    commit_end_s = deadline_s - (1 - COMMIT_SHARE) * timeout_s
                    await self._commit_last(commit_end_s, commits_all=commits_all)
                    await self._leave("the consumer is closed", deadline_s, leaves=leaves)
        except TimeoutError:
            logger.warning("the consumer was closed before all was done that is done at the end")
        finally:
            self._timeout = None
            self.is_closed = True
            # What a callback still asks for is of no use to it now.
            engine.calls.end(but=None)
            engine.rebalance.callbacks.close()
            await engine.close_parts(max(0.0, deadline_s - time.monotonic()))
        if engine.commits is not None:
            callbacks = engine.commits.offsets.callbacks
            await callbacks.close(max(GRACE_S, deadline_s - time.monotonic()))

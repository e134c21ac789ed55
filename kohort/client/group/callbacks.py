"""Runs the application's callbacks, each exactly once: the rebalance listener's methods, and the
commit callbacks, which are called one at a time in the order of the commits.

A cancelled poll does not interrupt a listener's method: the method continues in a task of its own,
and the next poll, or the closing of the consumer, waits for it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.group.listener import CallbackResult, Partitions

logger = logging.getLogger(__name__)

GRACE_S: Final = 0.1
"""Minimum time for callbacks while a consumer is closing, even if its timeout has passed."""


class Callbacks:
    """Calls the listener's methods one at a time, and repeats no call within a rebalance."""

    def __init__(self, on_error: Callable[[str, Exception], None]) -> None:
        """`on_error` is called with the name of a callback and the exception that it raised."""
        self._on_error = on_error
        self._over: set[str] = set()
        self._given_up: set[TopicPartition] = set()
        self._running: tuple[str, asyncio.Task[None]] | None = None
        self._cut: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completes at the deadline set by `end_by`."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def task(self) -> asyncio.Task[None] | None:
        return None if self._running is None else self._running[1]

    @property
    def given_up(self) -> frozenset[TopicPartition]:
        """The partitions that were passed to on_revoked or on_lost in this rebalance."""
        return frozenset(self._given_up)

    def has_called(self, name: str) -> bool:
        return name in self._over or (self._running is not None and self._running[0] == name)

    def begin(self) -> None:
        self._over.clear()
        self._given_up.clear()

    async def call(
        self, name: str, method: Callable[[Partitions], CallbackResult], partitions: Partitions
    ) -> None:
        """Call a callback, unless it was already called in this rebalance, and wait until it
        returns.

        A partition is passed to either on_revoked or on_lost: if membership is lost after a poll
        was cancelled during on_revoked, on_lost gets only the partitions that on_revoked did not.

        Raises:
            CancelledError: the caller was cancelled; the callback continues.
        """
        await self.wait_over()
        is_loss = name != "on_assigned"
        uncalled = partitions - self._given_up if is_loss else partitions
        is_done = not uncalled if is_loss and partitions else name in self._over
        if is_done:
            return
        self._over.add(name)
        if is_loss:
            self._given_up |= uncalled
        try:
            answer = method(uncalled)
        except Exception as error:  # noqa: BLE001 - the application's; raised by the poll.
            self._on_error(name, error)
            return
        if inspect.isawaitable(answer):
            task = asyncio.create_task(wait_for_callback(answer), name=f"{name} of a consumer")
            self._running = name, task
            await self.wait_over()

    async def wait_over(self) -> None:
        """Wait until no callback is running, or the time set by `end_by` has passed."""
        while self._running is not None:
            name, task = self._running
            if self._cut.done():
                # The callback began when the time for callbacks was already over: give it GRACE_S.
                await asyncio.wait([task], timeout=GRACE_S)
                if not task.done():
                    _cut_short(name, task)
            else:
                await asyncio.wait([task, self._cut], return_when=asyncio.FIRST_COMPLETED)
            if self._running == (name, task):
                self._running = None
                self._take(name, task)

    def end_by(self, deadline_s: float) -> None:
        """Cancel callbacks that run beyond `deadline_s`, on the clock of `time.monotonic`."""
        left_s = max(GRACE_S, deadline_s - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(left_s, self._give_up)

    def close(self) -> None:
        """Cancel the timer of `end_by`; call this after the last callback."""
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        if self._running is not None:
            _cut_short(*self._running)
        if not self._cut.done():
            self._cut.set_result(None)

    def _take(self, name: str, task: asyncio.Task[None]) -> None:
        if not task.done() or task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception):
            self._on_error(name, error)
        elif error is not None:
            raise error


def _cut_short(name: str, task: asyncio.Task[None]) -> None:
    logger.warning("%s did not return before the close timeout and is cancelled", name)
    task.cancel()


async def wait_for_callback(answer: Awaitable[None]) -> None:
    """Await the result of an application's callback.

    Raises:
        RuntimeError: the callback raised CancelledError although its task was not cancelled:
            something that it awaited was cancelled.
        Exception: whatever the callback raised.
    """
    try:
        await answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("the callback was cancelled from within") from error


Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback: TypeAlias = Callable[[Offsets, Exception | None], Awaitable[None] | None]
"""Called with the committed offsets and the error, None on success. A plain function or a coroutine
function."""


class CommitCallbacks:
    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        """The task of the running callback. It continues if a caller that waits for it is
        cancelled."""
        self._due: deque[tuple[CommitCallback, Offsets, Exception | None]] = deque()
        self._error: Exception | None = None
        """An exception that a callback raised and that no call has re-raised yet."""

    def __len__(self) -> int:
        return len(self._due)

    @property
    def are_due(self) -> bool:
        """Whether `run_due` has anything to do."""
        return bool(self._due) or self.task is not None or self._error is not None

    def add(self, callback: CommitCallback, offsets: Offsets, error: Exception | None) -> None:
        self._due.append((callback, offsets, error))

    async def run_due(self, *, keeps_error: bool = False) -> None:
        """Call all pending callbacks.

        Args:
            keeps_error: leave a callback's exception for a later `run_due` to raise, because the
                caller has a result of its own to return.

        Raises:
            Exception: the first one that a callback raised.
        """
        while (self._due or self.task is not None) and asyncio.current_task() is not self.task:
            try:
                await self._run_next()
            except Exception as error:  # noqa: BLE001 - the application's; raised below, or later.
                if self._error is None:
                    self._error = error
        if self._error is not None and not keeps_error:
            kept, self._error = self._error, None
            raise kept

    async def close(self, timeout_s: float) -> None:
        """Call all pending callbacks; after `timeout_s`, cancel the one that is running."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.run_due()
        except TimeoutError:
            if self.task is None:
                raise  # Raised by the callback itself.
            logger.warning(
                "a commit callback did not return before the close timeout and is cancelled"
            )
            self.task.cancel()

    async def _run_next(self) -> None:
        if self.task is None:
            callback, offsets, error = self._due.popleft()
            answer = callback(offsets, error)
            if not inspect.isawaitable(answer):
                return
            self.task = asyncio.create_task(wait_for_callback(answer), name="callback of a commit")
        task = self.task
        await asyncio.wait([task])
        if self.task is task:
            self.task = None
            if not task.cancelled():
                task.result()

"""Calls the application's commit callbacks: in the order of the commits, one at a time,
each once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.group.callbacks import wait_for_callback

logger = logging.getLogger(__name__)

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
            keeps_error: leave an exception of theirs to a later call, because this call has a
                result of its own.

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
        """Call all pending callbacks for at most `timeout_s`, then cancel them."""
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

"""Tells the application how its commits went: in their order, each callback to its end, once."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition

logger = logging.getLogger(__name__)

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback: TypeAlias = Callable[[Offsets, Exception | None], Awaitable[None] | None]
"""Told how a commit went: None for well. A plain function or a coroutine."""


class CommitCallbacks:
    """Callbacks of one consumer whose commits are over."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        """In which one is running. A caller that waits for it may be cancelled; it goes on."""
        self._due: deque[tuple[CommitCallback, Offsets, Exception | None]] = deque()
        self._error: Exception | None = None
        """Raised by a callback, and not by anybody's call yet."""

    def __len__(self) -> int:
        return len(self._due)

    @property
    def are_due(self) -> bool:
        """Whether `tell` has anything to do."""
        return bool(self._due) or self.task is not None or self._error is not None

    def add(self, callback: CommitCallback, offsets: Offsets, error: Exception | None) -> None:
        """A commit is over."""
        self._due.append((callback, offsets, error))

    async def tell(self, *, keeps_error: bool = False) -> None:
        """Call all that are due.

        Args:
            keeps_error: leave what they raise to a later call: this one has a result of its own.

        Raises:
            what the first one of them raised.
        """
        while (self._due or self.task is not None) and asyncio.current_task() is not self.task:
            try:
                await self._tell_next()
            except Exception as error:  # noqa: BLE001 - the application's; raised below, or later.
                if self._error is None:
                    self._error = error
        if self._error is not None and not keeps_error:
            kept, self._error = self._error, None
            raise kept

    async def close(self, timeout_s: float) -> None:
        """Calls all that are due, like `tell`, for so long at most; one that still runs then is
        cancelled.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self.tell()
        except TimeoutError:
            if self.task is None:
                raise  # A callback's own.
            logger.warning(
                "the callback of a commit has not returned, and the consumer should be closed by"
                " now: it is cancelled"
            )
            self.task.cancel()

    async def _tell_next(self) -> None:
        if self.task is None:
            callback, offsets, error = self._due.popleft()
            answer = callback(offsets, error)
            if not inspect.isawaitable(answer):
                return
            self.task = asyncio.create_task(_wait(answer), name="callback of a commit")
        task = self.task
        await asyncio.wait([task])
        if self.task is task:
            self.task = None
            if not task.cancelled():
                task.result()


async def _wait(answer: Awaitable[None]) -> None:
    await answer

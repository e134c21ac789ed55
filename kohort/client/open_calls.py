"""Tracks application calls that wait for the cluster; closing the consumer ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from kohort.client.core.errors import ConsumerClosedError


class OpenCalls:
    """The calls in progress, tracked per task."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Task[object], int] = {}
        """How many nested calls each task has open."""
        self._ended: set[asyncio.Task[object]] = set()

    @contextmanager
    def call(self) -> Iterator[None]:
        """A context in which `end` can cancel the current task.

        Raises:
            ConsumerClosedError: the consumer was closed meanwhile.
        """
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = self._open.get(task, 0) + 1
        try:
            yield
        except asyncio.CancelledError:
            if task in self._ended:
                self._ended.discard(task)
                if task.uncancel() == 0:
                    raise ConsumerClosedError("this consumer was closed during the call") from None
            raise
        finally:
            self._leave(task)

    def end(self, *, but: asyncio.Task[object] | None) -> None:
        """End all calls except those of the current task and of `but`, which runs a callback."""
        for task in list(self._open):
            if task is not but and task is not asyncio.current_task() and task not in self._ended:
                self._ended.add(task)
                task.cancel()

    def _leave(self, task: asyncio.Task[object]) -> None:
        self._open[task] -= 1
        if self._open[task]:
            return
        del self._open[task]
        if task in self._ended:
            # The call completed just before its cancellation was delivered.
            self._ended.discard(task)
            task.uncancel()

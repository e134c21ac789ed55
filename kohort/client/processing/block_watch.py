"""Warns, once per run, when the event loop is blocked while handlers run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.5
"""The interval of a timer whose delay shows how long the loop was blocked."""

BLOCKED_S: Final = 1.0
"""If the timer is late by this time or more, the event loop counts as blocked."""


class BlockWatch:
    def __init__(self, handled: Callable[[], object]) -> None:
        """`handled` returns a value that changes whenever a handler starts or ends."""
        self._handled = handled
        self._before: object = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        due_s = asyncio.get_running_loop().time() + LOOK_S
        self._before = self._handled()
        self._timer = asyncio.get_running_loop().call_at(due_s, self._look, due_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, due_s: float) -> None:
        late_s = asyncio.get_running_loop().time() - due_s
        if late_s < BLOCKED_S or self._handled() == self._before:
            self.start()
            return
        logger.warning(
            "a handler blocks the event loop: nothing else ran for %.1f s, not even polls; without"
            " polls the group reassigns the partitions after max_poll_interval_ms. Await"
            " asynchronous libraries in the handler, or run blocking code with asyncio.to_thread",
            late_s,
        )

"""Long requests are executed one at a time, so that an event loop iteration has at most one slice.

Clients are served round robin: a client with a thousand connections delays the request of another
by only one of its own. One at a time also bounds memory: a request with many small elements takes
thirty times its bytes when it is decoded.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final

from kohort.broker.core.security.fair_queue import FairQueue

LONG_BYTES: Final = 8 * 1024
"""Larger requests are decoded, executed and answered in slices. Smaller ones have at most a few
thousand elements, which take a few milliseconds."""


class LongRequests:
    """Schedules the long requests of all clients."""

    def __init__(self) -> None:
        self._waiting: FairQueue[Hashable, asyncio.Future[None]] = FairQueue(sys.maxsize)
        """Futures by client. Bounded by the number of connections, each of which executes one
        request at a time."""
        self._is_taken = False

    @asynccontextmanager
    async def turn(self, client: Hashable) -> AsyncIterator[None]:
        """Wait until no other long request is being executed; others wait until the context
        ends.
        """
        if self._is_taken:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.add(client, waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._waiting.remove(client, waiter)
                if waiter.done() and not waiter.cancelled():
                    self._end_turn()
                raise
        self._is_taken = True
        try:
            yield
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        if self._waiting.count:
            self._waiting.take().set_result(None)
        else:
            self._is_taken = False

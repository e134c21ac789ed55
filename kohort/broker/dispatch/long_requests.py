"""Long requests are executed one at a time, so that one event loop iteration has one slice of one.

Clients take turns: one with a thousand connections delays another client's request by one of its
own. The decoded form of a request with many small elements takes thirty times its bytes, which is
another reason to have one at a time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final

from kohort.broker.core.security.fair_queue import FairQueue

LONG_BYTES: Final = 8 * 1024
"""Requests above this size are decoded, executed in parts, and answered in slices. A smaller one
has at most some thousand elements, which take a few milliseconds."""


class LongRequests:
    """The long requests of all clients, of which one is executed."""

    def __init__(self) -> None:
        self._waiting: FairQueue[Hashable, asyncio.Future[None]] = FairQueue(sys.maxsize)
        """Futures by client; a connection executes one request, so their number is the bound."""
        self._is_taken = False

    @asynccontextmanager
    async def turn(self, client: Hashable) -> AsyncIterator[None]:
        """Wait until no other long request is executed; others wait while the context lasts."""
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

"""A lock that is granted round robin by owner, so that an owner delays another owner by at most one
use of the lock.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from kohort.broker.core.security.fair_queue import FairQueue


class FairLock:
    """A lock for tasks, like `asyncio.Lock`. Each task waits on behalf of an owner. The owners get
    the lock round robin, and the tasks of one owner in order.
    """

    def __init__(self) -> None:
        self._waiting: FairQueue[Hashable, asyncio.Future[None]] = FairQueue(sys.maxsize)
        """Futures by owner; unbounded, so callers must limit their number."""
        self._is_locked = False

    @asynccontextmanager
    async def held_by(self, owner: Hashable) -> AsyncIterator[None]:
        """Wait for the lock, and hold it until the context ends."""
        if self._is_locked:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.add(owner, waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._waiting.remove(owner, waiter)
                if waiter.done() and not waiter.cancelled():
                    self._release()
                raise
        self._is_locked = True
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        while self._waiting.count:
            waiter = self._waiting.take()
            # A waiter whose task was cancelled in this event loop iteration is still in the queue.
            if not waiter.done():
                waiter.set_result(None)
                return
        self._is_locked = False

"""Threads for work of milliseconds that leaves the interpreter to others: cryptography, mostly.

Their priority is below that of the loop, which has the processor whenever it wants it.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

NICER: Final = 5
"""How much lower the priority of these threads is than that of the loop."""


class Threads(Protocol):
    """Where work is done while the loop goes on."""

    def begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Have the work done; what it returns or raises is the future's."""
        ...

    def close(self) -> None:
        """Begin no more work."""
        ...


class LowerThreads:
    """A few threads, started on first use. Create the work inside the running loop."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._executor: ThreadPoolExecutor | None = None

    def begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(
                self._count, thread_name_prefix=f"kohort-{self._name}", initializer=_give_way
            )
        return asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)


def _give_way() -> None:
    """Lower this thread's priority below other threads of the process, the loop's above all."""
    if sys.platform == "linux":
        # On systems where threads have priorities of their own.
        thread = threading.get_native_id()
        wanted = os.getpriority(os.PRIO_PROCESS, thread) + NICER
        os.setpriority(os.PRIO_PROCESS, thread, wanted)

"""Low-priority threads for work that takes milliseconds without the GIL, mostly cryptography.

Their priority is below that of the event loop's thread, so that they do not delay it.
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
"""How much higher the threads' nice value is than that of the event loop's thread."""


class Threads(Protocol):
    """Runs work while the event loop continues."""

    def begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work`; the future gets its result or exception."""
        ...

    def close(self) -> None: ...


class LowPriorityThreads:
    """A few threads, started on first use. Call `begin` from a running event loop."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._executor: ThreadPoolExecutor | None = None

    def begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(
                self._count, thread_name_prefix=f"kohort-{self._name}", initializer=_lower_priority
            )
        return asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)


def _lower_priority() -> None:
    if sys.platform == "linux":
        # Only Linux has a nice value per thread.
        thread = threading.get_native_id()
        priority = os.getpriority(os.PRIO_PROCESS, thread) + NICER
        os.setpriority(os.PRIO_PROCESS, thread, priority)

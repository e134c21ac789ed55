"""Tasks that run as long as the broker; a task that fails is restarted.

Such a task serves all topics, groups or listeners, so an unexpected error must neither end it for
good nor go unnoticed. The error is logged with its traceback once per restart, counted in the
metrics, and reported to health probes until the task has run for a while. An error that concerns a
single topic or group should not get here: the task itself catches it, because it would recur after
every restart.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from kohort.broker.runtime.slices import Monotonic

logger = logging.getLogger(__name__)

RESTART_MS_MIN: Final = 1_000
RESTART_MS_MAX: Final = 300_000
"""The maximum delay before a restart. The delay doubles up to this, and starts again from the
minimum after a run longer than this."""

DOUBTED_MS_MAX: Final = 3_600_000
"""The maximum time after a restart for which a task is reported as failing."""


class _Run(NamedTuple):
    begins_ms: int
    """When the task is restarted, by the monotonic clock."""
    is_doubted_ms: int
    """How long after `begins_ms` the task is still reported as failing."""


class BackgroundTasks:
    """Starts background tasks, which the caller cancels, and tracks failing tasks."""

    def __init__(self, clock: Monotonic) -> None:
        self.failure_counts: dict[str, int] = {}
        """The number of failures of each task, by name; 0 for tasks that never failed."""
        self._clock = clock
        self._doubted: dict[str, _Run] = {}

    def start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run `work` until it returns or the task is cancelled; restart it after each failure."""
        self.failure_counts.setdefault(name, 0)
        return asyncio.get_running_loop().create_task(self._run(name, work), name=name)

    def failing(self) -> list[str]:
        """Return the names of the tasks that await a restart, or were restarted and have not yet
        run as long as the run that failed (at most an hour).
        """
        now_ms = self._clock.monotonic_ms()
        return sorted(
            name
            for name, run in self._doubted.items()
            if now_ms - run.begins_ms <= run.is_doubted_ms
        )

    async def _run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        restart_ms = RESTART_MS_MIN
        me = asyncio.current_task()
        assert me is not None
        while True:
            began_ms = self._clock.monotonic_ms()
            try:
                return await work()
            except (Exception, asyncio.CancelledError):
                if me.cancelling():
                    # The task was cancelled, so it must end, even if the cleanup of `work` failed:
                    # the code that cancelled the task waits for its end.
                    raise
                lasted_ms = self._clock.monotonic_ms() - began_ms
                if lasted_ms > RESTART_MS_MAX:
                    restart_ms = RESTART_MS_MIN
                self.failure_counts[name] += 1
                self._doubted[name] = _Run(
                    self._clock.monotonic_ms() + restart_ms, min(lasted_ms, DOUBTED_MS_MAX)
                )
                logger.critical(
                    "Internal error: the task %r failed, and is restarted in %d s",
                    name,
                    restart_ms // 1_000,
                    exc_info=True,
                )
            await asyncio.sleep(restart_ms / 1_000)
            restart_ms = min(2 * restart_ms, RESTART_MS_MAX)

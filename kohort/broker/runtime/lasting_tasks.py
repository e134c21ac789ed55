"""Tasks that last as long as the broker: one that fails is started again.

What such a task does concerns all topics, groups or listeners, so an unforeseen error must neither
end it for good nor go unnoticed. It is logged with its traceback at most once per restart, counted
for the metrics, and shown to health probes until the task has worked for a while. An error that
concerns one topic or group should not get here: the task itself contains it, or every restart would
meet it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from kohort.broker.runtime.slices import Monotonic

logger = logging.getLogger(__name__)

RESTART_MS_MIN: Final = 1_000
RESTART_MS_MAX: Final = 300_000
"""The longest delay before a task is started again. The delay doubles up to this, and begins at the
minimum after a run that lasted longer."""

DOUBTED_MS_MAX: Final = 3_600_000
"""How long at most a task that has been started again is said to fail."""


class _Run(NamedTuple):
    """A run of a task after one that failed."""

    begins_ms: int
    """The time of its start, by the monotonic clock."""
    is_doubted_ms: int
    """How long it has to last before the task is said to work."""


class LastingTasks:
    """Starts lasting tasks, and knows which of them fail. The caller that starts one cancels it."""

    def __init__(self, clock: Monotonic) -> None:
        self.failure_counts: dict[str, int] = {}
        """How often each task has failed, by name, including those that never did."""
        self._clock = clock
        self._doubted: dict[str, _Run] = {}

    def start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run `work` until it returns or the task is cancelled; again after each failure."""
        self.failure_counts.setdefault(name, 0)
        return asyncio.get_running_loop().create_task(self._run(name, work), name=name)

    def failing(self) -> list[str]:
        """Names of the tasks that wait to be started again, and of those that were and have not
        lasted as long as the run that failed, or an hour.
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
                    # Also if its clean-up failed: whoever cancelled it waits for its end.
                    raise
                lasted_ms = self._clock.monotonic_ms() - began_ms
                if lasted_ms > RESTART_MS_MAX:
                    restart_ms = RESTART_MS_MIN
                self.failure_counts[name] += 1
                self._doubted[name] = _Run(
                    self._clock.monotonic_ms() + restart_ms, min(lasted_ms, DOUBTED_MS_MAX)
                )
                logger.critical(
                    "Internal error: %s is interrupted, and goes on in %d s",
                    name,
                    restart_ms // 1_000,
                    exc_info=True,
                )
            await asyncio.sleep(restart_ms / 1_000)
            restart_ms = min(2 * restart_ms, RESTART_MS_MAX)

"""When a record whose handler failed has its next attempt, and when it has had all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class RetryRules(NamedTuple):
    """How often, and how long in between."""

    retries: int | None
    """After the first attempt; None: for ever."""
    backoff_ms: int
    """Before the first of them; twice as long before each further one."""
    backoff_max_ms: int
    jitter: float
    """The share by which a wait is longer or shorter at random; 0: none."""

    def wait_ms(self, failed_count: int, random: Callable[[], float]) -> int | None:
        """How long to wait after so many attempts that failed; None: there are no more.

        `random` returns numbers from 0 to below 1.
        """
        if self.retries is not None and failed_count > self.retries:
            return None
        return self.backoff(failed_count, random)

    def backoff(self, failed_count: int, random: Callable[[], float]) -> int:
        """How long to wait, like `wait_ms`, however many failed attempts there were."""
        # Past sixty doublings the limit holds in any case.
        wait_ms = min(self.backoff_ms << min(failed_count - 1, 60), self.backoff_max_ms)
        return int(wait_ms * (1 - self.jitter + 2 * self.jitter * random()))

"""When a record whose handler failed is retried, and when its attempts are used up."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class RetryRules(NamedTuple):
    """The number of retries, and the waits between them."""

    retries: int | None
    """Attempts after the first one; None: unlimited."""
    backoff_ms: int
    """The wait before the first retry; it doubles for each further one."""
    backoff_max_ms: int
    jitter: float
    """The share by which waits vary at random; 0: none."""

    def wait_ms(self, failed_count: int, random: Callable[[], float]) -> int | None:
        """Return the wait after this many failed attempts; None if there are no more.

        `random` returns numbers from 0 to below 1.
        """
        if self.retries is not None and failed_count > self.retries:
            return None
        return self.backoff(failed_count, random)

    def backoff(self, failed_count: int, random: Callable[[], float]) -> int:
        """Return the wait, like `wait_ms`, without a limit on the number of attempts."""
        # After sixty doublings the limit applies in any case.
        wait_ms = min(self.backoff_ms << min(failed_count - 1, 60), self.backoff_max_ms)
        return int(wait_ms * (1 - self.jitter + 2 * self.jitter * random()))

"""Exponential backoff between attempts (KIP-580)."""

from collections.abc import Callable
from typing import Final

FACTOR: Final = 2
JITTER: Final = 0.2


class Backoff:
    """A backoff that grows with each failure up to a limit, and restarts after a success."""

    def __init__(self, first_ms: int, max_ms: int, random: Callable[[], float]) -> None:
        """`random` returns numbers from 0 to below 1."""
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._random = random
        self.failure_count = 0

    def succeed(self) -> None:
        self.failure_count = 0

    def fail(self) -> int:
        """Count a failure; return the milliseconds to wait."""
        # After sixty doublings the limit applies in any case.
        exponent = min(self.failure_count, 60)
        self.failure_count += 1
        wait_ms = min(self._first_ms * FACTOR**exponent, self._max_ms)
        return int(wait_ms * (1 - JITTER + 2 * JITTER * self._random()))

"""Exponential backoff between attempts (KIP-580)."""

from collections.abc import Callable, Collection, Hashable
from typing import Final, Generic, TypeVar

FACTOR: Final = 2
JITTER: Final = 0.2

Key = TypeVar("Key", bound=Hashable)


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


class Backoffs(Generic[Key]):
    """A backoff per broker or partition. Those that have not failed have none."""

    def __init__(self, first_ms: int, max_ms: int, random: Callable[[], float]) -> None:
        """The arguments are those of `Backoff`."""
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._random = random
        self._failed: dict[Key, Backoff] = {}

    def fail(self, key: Key) -> int:
        """Count a failure of this key; return the milliseconds to wait."""
        backoff = self._failed.get(key)
        if backoff is None:
            backoff = self._failed[key] = Backoff(self._first_ms, self._max_ms, self._random)
        return backoff.fail()

    def succeed(self, key: Key) -> None:
        self._failed.pop(key, None)

    def keep_only(self, keys: Collection[Key]) -> None:
        """Drop the failures of all other keys."""
        for gone in self._failed.keys() - keys:
            del self._failed[gone]

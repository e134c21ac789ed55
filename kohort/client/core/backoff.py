"""Exponential backoff between failed attempts (KIP-580), and records of failing operations: since
when, how often, and with which error. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

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
        # Keeps the power small: after sixty doublings the wait is at its limit anyway.
        exponent = min(self.failure_count, 60)
        self.failure_count += 1
        wait_ms = min(self._first_ms * FACTOR**exponent, self._max_ms)
        return int(wait_ms * (1 - JITTER + 2 * JITTER * self._random()))


class Backoffs(Generic[Key]):
    """A backoff per broker or partition. A key that has not failed has none."""

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


TWICE: Final = 2
"""How often an operation must have failed before its failure counts as lasting."""


class OngoingFailure(NamedTuple):
    """An operation that has not succeeded since its first failure."""

    error: str
    times: int
    seconds: float
    is_refused: bool = True
    """Whether an operator has to intervene; if not, the failure may be temporary."""

    def lasts(self, limit_ms: int) -> bool:
        """Whether it failed at least twice, and needs an operator or has failed for `limit_ms`."""
        return self.times >= TWICE and (self.is_refused or self.seconds * 1000 >= limit_ms)


class OngoingFailures:
    """Failures of one kind since the last success. All times are of the same clock."""

    def __init__(self) -> None:
        self.total = 0
        self._error = ""
        self._count = 0
        self._first_ms = 0
        self._last_ms = 0
        self._is_refused = False

    def failed(self, error: BaseException, now_ms: int, *, is_refused: bool = True) -> None:
        if not self._count:
            self._first_ms = now_ms
        self.total += 1
        self._count += 1
        self._last_ms = now_ms
        self._error = str(error) or repr(error)
        self._is_refused = is_refused

    def succeeded(self) -> None:
        """Record a success."""
        self._count = 0

    def calm(self, now_ms: int, calm_ms: int) -> None:
        """Record a success if the last failure was `calm_ms` ago or earlier."""
        if now_ms - self._last_ms >= calm_ms:
            self._count = 0

    def now(self, now_ms: int) -> OngoingFailure | None:
        """The ongoing failure; None if the operation has not failed since its last success."""
        if not self._count:
            return None
        seconds = (now_ms - self._first_ms) / 1000
        return OngoingFailure(self._error, self._count, seconds, self._is_refused)

"""Repeated failures: since when, how often, and whether they may be temporary. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

TWICE: Final = 2
"""A single failure may already be resolved; a second one shows that it is not."""


class OngoingFailure(NamedTuple):
    """Something that has not succeeded since its first failure."""

    error: str
    times: int
    seconds: float
    is_refused: bool = True
    """Whether an operator has to intervene; otherwise it may be temporary."""

    def lasts(self, limit_ms: int) -> bool:
        """Whether it occurred twice, and is permanent or has lasted for `limit_ms`."""
        return self.times >= TWICE and (self.is_refused or self.seconds * 1000 >= limit_ms)


class OngoingFailures:
    """Failures of one kind since the last success. Times are of one clock."""

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
        """Count it as a success if there was no failure for `calm_ms`."""
        if now_ms - self._last_ms >= calm_ms:
            self._count = 0

    def now(self, now_ms: int) -> OngoingFailure | None:
        """The present failure; None if there was none since the last success."""
        if not self._count:
            return None
        seconds = (now_ms - self._first_ms) / 1000
        return OngoingFailure(self._error, self._count, seconds, self._is_refused)

"""What fails again and again: since when, how often, and whether it passes by itself. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

TWICE: Final = 2
"""Once may be dealt with. What comes again was not."""


class Failing(NamedTuple):
    """Something that has not succeeded since it failed first."""

    error: str
    """The latest."""
    times: int
    seconds: float
    """Since the first one."""
    is_refused: bool = True
    """Whether it goes on until an operator does something about it; else it may pass."""

    def lasts(self, limit_ms: int) -> bool:
        """Whether it is more than a moment's trouble, for which `limit_ms` are allowed."""
        return self.times >= TWICE and (self.is_refused or self.seconds * 1000 >= limit_ms)


class Failures:
    """Failures of one kind, counted from success to success.

    Times are milliseconds of one clock.
    """

    def __init__(self) -> None:
        self.total = 0
        """All that there ever were."""
        self._error = ""
        self._count = 0
        self._first_ms = 0
        self._last_ms = 0
        self._is_refused = False

    def failed(self, error: BaseException, now_ms: int, *, is_refused: bool = True) -> None:
        """It failed once more."""
        if not self._count:
            self._first_ms = now_ms
        self.total += 1
        self._count += 1
        self._last_ms = now_ms
        self._error = str(error) or repr(error)
        self._is_refused = is_refused

    def succeeded(self) -> None:
        """It works."""
        self._count = 0

    def calm(self, now_ms: int, calm_ms: int) -> None:
        """It has not failed now; for so long, that is as good as a success."""
        if now_ms - self._last_ms >= calm_ms:
            self._count = 0

    def now(self, now_ms: int) -> Failing | None:
        """Returns how it fails now, None if it has not failed since it last succeeded."""
        if not self._count:
            return None
        seconds = (now_ms - self._first_ms) / 1000
        return Failing(self._error, self._count, seconds, self._is_refused)

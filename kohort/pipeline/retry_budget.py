"""How long a continuous job tries again when brokers do not answer."""

import threading
import time
from typing import Final

from kohort.insight.errors import ReportedError
from kohort.pipeline.errors import UnavailableError

_PAUSE_S_MAX: Final = 30.0


class RetryBudget:
    """Time for further tries, counted from the last success."""

    def __init__(self, limit_s: float, stopping: threading.Event) -> None:
        """Retry for at most `limit_s`; with 0 no error is retried. Pauses end when `stopping` is
        set.
        """
        self._limit_s = limit_s
        self._stopping = stopping
        self._last_good_s = time.monotonic()

    def renew(self) -> None:
        """Start again from the full limit: something came."""
        self._last_good_s = time.monotonic()

    def allows(self, error: ReportedError) -> bool:
        """Whether another try can help; does not wait for it."""
        return isinstance(error, UnavailableError) and self._tried_s() < self._limit_s

    def pause(self) -> None:
        """Wait before the next try, longer the longer it has failed."""
        self._stopping.wait(min(_PAUSE_S_MAX, 1 + self._tried_s() / 2))

    def _tried_s(self) -> float:
        return time.monotonic() - self._last_good_s

"""How long a job that goes on for ever tries again when brokers do not answer."""

import threading
import time
from typing import Final

from kohort.pipeline.errors import PipelineError, UnavailableError

_PAUSE_S_MAX: Final = 30.0


class Patience:
    """Counts from the last time that something came."""

    def __init__(self, limit_s: float, stopping: threading.Event) -> None:
        """`limit_s` of 0 is none. Pauses end when `stopping` is set."""
        self._limit_s = limit_s
        self._stopping = stopping
        self._last_good_s = time.monotonic()

    def renew(self) -> None:
        """Something came."""
        self._last_good_s = time.monotonic()

    def bears(self, error: PipelineError) -> bool:
        """Whether another try can help; does not wait for it."""
        return isinstance(error, UnavailableError) and self._tried_s() < self._limit_s

    def pause(self) -> None:
        """Until the next try: the longer, the more often it was tried."""
        self._stopping.wait(min(_PAUSE_S_MAX, 1 + self._tried_s() / 2))

    def _tried_s(self) -> float:
        return time.monotonic() - self._last_good_s

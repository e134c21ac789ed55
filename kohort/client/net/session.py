"""The session of a connection, which ends unless the client reauthenticates (KIP-368).

Time is an argument, in seconds of whichever clock the connection uses.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

RENEW_AT: Final = 0.85
"""Share of the session lifetime after which the connection reauthenticates, with its next request:
between 85 and 95 percent, as in Java."""
RENEW_JITTER: Final = 0.1
"""Spreads the reauthentications of connections that were opened together."""

PAUSE_S: Final = 1.0
"""Brokers reject a second authentication of a connection within a second."""


class Session:
    """The session of one connection; unlimited at first."""

    def __init__(self, fraction: Callable[[], float] = random.random) -> None:
        """`fraction` returns where within the jitter the session is renewed, 0 to 1."""
        self._fraction = fraction
        self._began_s = 0.0
        self._due_s = math.inf
        self._end_s = math.inf

    def begin(self, lifetime_ms: int, now_s: float) -> None:
        """Record a successful authentication; 0: an unlimited session."""
        self._began_s = now_s
        lifetime_s = lifetime_ms / 1000 if lifetime_ms else math.inf
        self._end_s = now_s + lifetime_s
        self._due_s = now_s + lifetime_s * (RENEW_AT + RENEW_JITTER * self._fraction())

    def is_due(self, now_s: float) -> bool:
        """Whether to reauthenticate, before the next request or concurrently with it."""
        return now_s >= self._due_s

    def is_over(self, now_s: float) -> bool:
        """Whether the session has ended: the broker closes the connection at any other request."""
        return now_s >= self._end_s

    def pause_s(self, now_s: float) -> float:
        """How long to wait before reauthenticating, because the last time was too recent."""
        return max(0.0, self._began_s + PAUSE_S - now_s)

    def postpone(self, now_s: float) -> None:
        """Schedule another attempt within the remaining lifetime, because renewing failed."""
        self._due_s = now_s + max(PAUSE_S, (self._end_s - now_s) / 4)

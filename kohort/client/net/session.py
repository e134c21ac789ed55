"""How long a broker lets a connection go on before it wants to know again who is there (KIP-368).

Time is an argument, in seconds of whichever clock the connection uses.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

RENEW_AT: Final = 0.85
"""Share of the session lifetime after which the connection authenticates again, at its next
request: between 85 and 95 percent, as in Java."""
RENEW_JITTER: Final = 0.1
"""Spreads the authentications of connections that were opened together."""

PAUSE_S: Final = 1.0
"""Brokers refuse to authenticate a connection twice within a second."""


class Session:
    """The session of one connection; at first one without an end."""

    def __init__(self, fraction: Callable[[], float] = random.random) -> None:
        """`fraction` returns where in the jitter this connection renews its session, 0 to 1."""
        self._fraction = fraction
        self._began_s = 0.0
        self._due_s = math.inf
        self._end_s = math.inf

    def begin(self, lifetime_ms: int, now_s: float) -> None:
        """Authentication has succeeded; 0 for a session without an end."""
        self._began_s = now_s
        lifetime_s = lifetime_ms / 1000 if lifetime_ms else math.inf
        self._end_s = now_s + lifetime_s
        self._due_s = now_s + lifetime_s * (RENEW_AT + RENEW_JITTER * self._fraction())

    def is_due(self, now_s: float) -> bool:
        """Whether to authenticate again before the next request, or beside it."""
        return now_s >= self._due_s

    def is_over(self, now_s: float) -> bool:
        """Whether the broker would close the connection upon any other request."""
        return now_s >= self._end_s

    def pause_s(self, now_s: float) -> float:
        """How long to wait before authenticating, because the last time was just now."""
        return max(0.0, self._began_s + PAUSE_S - now_s)

    def postpone(self, now_s: float) -> None:
        """Try again after a part of the time that is left: the session cannot be renewed now."""
        self._due_s = now_s + max(PAUSE_S, (self._end_s - now_s) / 4)

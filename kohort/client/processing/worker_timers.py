"""When workers start handlers: in a time slice of each event loop iteration, and when retries are
due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

SLICE_S: Final = 0.005
"""How long workers may start handlers in one event loop iteration."""


class StartSlice:
    """The time slice of the current event loop iteration in which workers may start handlers. All
    workers share it: with a slice each, their handlers could block the loop one after another.
    """

    __slots__ = ("_clock", "_is_renewing", "_on_renewed", "ends_s")

    def __init__(self, clock: Callable[[], float], on_renewed: Callable[[], None]) -> None:
        """`on_renewed` is called in each iteration before its slice begins."""
        self._clock = clock
        self._on_renewed = on_renewed
        self._is_renewing = False
        self.ends_s = 0.0

    def renew_soon(self) -> None:
        """Begin a slice in the next event loop iteration."""
        if not self._is_renewing:
            self._is_renewing = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self._is_renewing = False
        self._on_renewed()
        self.ends_s = self._clock() + SLICE_S


class RetryTimer:
    """Calls back when the next retry, or an incomplete batch, is due."""

    __slots__ = ("_clock", "_handle", "_on_due")

    def __init__(self, clock: Callable[[], float], on_due: Callable[[], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._handle: asyncio.TimerHandle | None = None

    def set(self, due_ms: int | None) -> None:
        """Replace the time at which to call back; None: never."""
        self.cancel()
        if due_ms is not None:
            left_s = max(0, due_ms - int(self._clock() * 1000)) / 1000
            self._handle = asyncio.get_running_loop().call_later(left_s, self._fire)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._on_due()

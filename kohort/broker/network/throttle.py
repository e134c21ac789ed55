"""The time for which one client is held back, because its last answer tells it to wait.

Kafka calls it muting the channel (KIP-219): the client is answered at once and expected to wait by
itself; one that does not is neither read nor served until the time is over.
"""

import asyncio
from collections.abc import Callable

from kohort.broker.network.turns import Turns


class Throttle:
    """Holds one client back, for one time after another."""

    __slots__ = ("_timer", "is_holding")

    def __init__(self) -> None:
        self.is_holding = False
        """The client is held back. Not to be set from outside."""
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, turns: Turns, delay_ms: int, then: Callable[[], None]) -> None:
        """Hold the client back for `delay_ms` from now, then call `then`."""
        self.cancel()
        self.is_holding = True
        self._timer = turns.call_later(delay_ms, lambda: self._end(then))

    def cancel(self) -> None:
        """Hold it back no longer, and call nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self.is_holding = False

    def _end(self, then: Callable[[], None]) -> None:
        self._timer = None
        self.is_holding = False
        then()

"""When clients were last active: a program may keep its connections alive, and do no work.

What counts as activity is for the service to say. It only stores the client id in the connection's
info; the server's periodic rounds through the connections, every second or so, read it there.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.runtime.clock import Clock, SystemClock

CLIENTS_MAX: Final = 10_000
"""The maximum number of clients tracked, the most recent ones."""


class Activity:
    """Clients by client id and host; processes that share both count as one."""

    __slots__ = ("_at_ms", "_clock")

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._at_ms: dict[tuple[str, str], int] = {}
        """Ordered by time, the most recent client last."""

    def note(self, client_id: str, host: str) -> None:
        """Record activity since the last round, or a request of it that is still parked."""
        key = client_id, host
        self._at_ms.pop(key, None)
        if len(self._at_ms) >= CLIENTS_MAX:
            del self._at_ms[next(iter(self._at_ms))]
        self._at_ms[key] = self._clock.monotonic_ms()

    def since_ms(self, client_id: str, host: str) -> int | None:
        """Return for how long at least there was none; None if the client was never seen to be
        active.
        """
        at_ms = self._at_ms.get((client_id, host))
        return None if at_ms is None else max(self._clock.monotonic_ms() - at_ms, 0)

"""When clients were last seen to fetch: a member that heartbeats and does not fetch hangs.

Nothing is done per Fetch but that the connection's info has a name in it; it is looked for in the
rounds that the server makes through its connections anyway, every second or so.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.runtime.clock import Clock, SystemClock

CLIENTS_MAX: Final = 10_000
"""The most that are kept: the ones that were seen last."""


class LastFetches:
    """Clients by client id and host; processes that share both are one."""

    __slots__ = ("_at_ms", "_clock")

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._at_ms: dict[tuple[str, str], int] = {}
        """The one that was seen last comes last."""

    def note(self, client_id: str, host: str) -> None:
        """A Fetch has come since the last round, or one waits for its answer."""
        key = client_id, host
        self._at_ms.pop(key, None)
        if len(self._at_ms) >= CLIENTS_MAX:
            del self._at_ms[next(iter(self._at_ms))]
        self._at_ms[key] = self._clock.monotonic_ms()

    def since_ms(self, client_id: str, host: str) -> int | None:
        """How long there was no Fetch at least; None if the client was never seen to fetch."""
        at_ms = self._at_ms.get((client_id, host))
        return None if at_ms is None else max(self._clock.monotonic_ms() - at_ms, 0)

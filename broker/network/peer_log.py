"""Log lines about peers, which peers must not be able to multiply.

Each kind of line may be written a few times per interval; the next line that passes says how many
were left out.
"""

import logging

from broker.clock import Clock

INTERVAL_MS = 10_000
LINES_PER_INTERVAL = 10
"""Per kind. Kinds are named in our code, so there are few."""


class PeerLog:
    """A logger with a ration for each kind of line."""

    __slots__ = ("_clock", "_interval_ends_ms", "_left_out", "_logger", "_written")

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._written: dict[str, int] = {}
        self._left_out: dict[str, int] = {}
        self._interval_ends_ms: dict[str, int] = {}

    def note(self, kind: str, text: str, *args: object) -> None:
        """Write `text % args`, if lines of this `kind` are not too many already."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._interval_ends_ms.get(kind, 0):
            self._interval_ends_ms[kind] = now_ms + INTERVAL_MS
            self._written[kind] = 0
        if self._written[kind] >= LINES_PER_INTERVAL:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._written[kind] += 1
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            text, args = f"{text} (and %d more like it)", (*args, left_out)
        self._logger.warning(text, *args)

"""Rate-limited logging about peers, so that peers cannot flood the log.

Each kind of line is written at most a few times per interval; the next line after that reports the
number of suppressed lines. Text from a peer is escaped, so it cannot break a line or control a
terminal.
"""

import logging
from typing import Final

from kohort.broker.runtime.clock import Clock
from kohort.formats.text import shown

INTERVAL_MS = 10_000
LINES_PER_INTERVAL = 10
"""Maximum lines of each kind per interval. Kinds are constants in the code, so there are few."""

SAME_PEER_MS: Final = 600_000
"""The time after which a line of `note_once` may be written again for the same peer."""

PEERS_REMEMBERED: Final = 1_000
"""Maximum number of peers that `note_once` remembers; it forgets all before adding one more."""


class PeerLog:
    """A logger with a rate limit for each kind of line."""

    def __init__(
        self, logger: logging.Logger, clock: Clock, lines_per_interval: int = LINES_PER_INTERVAL
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._lines_per_interval = lines_per_interval
        self._written: dict[str, int] = {}
        self._suppressed: dict[str, int] = {}
        self._interval_ends_ms: dict[str, int] = {}
        self._logged_ms: dict[tuple[str, str], int] = {}

    def note(self, kind: str, text: str, *args: object) -> None:
        """Log a warning `text % args`, unless there were too many of this `kind`."""
        self._write(logging.WARNING, kind, text, args)

    def note_once(self, kind: str, peer: str, text: str, *args: object) -> None:
        """Log a warning like `note`, but once per peer: for events that a client repeats."""
        now_ms = self._clock.monotonic_ms()
        logged_ms = self._logged_ms.get((kind, peer))
        if logged_ms is not None and now_ms - logged_ms < SAME_PEER_MS:
            return
        if len(self._logged_ms) >= PEERS_REMEMBERED:
            self._logged_ms.clear()
        self._logged_ms[kind, peer] = now_ms
        self._write(logging.WARNING, kind, text, args)

    def inform(self, kind: str, text: str, *args: object) -> None:
        """Log like `note`, but at info level."""
        self._write(logging.INFO, kind, text, args)

    def mention(self, kind: str, text: str, *args: object) -> None:
        """Log like `note`, but at debug level: helps to debug clients, irrelevant to operators."""
        if self._logger.isEnabledFor(logging.DEBUG):
            self._write(logging.DEBUG, kind, text, args)

    def fault(self, kind: str, text: str, *args: object, error: Exception | None = None) -> None:
        """Log an error like `note`: an internal error that a peer can cause repeatedly.

        Args:
            error: if given, it is logged with its traceback.
        """
        self._write(logging.ERROR, kind, text, args, error)

    def _write(
        self,
        level: int,
        kind: str,
        text: str,
        args: tuple[object, ...],
        error: Exception | None = None,
    ) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._interval_ends_ms.get(kind, 0):
            self._interval_ends_ms[kind] = now_ms + INTERVAL_MS
            self._written[kind] = 0
        if self._written[kind] >= self._lines_per_interval:
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return
        self._written[kind] += 1
        suppressed = self._suppressed.pop(kind, 0)
        if suppressed:
            text, args = f"{text} (and %d more like it)", (*args, suppressed)
        self._logger.log(level, text, *map(_shown, args), exc_info=error)


def _shown(value: object) -> object:
    """Escape control characters in text that may come from a peer."""
    return shown(str(value)) if isinstance(value, str | Exception) else value

"""Rate-limited logging about peers, so that peers cannot flood the log.

Each kind of line may be written a few times per interval; the next line after that says how many
were suppressed. Whatever a peer calls itself or asks for, a line is one line, and a terminal shows
it as it is.
"""

import logging
from typing import Final

from kohort.broker.runtime.clock import Clock
from kohort.formats.text import shown

INTERVAL_MS = 10_000
LINES_PER_INTERVAL = 10
"""Per kind. Kinds are constants in the code, so there are few."""

SAME_PEER_MS: Final = 600_000
"""The time after which a once-per-peer line is written again."""

PEERS_REMEMBERED: Final = 1_000
"""How many peers are remembered; beyond that all are forgotten."""


class PeerLog:
    """A logger with a rate limit for each kind of line."""

    __slots__ = ("_clock", "_interval_ends_ms", "_left_out", "_logger", "_said_ms", "_written")

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._written: dict[str, int] = {}
        self._left_out: dict[str, int] = {}
        self._interval_ends_ms: dict[str, int] = {}
        self._said_ms: dict[tuple[str, str], int] = {}

    def note(self, kind: str, text: str, *args: object) -> None:
        """Log a warning `text % args`, unless there were too many of this `kind`."""
        self._write(logging.WARNING, kind, text, args)

    def note_once(self, kind: str, peer: str, text: str, *args: object) -> None:
        """Log a warning as `note` does, but once per peer: for things that a client repeats."""
        now_ms = self._clock.monotonic_ms()
        said_ms = self._said_ms.get((kind, peer))
        if said_ms is not None and now_ms - said_ms < SAME_PEER_MS:
            return
        if len(self._said_ms) >= PEERS_REMEMBERED:
            self._said_ms.clear()
        self._said_ms[kind, peer] = now_ms
        self._write(logging.WARNING, kind, text, args)

    def mention(self, kind: str, text: str, *args: object) -> None:
        """Log as `note` does, but at debug level: for debugging clients, nothing that concerns an
        operator.
        """
        if self._logger.isEnabledFor(logging.DEBUG):
            self._write(logging.DEBUG, kind, text, args)

    def fault(self, kind: str, text: str, *args: object, error: Exception | None = None) -> None:
        """Log an error as `note` does: an internal error that a peer can cause repeatedly.

        Args:
            error: logged with its traceback.
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
        if self._written[kind] >= LINES_PER_INTERVAL:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._written[kind] += 1
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            text, args = f"{text} (and %d more like it)", (*args, left_out)
        self._logger.log(level, text, *map(_shown, args), exc_info=error)


def _shown(value: object) -> object:
    """Return what a peer may have written without line breaks and the like."""
    return shown(str(value)) if isinstance(value, str | Exception) else value

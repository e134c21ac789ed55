"""Log lines about peers, which peers must not be able to multiply.

Each kind of line may be written a few times per interval; the next line that passes says how many
were left out.
"""

import logging
from typing import Final

from kohort.broker.runtime.clock import Clock

INTERVAL_MS = 10_000
LINES_PER_INTERVAL = 10
"""Per kind. Kinds are named in our code, so there are few."""

SAME_PEER_MS: Final = 600_000
"""What is said once of a peer is said again after this time."""

PEERS_REMEMBERED: Final = 1_000
"""Peers of which something was said; when there are more, all may be spoken of again."""


class PeerLog:
    """A logger with a ration for each kind of line."""

    __slots__ = ("_clock", "_interval_ends_ms", "_left_out", "_logger", "_said_ms", "_written")

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._written: dict[str, int] = {}
        self._left_out: dict[str, int] = {}
        self._interval_ends_ms: dict[str, int] = {}
        self._said_ms: dict[tuple[str, str], int] = {}

    def note(self, kind: str, text: str, *args: object) -> None:
        """Write `text % args`, if lines of this `kind` are not too many already."""
        self._write(logging.WARNING, kind, text, args)

    def note_once(self, kind: str, peer: str, text: str, *args: object) -> None:
        """Write like `note`, but once for each peer: what a client does again and again when it is
        told.
        """
        now_ms = self._clock.monotonic_ms()
        said_ms = self._said_ms.get((kind, peer))
        if said_ms is not None and now_ms - said_ms < SAME_PEER_MS:
            return
        if len(self._said_ms) >= PEERS_REMEMBERED:
            self._said_ms.clear()
        self._said_ms[kind, peer] = now_ms
        self._write(logging.WARNING, kind, text, args)

    def mention(self, kind: str, text: str, *args: object) -> None:
        """Write like `note`, for debugging clients: nothing is wrong with what an operator
        runs.
        """
        if self._logger.isEnabledFor(logging.DEBUG):
            self._write(logging.DEBUG, kind, text, args)

    def fault(self, kind: str, text: str, *args: object, error: Exception | None = None) -> None:
        """Write, like `note`, of a fault of ours that a peer may bring about as often as it likes.

        Args:
            error: whose traceback is written with it.
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
        self._logger.log(level, text, *args, exc_info=error)

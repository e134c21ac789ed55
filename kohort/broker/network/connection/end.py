"""The end of one connection: decided here, and brought about by the connection.

Promises: the first reason for an end is the one that is counted; a change that is not legal is made
by nothing; whatever a client does or leaves undone, its connection ends within a time limit.

The ways in which a connection ends, and what is sent of the answers that are not with the client
yet. Each may follow those above it as well as be the first, except where the table says otherwise;
the loss of the transport may come before and after any of them, and ends all.

=====================  =========================================================================
Way                    What it does, and what is still sent
=====================  =========================================================================
`eof_received`         The client sends nothing more. The state stays OPEN until the transport is
                       closed, in this turn or a later one (`departures`): what arrived before is
                       executed as far as a turn goes. What was written until then is sent.
                       After the goodbye of TLS it stays OPEN, too, but TLS takes no more answers.
`stop`                 OPEN only, else nothing. STOPPING while a request is under way, whose answer
                       is the last one sent; then, and at once if there is none, `_close`.
`_close`               OPEN or STOPPING, else nothing. CLOSING; all that was written is sent, files
                       as well, for `LINGER_MS`: then `check` calls `abort_because`.
                       Before a client is authenticated, a bad frame closes the transport later, and
                       it is not read meanwhile.
`end_by`               An error. `_close` for a bad frame, and for what the service raises to close,
                       after that one's own answer; for a fault of ours `abort_because`.
`tls_failed`           OPEN or STOPPING, else nothing. CLOSING; TLS closes the transport after its
                       alert. Answers that are not encrypted yet are not sent.
`abort_because`        Any but LOST, where it does nothing; after another way the first reason
                       stays. CLOSING; answers are handed to the transport, which drops what the
                       kernel does not take at once; what lies in files is broken off.
`abort`,               `abort_because` of the broker's end, of a client that does not take its
`close_slow_reader`,   answers, and of one whose request arrives slowly, while others wait for the
`_close_slow_upload`   memory.
`pause`, then `drop`   REFUSED and held only: its data is not read, and it is closed later; one that
                       is not held is closed at once. Nothing is sent, and the host, which does not
                       count it, takes no other way.
=====================  =========================================================================
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from kohort.broker.network.connection.limits import FRAME_PROGRESS_BYTES, NetworkLimits
from kohort.broker.network.service import FramePart
from kohort.broker.network.timeouts import (
    LINGER_MS,
    CloseReason,
)


class ConnectionState(Enum):
    """A connection is open from when it is made."""

    OPEN = "open"
    """Requests are read and executed.

    Ways out: Refused when it is not admitted, before anything else; Stopping when the broker stops;
    Closing when either side breaks a rule or a limit; Lost when the client goes.
    """
    STOPPING = "stopping"
    """The broker stops: the request under way is answered, and no other executed.

    Ways out: Closing when there is none or it is answered; Lost when the client goes.
    """
    CLOSING = "closing"
    """What arrives is ignored, no answer is added; what was written may still be sent.

    Ways out: Lost, within the time that the server's checks allow.
    """
    REFUSED = "refused"
    """The host did not admit it, and is not told of its loss; what arrives is ignored.

    Ways out: Lost, at once or when the host drops it.
    """
    LOST = "lost"
    """The transport is gone. No way out."""

    def __init__(self, text: str) -> None:
        # Plain attributes, because each request asks.
        self.is_closing = text in {"closing", "refused", "lost"}
        """Whether nothing that arrives counts any more."""


LEGAL_NEXT: Final[Mapping[ConnectionState, frozenset[ConnectionState]]] = MappingProxyType(
    {
        ConnectionState.OPEN: frozenset(
            {
                ConnectionState.REFUSED,
                ConnectionState.STOPPING,
                ConnectionState.CLOSING,
                ConnectionState.LOST,
            }
        ),
        ConnectionState.STOPPING: frozenset({ConnectionState.CLOSING, ConnectionState.LOST}),
        ConnectionState.CLOSING: frozenset({ConnectionState.LOST}),
        ConnectionState.REFUSED: frozenset({ConnectionState.LOST}),
        ConnectionState.LOST: frozenset(),
    }
)
"""The states to which each state may change."""


_OPEN: Final = ConnectionState.OPEN
_STOPPING: Final = ConnectionState.STOPPING
_CLOSING: Final = ConnectionState.CLOSING
_REFUSED: Final = ConnectionState.REFUSED
_LOST: Final = ConnectionState.LOST


class ConnectionEnd:
    """State of one connection, why it is closed, and its time limits, from what successive checks
    observe.
    """

    __slots__ = (
        "_closing_since_ms",
        "_progress",
        "_quiet_since_ms",
        "_unsent_seen_bytes",
        "is_active",
        "reason",
        "state",
    )

    def __init__(self) -> None:
        self.state = _OPEN
        """The state that it has. Not to be set from outside."""
        self.reason = CloseReason.CLIENT
        """The reason for which it is closed, or would be if its transport were lost now."""
        self.is_active = True
        """Set when bytes arrive."""
        self._quiet_since_ms: int | None = None
        self._progress = Progress()
        self._unsent_seen_bytes = 0
        self._closing_since_ms: int | None = None

    def refuse(self) -> None:
        """Note that it is not admitted."""
        self._become(_REFUSED)

    def stop(self) -> bool:
        """The broker stops; False if that changes nothing."""
        if self.state is not _OPEN:
            return False
        self._become(_STOPPING)
        return True

    def begin(self, reason: CloseReason) -> bool:
        """Begin to close it; False if something else has."""
        if self.state.is_closing:
            return False
        self._become(_CLOSING)
        self.reason = reason
        return True

    def lose(self) -> bool:
        """The transport is gone; whether the connection was admitted."""
        was_admitted = self.state is not _REFUSED
        self._become(_LOST)
        return was_admitted

    def check(
        self,
        now_ms: int,
        limits: NetworkLimits,
        *,
        unsent_bytes: int,
        part: FramePart | None,
        is_waiting_for_us: bool,
    ) -> CloseReason | None:
        """Return the limit that is exceeded, if any. `part` is the frame that the client should
        continue.
        """
        if self.state.is_closing:
            if self._closing_since_ms is None:
                self._closing_since_ms = now_ms
            is_over = now_ms - self._closing_since_ms >= LINGER_MS
            return CloseReason.SLOW_READER if is_over else None
        if self._is_idle(now_ms, limits, unsent_bytes, is_waiting_for_us=is_waiting_for_us):
            return CloseReason.IDLE
        stuck_ms = self._progress.stuck_ms(now_ms, part, FRAME_PROGRESS_BYTES)
        if part is not None and stuck_ms >= limits.kohort_frame_timeout_ms:
            return CloseReason.FRAME_TIMEOUT
        return None

    def _is_idle(
        self, now_ms: int, limits: NetworkLimits, unsent_bytes: int, *, is_waiting_for_us: bool
    ) -> bool:
        has_moved = self.is_active or unsent_bytes != self._unsent_seen_bytes
        self.is_active = False
        self._unsent_seen_bytes = unsent_bytes
        if has_moved or is_waiting_for_us or self._quiet_since_ms is None:
            self._quiet_since_ms = now_ms
            return False
        return 0 <= limits.connections_max_idle_ms <= now_ms - self._quiet_since_ms

    def _become(self, state: ConnectionState) -> None:
        assert state in LEGAL_NEXT[self.state], (self.state, state)
        self.state = state


class Progress:
    """Progress of an incomplete frame, in steps of `enough_bytes`."""

    __slots__ = ("_part", "_since_ms")

    def __init__(self) -> None:
        self._part: FramePart | None = None
        self._since_ms = 0

    def stuck_ms(self, now_ms: int, part: FramePart | None, enough_bytes: int) -> int:
        """Return for how long it has not advanced by `enough_bytes`."""
        seen = self._part
        if (
            part is not None
            and seen is not None
            and part.number == seen.number
            and part.filled_bytes - seen.filled_bytes < enough_bytes
        ):
            return now_ms - self._since_ms
        self._part = part
        self._since_ms = now_ms
        return 0

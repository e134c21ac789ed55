"""State of one connection, the reason for closing it, and its time limits.

Decides when a connection ends; the connection carries it out. Guarantees: the first reason for
closing is counted; illegal transitions are impossible; a connection ends within a time limit,
whatever the client does.

How a connection ends, and which responses are still sent. One way may be followed by another
further down, unless the table says otherwise. The transport may be lost at any time, which
completes any of them.

=====================  =========================================================================
Way                    Effect, and responses that are sent
=====================  =========================================================================
`eof_received`         The client has closed its side. The state stays OPEN until the transport is
                       closed in this iteration or a later one (`DisconnectQueue`); until then,
                       received requests are executed and their responses are sent. After TLS's
                       close_notify the state stays OPEN as well, but TLS sends no more responses.
`stop`                 OPEN only. STOPPING while a request is executed, whose response is the last;
                       then, or immediately if there is none, `_close`.
`_close`               OPEN or STOPPING only. CLOSING. All written responses are sent, including
                       those from files, within `LINGER_MS`; after that `check` aborts. After a bad
                       frame of an unauthenticated client the transport is closed with a delay,
                       and not read until then.
`fail`                 An error. `_close` for a bad frame, and for `CloseConnection` of the service,
                       after its response; `abort` for an internal error.
`tls_failed`           OPEN or STOPPING only. CLOSING. TLS closes the transport after its alert.
                       Responses that are not encrypted yet are not sent.
`abort`                Any but LOST. CLOSING; an earlier reason for closing is kept. Responses are
                       passed to the transport, which drops what the kernel does not accept
                       immediately; responses from files are cut off.
`pause`, then `drop`   REFUSED only, if the refusal is delayed: the connection is not read, and is
                       closed later. Otherwise it is closed immediately. Nothing is sent. The host
                       does not count such a connection.
=====================  =========================================================================
"""

from enum import IntEnum
from typing import Final

from kohort.broker.network.connection.limits import FRAME_PROGRESS_BYTES, NetworkLimits
from kohort.broker.network.service import FramePart
from kohort.broker.network.timeouts import LINGER_MS, CloseReason


class ConnectionState(IntEnum):
    """The state of a connection; OPEN at first. A connection passes through the states in this
    order, and may skip some; only an OPEN connection becomes REFUSED.

    The state does not show whether the client is authenticated, whether the socket is being read,
    or whether a request is parked.
    """

    OPEN = 0
    """Requests are read and executed."""
    STOPPING = 1
    """The broker stops: the current request is answered, and no other is executed."""
    CLOSING = 2
    """The connection is closing, for a `CloseReason`. Received data is ignored, and no response is
    added; written responses may still be sent, within the time limit of the periodic checks."""
    REFUSED = 3
    """The host did not admit the connection and does not count it; received data is ignored. The
    connection is dropped immediately or later."""
    LOST = 4
    """The transport has reported the loss of the connection."""

    def __init__(self, number: int) -> None:
        # A plain attribute, because it is read for every request.
        self.is_closing = number >= 2
        """Whether received data is ignored."""


_OPEN: Final = ConnectionState.OPEN
_STOPPING: Final = ConnectionState.STOPPING
_CLOSING: Final = ConnectionState.CLOSING
_REFUSED: Final = ConnectionState.REFUSED
_LOST: Final = ConnectionState.LOST


class ConnectionEnd:
    """State, close reason and time limits of one connection; `check` applies the limits."""

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
        """The current state; only this class changes it."""
        self.reason = CloseReason.CLIENT
        """The reason for closing the connection; CLIENT unless the broker closes it."""
        self.is_active = True
        """Whether bytes have arrived since the last check."""
        self._quiet_since_ms: int | None = None
        """Time of the last check that found activity; None before the first check."""
        self._progress = Progress()
        self._unsent_seen_bytes = 0
        """Unsent bytes at the last check."""
        self._closing_since_ms: int | None = None
        """Time of the first check in a closing state."""

    def refuse(self) -> None:
        """Record that the connection is not admitted."""
        assert self.state is _OPEN
        self._become(_REFUSED)

    def stop(self) -> bool:
        """Record that the broker stops; return False if that changes nothing."""
        if self.state is not _OPEN:
            return False
        self._become(_STOPPING)
        return True

    def begin(self, reason: CloseReason) -> bool:
        """Start closing the connection; return False if it is closing already."""
        if self.state.is_closing:
            return False
        self._become(_CLOSING)
        self.reason = reason
        return True

    def lose(self) -> bool:
        """Record the loss of the transport; return whether the connection had been admitted."""
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
        """Return the reason to close the connection if a time limit is exceeded, else None.

        Args:
            unsent_bytes: response bytes that the client has not received.
            part: the incomplete frame that the client has to continue.
            is_waiting_for_us: whether the client has to wait for the broker.
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
        assert state > self.state, (self.state, state)
        self.state = state


class Progress:
    """Progress of an incomplete frame, in steps of a minimum size."""

    __slots__ = ("_part", "_since_ms")

    def __init__(self) -> None:
        self._part: FramePart | None = None
        """The incomplete frame as it was when it last advanced by a step."""
        self._since_ms = 0
        """Time at which `_part` was set."""

    def stuck_ms(self, now_ms: int, part: FramePart | None, step_bytes: int) -> int:
        """Return the time since the frame last advanced by `step_bytes`."""
        last = self._part
        if (
            part is not None
            and last is not None
            and part.number == last.number
            and part.filled_bytes - last.filled_bytes < step_bytes
        ):
            return now_ms - self._since_ms
        self._part = part
        self._since_ms = now_ms
        return 0

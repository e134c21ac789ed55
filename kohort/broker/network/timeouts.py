"""Time limits for clients: between requests, within a request, and for receiving responses.

The server checks every connection periodically; nothing here runs per request, and the limits are
accurate to one such interval.
"""

from enum import StrEnum

from kohort.broker.network.frames import FramePart
from kohort.broker.network.limits import FRAME_PROGRESS_BYTES, NetworkLimits

SHORT_PROGRESS_MS = 5_000
"""The time in which an incomplete frame must advance by an eighth while others wait for memory, so
that it is complete or aborted within forty seconds, whatever its size."""

SHORT_PROGRESS_PART = 8

LINGER_MS = 5_000
"""How long a connection that the broker closes may take to receive what was written to it."""


class CloseReason(StrEnum):
    """Why a connection was closed, as named in the metrics."""

    CLIENT = "client"
    """The client closed it, or the network failed."""
    BAD_FRAME = "bad_frame"
    """The size field is invalid."""
    BAD_REQUEST = "bad_request"
    """Unknown api or version, undecodable, or answerable only by closing."""
    IDLE = "idle"
    FRAME_TIMEOUT = "frame_timeout"
    SLOW_READER = "slow_reader"
    SLOW_UPLOAD = "slow_upload"
    """Others waited for the memory of a request that arrives slowly; see `shortage`."""
    TLS = "tls"
    """The client violates TLS, or has no trusted certificate."""
    AUTHENTICATION = "authentication"
    """Authentication failed, or the user was disabled since."""
    AUTHENTICATION_TIMEOUT = "authentication_timeout"
    """TLS and SASL were not completed in time."""
    UNAUTHENTICATED_LIMIT = "unauthenticated_limit"
    """The connection had to make room for others before TLS and SASL were completed."""
    SHUTDOWN = "shutdown"
    FAULT = "fault"
    """An internal exception."""

    @property
    def is_the_clients_fault(self) -> bool:
        return self in {
            CloseReason.FRAME_TIMEOUT,
            CloseReason.SLOW_READER,
            CloseReason.SLOW_UPLOAD,
            CloseReason.AUTHENTICATION_TIMEOUT,
        }

    @property
    def text(self) -> str:
        return _TEXTS.get(self, str(self))


_TEXTS = {
    CloseReason.AUTHENTICATION_TIMEOUT: "TLS and SASL were not over in time",
    CloseReason.FRAME_TIMEOUT: "a request that was begun is not completed",
    CloseReason.SLOW_UPLOAD: "a request arrives too slowly, and others need the memory",
    CloseReason.SLOW_READER: "its responses are not taken, and others need the memory",
}


class ServingTime:
    """Time that counts against clients: delays of the checks themselves do not.

    While the process is stopped or its loop is blocked, data from clients waits in the kernel
    unnoticed.
    """

    __slots__ = ("_due_ms", "_lost_ms")

    def __init__(self) -> None:
        self._due_ms: int | None = None
        self._lost_ms = 0

    def plan(self, due_ms: int) -> None:
        """Set when the next check is due."""
        self._due_ms = due_ms

    def resume(self, now_ms: int) -> None:
        """Subtract the delay of the check that begins now."""
        if self._due_ms is not None:
            self._lost_ms += max(0, now_ms - self._due_ms)
            self._due_ms = None

    def at(self, now_ms: int) -> int:
        """Return the serving time at `now_ms`."""
        return now_ms - self._lost_ms


class _Progress:
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


class ConnectionTimeouts:
    """Checks the time limits of one connection, from what successive checks observe."""

    __slots__ = (
        "_closing_since_ms",
        "_progress",
        "_progress_when_short",
        "_quiet_since_ms",
        "_unsent_seen_bytes",
        "is_active",
    )

    def __init__(self) -> None:
        self.is_active = True
        """Set when bytes arrive."""
        self._quiet_since_ms: int | None = None
        self._progress = _Progress()
        self._progress_when_short: _Progress | None = None
        self._unsent_seen_bytes = 0
        self._closing_since_ms: int | None = None

    def check(
        self,
        now_ms: int,
        limits: NetworkLimits,
        *,
        unsent_bytes: int,
        part: FramePart | None,
        is_waiting_for_us: bool,
        is_memory_short: bool,
        is_closing: bool,
    ) -> CloseReason | None:
        """Return the limit that is exceeded, if any. `part` is the frame that the client should
        continue.
        """
        if is_closing:
            if self._closing_since_ms is None:
                self._closing_since_ms = now_ms
            is_over = now_ms - self._closing_since_ms >= LINGER_MS
            return CloseReason.SLOW_READER if is_over else None
        if self._is_idle(now_ms, limits, unsent_bytes, is_waiting_for_us=is_waiting_for_us):
            return CloseReason.IDLE
        stuck_ms = self._progress.stuck_ms(now_ms, part, FRAME_PROGRESS_BYTES)
        if part is not None and stuck_ms >= limits.kohort_frame_timeout_ms:
            return CloseReason.FRAME_TIMEOUT
        if not is_memory_short or part is None:
            self._progress_when_short = None
        elif self._is_late_when_short(now_ms, part):
            return CloseReason.SLOW_UPLOAD
        return None

    def _is_late_when_short(self, now_ms: int, part: FramePart) -> bool:
        """Whether the frame has not advanced by an eighth in time while memory is short."""
        if self._progress_when_short is None:
            self._progress_when_short = _Progress()
        enough_bytes = part.size_bytes // SHORT_PROGRESS_PART or FRAME_PROGRESS_BYTES
        stuck_ms = self._progress_when_short.stuck_ms(now_ms, part, enough_bytes)
        return stuck_ms >= SHORT_PROGRESS_MS

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

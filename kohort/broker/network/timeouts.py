"""How long a client may keep us waiting: between requests, within one, and in taking its answers.

The server looks at every connection now and then; nothing here runs per request, and the limits are
kept to within one such interval.
"""

from enum import StrEnum

from kohort.broker.network.frames import FramePart
from kohort.broker.network.limits import FRAME_PROGRESS_BYTES, NetworkLimits

SHORT_PROGRESS_MS = 5_000
"""While others wait for memory an unfinished frame must come forward by an eighth in this time: it
is complete or gone in forty seconds, whatever its size."""

SHORT_PROGRESS_PART = 8

LINGER_MS = 5_000
"""How long a connection that we close may take to read what was written to it."""


class CloseReason(StrEnum):
    """Why a connection ended, as the metrics name it."""

    CLIENT = "client"
    """The client closed it, or the network did."""
    BAD_FRAME = "bad_frame"
    """The size field is not one."""
    BAD_REQUEST = "bad_request"
    """Unknown api or version, undecodable, or only to be answered by closing."""
    IDLE = "idle"
    FRAME_TIMEOUT = "frame_timeout"
    SLOW_READER = "slow_reader"
    SLOW_UPLOAD = "slow_upload"
    """Others waited for the memory of a request that arrives slowly; see `shortage`."""
    TLS = "tls"
    """The client does not speak TLS as it should, or shows no certificate that is trusted."""
    AUTHENTICATION = "authentication"
    """It has not proved who it is."""
    AUTHENTICATION_TIMEOUT = "authentication_timeout"
    """TLS and SASL were not over in time."""
    UNAUTHENTICATED_LIMIT = "unauthenticated_limit"
    """It had to make room for others before TLS and SASL were over."""
    SHUTDOWN = "shutdown"
    FAULT = "fault"
    """An exception of ours."""

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
    """Time as far as it counts against clients: what a look at them comes late is our delay.

    While the process is stopped or its loop is held up, what clients send waits in the kernel, and
    nothing says that it is there.
    """

    __slots__ = ("_due_ms", "_lost_ms")

    def __init__(self) -> None:
        self._due_ms: int | None = None
        self._lost_ms = 0

    def plan(self, due_ms: int) -> None:
        """The next look is to be at this time."""
        self._due_ms = due_ms

    def resume(self, now_ms: int) -> None:
        """The look that was planned begins."""
        if self._due_ms is not None:
            self._lost_ms += max(0, now_ms - self._due_ms)
            self._due_ms = None

    def at(self, now_ms: int) -> int:
        """How much of it there has been."""
        return now_ms - self._lost_ms


class _Progress:
    """How an unfinished frame comes forward, in steps of enough bytes."""

    __slots__ = ("_part", "_since_ms")

    def __init__(self) -> None:
        self._part: FramePart | None = None
        self._since_ms = 0

    def stuck_ms(self, now_ms: int, part: FramePart | None, enough_bytes: int) -> int:
        """For how long it has not come forward by so much."""
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
    """Whether one connection has exceeded a time limit, judged by what the last looks saw of it."""

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
        """Has it been too long? `part` is the frame that the client should go on with."""
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
        """Has an eighth not come in the time for it, since memory is short?"""
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

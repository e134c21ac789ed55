"""How long a client may keep us waiting: between requests, within one, and in taking its answers.

The server looks at every connection now and then; nothing here runs per request, and the limits are
kept to within one such interval.
"""

from enum import StrEnum

from broker.network.frames import FramePart
from broker.network.limits import FRAME_PROGRESS_BYTES, NetworkLimits

FRAME_TIMEOUT_WHEN_SHORT_MS = 5_000
"""Patience with an unfinished frame while others wait for memory."""

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
    SHUTDOWN = "shutdown"
    FAULT = "fault"
    """An exception of ours."""

    @property
    def is_the_clients_fault(self) -> bool:
        return self in {CloseReason.FRAME_TIMEOUT, CloseReason.SLOW_READER}

    @property
    def text(self) -> str:
        return _TEXTS.get(self, str(self))


_TEXTS = {
    CloseReason.FRAME_TIMEOUT: "a request that was begun is not completed",
    CloseReason.SLOW_READER: "its responses are not taken, and others need the memory",
}


class Patience:
    """What was seen of one connection at the last look."""

    __slots__ = (
        "_closing_since_ms",
        "_part_seen",
        "_part_since_ms",
        "_quiet_since_ms",
        "_unsent_seen_bytes",
        "is_active",
    )

    def __init__(self) -> None:
        self.is_active = True
        """Set when bytes arrive."""
        self._quiet_since_ms: int | None = None
        self._part_seen: FramePart | None = None
        self._part_since_ms = 0
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
        timeout_ms = limits.kohort_frame_timeout_ms
        if is_memory_short:
            timeout_ms = min(timeout_ms, FRAME_TIMEOUT_WHEN_SHORT_MS)
        if self._is_stuck(now_ms, timeout_ms, part):
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

    def _is_stuck(self, now_ms: int, timeout_ms: int, part: FramePart | None) -> bool:
        seen = self._part_seen
        if (
            part is not None
            and seen is not None
            and part.number == seen.number
            and part.filled_bytes - seen.filled_bytes < FRAME_PROGRESS_BYTES
        ):
            return now_ms - self._part_since_ms >= timeout_ms
        self._part_seen = part
        self._part_since_ms = now_ms
        return False

"""Time limits for clients: between requests, within a request, and for receiving responses.

The server checks every connection periodically; nothing here runs per request, and the limits are
accurate to one such interval. What they come to for one connection is `connection_end`'s.
"""

from enum import StrEnum

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
    """Others waited for the memory of a request that arrives slowly; see `memory`."""
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

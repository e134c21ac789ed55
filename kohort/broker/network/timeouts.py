"""Reasons for closing connections, and the clock for the time limits of clients.

The server checks every connection periodically. No code of this module runs per request, and time
limits are accurate to one interval of the checks. `connection.end` applies them to a connection.
"""

from enum import StrEnum

LINGER_MS = 5_000
"""Time that a client has to receive the remaining responses when the broker closes its
connection."""


class CloseReason(StrEnum):
    """Why a connection was closed, as named in the metrics."""

    CLIENT = "client"
    """The client closed the connection, or the network failed."""
    BAD_FRAME = "bad_frame"
    """The size field is invalid."""
    BAD_REQUEST = "bad_request"
    """A request whose API or version is unknown, or that cannot be decoded or answered."""
    IDLE = "idle"
    FRAME_TIMEOUT = "frame_timeout"
    SLOW_READER = "slow_reader"
    SLOW_UPLOAD = "slow_upload"
    """Other requests waited for the memory of a request that arrives slowly; see `memory`."""
    TLS = "tls"
    """The client violates TLS, or has no trusted certificate."""
    AUTHENTICATION = "authentication"
    """Authentication failed, or the user was disabled after it succeeded."""
    AUTHENTICATION_TIMEOUT = "authentication_timeout"
    """TLS and SASL were not completed in time."""
    UNAUTHENTICATED_LIMIT = "unauthenticated_limit"
    """There were too many unauthenticated connections, and this was the oldest of the address
    block with the most."""
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
    CloseReason.AUTHENTICATION_TIMEOUT: "TLS and SASL were not completed in time",
    CloseReason.FRAME_TIMEOUT: "an incomplete request was not continued in time",
    CloseReason.SLOW_UPLOAD: "a request arrived too slowly, and others needed its memory",
    CloseReason.SLOW_READER: "it did not read its responses, and others needed the memory",
}


class ServingTime:
    """A clock for clients' time limits, which stops while the check of the limits is overdue.

    While the process is stopped or its event loop is blocked, data from clients waits unread in the
    kernel.
    """

    __slots__ = ("_due_ms", "_lost_ms")

    def __init__(self) -> None:
        self._due_ms: int | None = None
        self._lost_ms = 0

    def plan(self, due_ms: int) -> None:
        self._due_ms = due_ms

    def resume(self, now_ms: int) -> None:
        """Begin a check of the time limits; its delay does not count against clients."""
        if self._due_ms is not None:
            self._lost_ms += max(0, now_ms - self._due_ms)
            self._due_ms = None

    def at(self, now_ms: int) -> int:
        return now_ms - self._lost_ms

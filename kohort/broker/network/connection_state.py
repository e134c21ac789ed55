"""The states of one connection, and the legal transitions.

What is no state: whether its client is authenticated, whether its socket is read, whether a request
waits for its answer. Each may be either way while the connection is open.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


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

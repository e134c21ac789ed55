"""The states of TLS on one connection, and the legal transitions.

Independent of the state: whether the connection reads plaintext, whether the transport's buffer is
full, whether a handshake step is queued, whether plaintext is being passed on.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class TlsState(Enum):
    """The state of TLS; HANDSHAKING at first, even if the connection is not admitted."""

    HANDSHAKING = "handshaking"
    """Received data is kept for the next step of the handshake, up to a limit.

    Next: OPEN when the handshake is complete; CLOSING when the connection closes or is refused;
    ENDED when the handshake fails or the connection is aborted; LOST when the client disconnects.
    """
    OPEN = "open"
    """Received data is decrypted, written data is encrypted.

    Next: CLOSING when either side sends close_notify; ENDED when the client violates TLS or the
    connection is aborted; LOST when the client disconnects.
    """
    CLOSING = "closing"
    """Received data is ignored, and nothing more can be written; written data is encrypted as the
    transport accepts it.

    Next: ENDED when all of it is encrypted, or after a failure or an abort; LOST when the client
    disconnects.
    """
    ENDED = "ended"
    """Data is neither decrypted nor encrypted; the transport is closing.

    Next: LOST, when the transport has sent its buffer.
    """
    LOST = "lost"
    """The transport is gone. Final."""

    def __init__(self, text: str) -> None:
        # Plain attributes, because they are read for every read and write.
        self.is_closing = text in {"closing", "ended", "lost"}
        """Whether received data is ignored, and nothing can be written."""
        self.is_ended = text in {"ended", "lost"}
        """Whether nothing is encrypted."""


LEGAL_NEXT: Final[Mapping[TlsState, frozenset[TlsState]]] = MappingProxyType(
    {
        TlsState.HANDSHAKING: frozenset(
            {TlsState.OPEN, TlsState.CLOSING, TlsState.ENDED, TlsState.LOST}
        ),
        TlsState.OPEN: frozenset({TlsState.CLOSING, TlsState.ENDED, TlsState.LOST}),
        TlsState.CLOSING: frozenset({TlsState.ENDED, TlsState.LOST}),
        TlsState.ENDED: frozenset({TlsState.LOST}),
        TlsState.LOST: frozenset(),
    }
)

"""The states of TLS on one connection, and the legal transitions.

What is no state: whether the connection behind it wants plaintext, whether the transport has too
much to write, whether a step of the handshake is in the queue, whether plaintext is being passed
on. Each may be either way in several states.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class TlsState(Enum):
    """TLS begins with the handshake, also for a connection that is not admitted."""

    HANDSHAKING = "handshaking"
    """What arrives is kept for the next step of the handshake, up to a limit.

    Ways out: Open when the handshake is complete; Closing when the connection closes or is
    refused; Ended when the handshake fails or the connection is aborted; Lost when the client goes.
    """
    OPEN = "open"
    """What arrives is decrypted, what is written encrypted.

    Ways out: Closing when either side says goodbye; Ended when the client violates TLS or the
    connection is aborted; Lost when the client goes.
    """
    CLOSING = "closing"
    """What arrives is ignored, and nothing more can be written; what was written is encrypted as
    far as the transport takes it.

    Ways out: Ended when all of it is encrypted, or by a failure or an abortion; Lost when the
    client goes.
    """
    ENDED = "ended"
    """Data is neither decrypted nor encrypted; the transport is closing.

    Ways out: Lost, when it has sent what it has.
    """
    LOST = "lost"
    """The transport is gone. No way out."""

    def __init__(self, text: str) -> None:
        # Plain attributes, because each read and each write asks.
        self.is_closing = text in {"closing", "ended", "lost"}
        """Whether nothing that arrives counts any more, and nothing can be written."""
        self.is_ended = text in {"ended", "lost"}
        """Whether nothing more is encrypted."""


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
"""The states to which each state may change."""

"""Asks the kernel whether a peer has disconnected, for connections that are not being read.

While reading is paused the end of the stream goes unnoticed; and a client may well pipeline
requests behind one that is parked for minutes, and disconnect.
"""

import asyncio
import socket
import sys
from typing import Final

_STATES_AFTER_THE_PEER: Final = frozenset({7, 8})
"""TCP_CLOSE (the connection was reset) and TCP_CLOSE_WAIT (the peer has sent FIN)."""


def has_peer_left(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer has closed or reset the connection; False if unknown."""
    one = transport.get_extra_info("socket")
    if one is None or sys.platform != "linux":
        return False
    try:
        # The first byte of struct tcp_info is the connection's state.
        (state,) = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        return False
    return state in _STATES_AFTER_THE_PEER

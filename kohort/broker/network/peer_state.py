"""Asks the kernel whether a peer has left, for connections that are not being read.

While reading is paused we do not learn of the end of the stream; and a client may well send
ahead of a request that is parked for minutes, and leave.
"""

import asyncio
import socket
import sys
from typing import Final

_STATES_AFTER_THE_PEER: Final = frozenset({7, 8})
"""TCP_CLOSE (it was reset) and TCP_CLOSE_WAIT (it has sent its end of stream)."""


def has_peer_left(transport: asyncio.BaseTransport) -> bool:
    """Whether the other side has closed or reset the connection; False if that cannot be told."""
    one = transport.get_extra_info("socket")
    if one is None or sys.platform != "linux":
        return False
    try:
        # The first byte of struct tcp_info is the connection's state.
        (state,) = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        return False
    return state in _STATES_AFTER_THE_PEER

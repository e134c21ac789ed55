"""TLS handshakes of the HTTP port, which clients begin before they are connections of it.

asyncio accepts any number of sockets for a server with TLS, and waits for each handshake: clients
that are silent would take the descriptors that logs and other clients need. So sockets are accepted
here as they are, and few handshakes go on at a time.

Promise: at the limit a new handshake replaces the oldest one of the address that has the most, so
that one client keeps others from nothing.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from kohort.broker.core.security.addresses import address_block_of

logger = logging.getLogger(__name__)

HANDSHAKES_MAX: Final = 32
"""Handshakes that go on at a time; a prober's takes milliseconds."""
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Timeout of a handshake, the same as that of a request's head."""
SHUTDOWN_TIMEOUT_S: Final = 2.0
"""Timeout of the TLS shutdown."""

OnConnection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class TlsDoor:
    """Turns accepted sockets into streams."""

    def __init__(self, context: ssl.SSLContext, on_connection: OnConnection) -> None:
        """`on_connection` is called with the streams of each connection."""
        self._context = context
        self._on_connection = on_connection
        self._under_way: dict[asyncio.Task[None], str] = {}
        """Handshakes with the owners of their addresses, oldest first."""
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def handshake_count(self) -> int:
        """The number of handshakes under way."""
        return len(self._under_way)

    def new_protocol(self) -> asyncio.Protocol:
        """The protocol of a socket that is about to be accepted."""
        return _Accepted(self)

    def begin(self, accepted: socket.socket, ip: str) -> None:
        """Begin the handshake on a socket, which this owns from now on."""
        if len(self._under_way) >= HANDSHAKES_MAX:
            self._end_one()
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._shake_hands(accepted), name="https handshake")
        self._under_way[task] = address_block_of(ip)
        task.add_done_callback(partial(self._on_done, accepted))

    async def close(self) -> None:
        """End all handshakes."""
        for task in self._under_way:
            task.cancel()
        ending = {*self._under_way, *self._ending}
        if ending:
            await asyncio.wait(ending)

    async def _shake_hands(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, self._on_connection, loop=loop)
        try:
            await loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except OSError as error:
            # The client does not speak TLS, is gone, or too slow.
            logger.debug("A handshake of the HTTP port failed: %r", error)
            accepted.close()

    def _end_one(self) -> None:
        ((busiest, _),) = Counter(self._under_way.values()).most_common(1)
        oldest = next(task for task, owner in self._under_way.items() if owner == busiest)
        del self._under_way[oldest]
        self._ending.add(oldest)
        oldest.cancel()

    def _on_done(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)
        self._ending.discard(task)
        if task.cancelled():
            # Perhaps before it had begun.
            accepted.close()
        elif (error := task.exception()) is not None:
            accepted.close()
            logger.error("A handshake of the HTTP port failed", exc_info=error)


class _Accepted(asyncio.Protocol):
    """The protocol of an accepted socket until its handshake begins: it reads nothing."""

    def __init__(self, door: TlsDoor) -> None:
        self._door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        own = None if not peer else transport.get_extra_info("socket").dup()
        # It closes its descriptor only, before anything is read.
        cast(asyncio.Transport, transport).abort()
        if own is not None:
            self._door.begin(own, str(peer[0]))

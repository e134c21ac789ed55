"""Limits the TLS handshakes of the HTTP port.

asyncio accepts any number of sockets for a server with TLS, and waits for each handshake. So
clients that send nothing would use up the descriptors that logs and other clients need. Here, plain
sockets are accepted, and only a few handshakes run at a time.

Promise: at the limit, a new handshake replaces the oldest one of the address block with the most,
so that one client cannot block others.
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
"""Maximum number of handshakes at a time; one takes milliseconds."""
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Timeout of a handshake, the same as that of a request's head."""
SHUTDOWN_TIMEOUT_S: Final = 2.0

OnConnection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class TlsHandshakes:
    """Performs the handshakes on accepted sockets and passes on the streams."""

    def __init__(self, context: ssl.SSLContext, on_connection: OnConnection) -> None:
        """`on_connection` is called with the streams of each connection."""
        self._context = context
        self._on_connection = on_connection
        self._running: dict[asyncio.Task[None], str] = {}
        """Running handshakes with the clients' address blocks, oldest first."""
        self._ending: set[asyncio.Task[None]] = set()

    def new_protocol(self) -> asyncio.Protocol:
        """Return the protocol for a socket that is being accepted."""
        return _Accepted(self)

    def begin(self, accepted: socket.socket, ip: str) -> None:
        """Start the handshake on a socket; takes ownership of it."""
        if len(self._running) >= HANDSHAKES_MAX:
            self._cancel_oldest()
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._shake_hands(accepted), name="https handshake")
        self._running[task] = address_block_of(ip)
        task.add_done_callback(partial(self._on_done, accepted))

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        ending = {*self._running, *self._ending}
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
            # The client does not use TLS, has disconnected, or was too slow.
            logger.debug("TLS handshake failed on the HTTP port: %r", error)
            accepted.close()

    def _cancel_oldest(self) -> None:
        ((busiest, _),) = Counter(self._running.values()).most_common(1)
        oldest = next(task for task, block in self._running.items() if block == busiest)
        del self._running[oldest]
        self._ending.add(oldest)
        oldest.cancel()

    def _on_done(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._ending.discard(task)
        if task.cancelled():
            # The task may not have started.
            accepted.close()
        elif (error := task.exception()) is not None:
            accepted.close()
            logger.error("TLS handshake failed on the HTTP port", exc_info=error)


class _Accepted(asyncio.Protocol):
    """Takes the socket from asyncio's transport before anything is read."""

    def __init__(self, handshakes: TlsHandshakes) -> None:
        self._handshakes = handshakes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        own = None if not peer else transport.get_extra_info("socket").dup()
        # Closes only the transport's descriptor; the duplicate stays open.
        cast(asyncio.Transport, transport).abort()
        if own is not None:
            self._handshakes.begin(own, str(peer[0]))

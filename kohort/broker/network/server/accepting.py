"""A listening socket that can pause accepting connections.

During a pause, connections wait in the kernel's queue, up to the backlog. An event loop can stop
accepting only by closing the socket; therefore it gets a duplicate, and the original keeps the
kernel's queue alive.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Delay before another attempt to resume accepting, for example if no file descriptor is free."""


class Acceptor:
    def __init__(
        self,
        bound: socket.socket,
        new_connection: Callable[[], asyncio.BufferedProtocol],
        *,
        backlog: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._bound = bound
        self._new_connection = new_connection
        self._backlog = backlog
        self._server: asyncio.Server | None = None
        self._resumption: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_closed = False

    async def open(self) -> None:
        """Start accepting. Raises OSError."""
        server = await self._loop.create_server(
            self._new_connection, sock=self._bound.dup(), backlog=self._backlog
        )
        if self._is_closed:
            server.close()
        else:
            self._server = server

    def pause(self, time_s: float) -> None:
        """Stop accepting for `time_s` seconds. Not to be called while a connection is accepted."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self._resumption = self._loop.call_later(time_s, self._resume)

    def close(self) -> None:
        self._is_closed = True
        for scheduled in (self._resumption, self._opening):
            if scheduled is not None:
                scheduled.cancel()
        if self._server is not None:
            self._server.close()
        self._bound.close()

    def _resume(self) -> None:
        self._opening = self._loop.create_task(self._open_again())

    async def _open_again(self) -> None:
        try:
            await self.open()
        except OSError as error:
            logger.warning("Cannot accept connections, retrying in %g s: %s", RETRY_S, error)
            self._resumption = self._loop.call_later(RETRY_S, self._resume)

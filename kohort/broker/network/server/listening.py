"""Listening sockets, whose options accepted sockets inherit. Accepting can be paused.

During a pause, connections wait in the kernel's queue, up to the backlog. An event loop can stop
accepting only by closing the socket; so the loop gets a duplicate, and the original keeps the
kernel's queue alive.
"""

import asyncio
import errno
import fcntl
import logging
import os
import resource
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from kohort.broker.network.connection.limits import UNLIMITED

KEEPALIVE_IDLE_S = 120
KEEPALIVE_INTERVAL_S = 30
KEEPALIVE_PROBES = 4
"""With these KEEPALIVE values, a vanished peer is detected in four minutes instead of two hours."""

OTHER_DESCRIPTORS = 64
"""Descriptors for everything but connections and logs: listeners, metrics, databases, the event
loop."""

TABLE_MAX = 16_384
"""Maximum entries, of 8 bytes, that `reserve_descriptors` creates in the kernel's table."""

SENDERS_PART = 8
"""1/SENDERS_PART of the descriptors is reserved for sending files. A connection without such a
descriptor is sent data that was read into memory."""

_NO_SUCH_FAMILY = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def listening_sockets(
    host: str, port: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
) -> list[socket.socket]:
    """Return bound sockets for every address of `host`; they do not listen yet.

    An empty host means every interface. Port 0 uses one free port for all addresses. A buffer size
    of -1 leaves the size to the system. Address families that this machine lacks are omitted.

    Raises:
        OSError: no address could be bound, or the port is in use.
    """
    # Passed as bytes, because a str makes getaddrinfo import the IDNA codec: 2 ms and 1 MiB.
    name = host.encode() if host.isascii() else host
    addresses = socket.getaddrinfo(
        name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, *_, address in dict.fromkeys(addresses):
            address_host, address_port, *rest = address
            wanted = (address_host, address_port or _port(bound), *rest)
            try:
                bound.append(_bind(family, wanted, send_buffer_bytes, receive_buffer_bytes))
            except OSError as error:
                if error.errno not in _NO_SUCH_FAMILY:
                    raise
                missing = error
    except OSError:
        close_all(bound)
        raise
    if not bound:
        raise missing or OSError(errno.EADDRNOTAVAIL, f"{host!r} has no address")
    return bound


def close_all(sockets: Iterable[socket.socket]) -> None:
    for open_socket in sockets:
        open_socket.close()


def raise_descriptor_limit() -> int:
    """Raise this process's limit on open descriptors to the maximum allowed; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def reserve_descriptors(descriptors: int) -> None:
    """Enlarge this process's descriptor table in the kernel, up to `TABLE_MAX`.

    A full table is doubled, which waits until no processor uses the old one: with several threads,
    an accept took 15 to 30 ms.
    """
    size = TABLE_MAX if descriptors == resource.RLIM_INFINITY else min(descriptors, TABLE_MAX)
    with Path(os.devnull).open("rb") as any_file, suppress(OSError):
        os.close(fcntl.fcntl(any_file, fcntl.F_DUPFD, size - 1))


def senders_within(descriptors: int) -> int:
    """Return the number of connections that may have a second descriptor, for sending files."""
    return UNLIMITED if descriptors == resource.RLIM_INFINITY else descriptors // SENDERS_PART


def connections_within(descriptors: int, log_files_max: int) -> int:
    """Return the limit on connections: the descriptors that remain after those reserved for log
    files (at most half of all), for sending files, and for everything else.

    Without this limit, clients that open connections could prevent partitions from being opened.
    """
    if descriptors == resource.RLIM_INFINITY:
        return UNLIMITED
    log_files = min(log_files_max, descriptors // 2)
    others = min(OTHER_DESCRIPTORS, descriptors // 4)
    return descriptors - log_files - others - senders_within(descriptors)


def _port(bound: list[socket.socket]) -> int:
    """Return the port that all addresses share."""
    return int(bound[0].getsockname()[1]) if bound else 0


def _bind(
    family: int,
    address: tuple[str | int | bytes, ...],
    send_buffer_bytes: int,
    receive_buffer_bytes: int,
) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if send_buffer_bytes >= 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if receive_buffer_bytes >= 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
            ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
            ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ):
            # macOS lacks some of these options.
            if hasattr(socket, name):
                bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.setblocking(False)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


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

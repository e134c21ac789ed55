"""Listens on the HTTP port and passes connections to :mod:`kohort.broker.http.connection`.

Promise: a probe gets its answer however many idle connections are open. At the limit, a new
connection replaces the longest idle one; without an idle one, the one whose request has been
arriving for the longest, then the oldest stream, then the one that has been reading its answer for
the longest. One whose page is running comes last, and neither of the last two kinds is closed
within `PROTECTED_S`. Other new connections are told to come later.

Starting is cheap: the HTTP code is imported at the first connection.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from kohort.broker.http.hosts import may_be_called
from kohort.broker.http.messages import (
    AnyPage,
    BadRequestError,
    HttpRequest,
    HttpResponse,
    ResponseOrStream,
)
from kohort.broker.http.tls_door import TlsDoor
from kohort.broker.http.visitors import Guard, StrangerError, StreamOfVisitor, unauthorized
from kohort.broker.network.server.listening import close_all, listening_sockets

if TYPE_CHECKING:
    import ssl

    from kohort.broker.http.connection import HttpConnection, HttpLimits
    from kohort.broker.http.routes import Routes

logger = logging.getLogger(__name__)

OPEN_PAGES: Final = frozenset({"/-/healthy", "/-/ready"})
"""Pages without access checks, under any host name: they answer only yes or no."""

ASKED_AGAIN_S: Final = 60.0
"""Time after which the reader of a stream has to be let in again."""

PROTECTED_S: Final = 1.0
"""Time for which a complete request is protected against new connections."""

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 21\r\n"
    b"Connection: close\r\n\r\ntoo many connections\n"
)


class HttpServer:
    """The HTTP port of one broker. Serves GET and HEAD of its pages."""

    def __init__(
        self,
        pages: Mapping[str, AnyPage],
        limits: "HttpLimits | None" = None,
        *,
        hosts: Collection[str] = (),
        tls: "ssl.SSLContext | None" = None,
    ) -> None:
        """`hosts` are accepted host names, beside those that no one can register; see `hosts`. With
        `tls`, only TLS connections are accepted.
        """
        self._pages = dict(pages)
        self._routes: Routes | None = None
        """Routes of `_pages`; made at the first request."""
        self._limits = limits
        self._hosts = frozenset(name.lower() for name in hosts)
        self._door = None if tls is None else TlsDoor(tls, self._on_connection)
        self._guard: Guard | None = None
        self._ways: tuple[str, ...] = ()
        self._again_s = ASKED_AGAIN_S
        self._servers: list[asyncio.Server] = []
        """One for each address of the host."""
        self._connections: dict[asyncio.Task[None], HttpConnection] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Connections that were replaced; they end in the next turn of the loop."""

    def guard_by(
        self, guard: Guard, ways: tuple[str, ...], *, again_s: float = ASKED_AGAIN_S
    ) -> None:
        """Require authentication from now on, in one of these ways; of who reads a stream, after
        each `again_s` as well.
        """
        self._guard, self._ways, self._again_s = guard, ways, again_s

    def add_pages(self, pages: Mapping[str, AnyPage]) -> None:
        """Add pages by path, also while it runs, for pages that are not there from the start."""
        self._pages.update(pages)
        self._routes = None

    @property
    def port(self) -> int:
        """The port it listens on, for callers that chose any free port."""
        assert self._servers, "not started"
        port: int = self._servers[0].sockets[0].getsockname()[1]
        return port

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    async def start(self, host: str, port: int, *, tries: int = 1) -> None:
        """Listen; an empty host is every interface. Addresses that this machine lacks are left out.

        If `port` is taken, the next ones are tried upward, `tries` ports in all.

        Raises:
            OSError: the address cannot be used, or all of these ports are taken.
        """
        last = port + tries - 1
        while not self._servers:
            try:
                self._servers = await self._listen(host, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or port >= last:
                    raise
                port += 1

    async def _listen(self, host: str, port: int) -> list[asyncio.Server]:
        # Not by asyncio's own look-up of the host: uvloop fails where one of its addresses is
        # missing, as ::1 of "localhost" is in most containers.
        sockets = listening_sockets(host, port)
        servers: list[asyncio.Server] = []
        try:
            for one in sockets:
                servers.append(await self._serve(one))  # noqa: PERF401 - one may fail.
        except OSError:
            for server in servers:
                server.close()
            close_all(sockets[len(servers) :])
            raise
        return servers

    async def _serve(self, listener: socket.socket) -> asyncio.Server:
        if self._door is None:
            return await asyncio.start_server(self._on_connection, sock=listener)
        loop = asyncio.get_running_loop()
        return await loop.create_server(self._door.new_protocol, sock=listener)

    async def close(self) -> None:
        """Stop listening and end every connection."""
        if not self._servers:
            return
        for server in self._servers:
            server.close()
        if self._door is not None:
            await self._door.close()
        self._ending.update(self._connections)
        for connection in self._ending:
            connection.cancel()
        if self._ending:
            await asyncio.wait(self._ending)
        for server in self._servers:
            await server.wait_closed()

    async def _page_of(self, request: HttpRequest) -> ResponseOrStream:
        """Return the answer of the page that a request names."""
        if self._routes is None:
            self._routes = _routes_of(self._pages)
        if request.path not in OPEN_PAGES and not may_be_called(request.host, self._hosts):
            return HttpResponse.error(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this is no name of this broker (Host header); kohort.http.hosts adds one",
            )
        if self._guard is not None and request.path not in OPEN_PAGES:
            try:
                request = request._replace(visitor=await self._guard(request))
            except StrangerError:
                return unauthorized(self._ways)
        told = await self._told_by_page(request, self._routes)
        if isinstance(told, HttpResponse) or request.visitor is None:
            return told
        return StreamOfVisitor(told, self._asking_again(request))

    async def _told_by_page(self, request: HttpRequest, routes: "Routes") -> ResponseOrStream:
        try:
            found = routes.find(request.path)
            if found is None:
                paths = " ".join(sorted(self._pages))
                return HttpResponse.error(HTTPStatus.NOT_FOUND, f"no such page; there are {paths}")
            if request.method not in {"GET", "HEAD"}:
                return HttpResponse.error(
                    HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD only", ("Allow", "GET, HEAD")
                )
            page, values = found
            return await page(request._replace(path_values=values) if values else request)
        except BadRequestError as error:
            return HttpResponse.error(HTTPStatus.BAD_REQUEST, str(error))

    def _asking_again(self, request: HttpRequest) -> Callable[[], Awaitable[bool]]:
        """Return a function that tells whether the sender of a request would still be let in: a
        password may be changed, a user disabled, a token end.
        """
        time = asyncio.get_running_loop().time
        asked_s = time()

        async def is_let_in() -> bool:
            nonlocal asked_s
            if self._guard is None or time() - asked_s < self._again_s:
                return True
            try:
                await self._guard(request)
            except StrangerError:
                return False
            asked_s = time()
            return True

        return is_let_in

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Importing h11 takes ten milliseconds, which the start of a broker need not wait for.
        from kohort.broker.http.connection import HttpConnection, HttpLimits  # noqa: PLC0415

        limits = self._limits or HttpLimits()
        if len(self._connections) >= limits.connections_max and not self._make_room():
            writer.write(_BUSY)
            writer.close()
            return
        connection = HttpConnection(reader, writer, self._page_of, limits)
        task = asyncio.get_running_loop().create_task(connection.serve(), name="http connection")
        self._connections[task] = connection
        task.add_done_callback(self._on_connection_done)

    def _make_room(self) -> bool:
        """End the least important connection; return False if all are protected."""
        from kohort.broker.http.connection import Phase  # noqa: PLC0415 - as above.

        task, connection = min(
            self._connections.items(), key=lambda item: (item[1].phase, item[1].since_s)
        )
        age_s = asyncio.get_running_loop().time() - connection.since_s
        if connection.phase >= Phase.WRITING and age_s < PROTECTED_S:
            return False
        del self._connections[task]
        self._ending.add(task)
        task.cancel()
        return True

    def _on_connection_done(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task, None)
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("an HTTP connection ended", exc_info=error)


def _routes_of(pages: Mapping[str, AnyPage]) -> "Routes":
    # Percent-decoding needs urllib, which the start of a broker need not import either.
    from kohort.broker.http.routes import Routes  # noqa: PLC0415

    return Routes(pages)

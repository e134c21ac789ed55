"""Listens on the HTTP port and passes connections to :mod:`kohort.broker.http.connection`.

Guarantee: a probe gets its response however many idle connections are open. At the limit, a new
connection replaces another: the longest idle connection; if none is idle, the connection whose
request has been arriving for the longest; then the oldest stream; then the connection whose client
has been reading its response for the longest; finally one whose page is being computed. In the
first `PROTECTED_S` of computing or sending a page, its connection is not replaced. If no connection
can be replaced, the new connection gets a 503 response.

Starting is cheap: the HTTP code is imported at the first connection.

With TLS, plain sockets are accepted, and only a few handshakes run at a time: asyncio accepts any
number of sockets for a server with TLS, and waits for each handshake, so clients that send nothing
would use up the descriptors that logs and other clients need.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from kohort.broker.core.security.addresses import address_block_of
from kohort.broker.http.messages import (
    AnyPage,
    BadRequestError,
    HttpRequest,
    HttpResponse,
    ResponseOrStream,
)
from kohort.broker.http.requesters import (
    AuthorizedStream,
    Guard,
    UnauthenticatedError,
    unauthorized,
)
from kohort.broker.network.server.listening import close_all, listening_sockets

if TYPE_CHECKING:
    from kohort.broker.http.connection import HttpConnection, HttpLimits
    from kohort.broker.http.routes import Routes

logger = logging.getLogger(__name__)

HANDSHAKES_MAX: Final = 32
"""Maximum number of handshakes at a time; one takes milliseconds."""
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Timeout of a TLS handshake; a request's head has the same timeout."""
SHUTDOWN_TIMEOUT_S: Final = 2.0

_UNREGISTRABLE: Final = (".localhost", ".local", ".internal", ".svc", ".test")
"""Suffixes of names that cannot be registered."""

OnConnection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class TlsHandshakes:
    """Performs the handshakes on accepted sockets, and passes the streams to a callback."""

    def __init__(self, context: ssl.SSLContext, on_connection: OnConnection) -> None:
        """`on_connection` is called with the streams of each connection."""
        self._context = context
        self._on_connection = on_connection
        self._running: dict[asyncio.Task[None], str] = {}
        """Running handshakes, oldest first, and the address blocks of their clients."""
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
            # A task that was cancelled before it started has not closed the socket.
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


OPEN_PAGES: Final = frozenset({"/-/healthy", "/-/ready"})
"""Pages without authentication and Host check: they reveal only the broker's health."""

REAUTHENTICATION_S: Final = 60.0
"""Interval at which the client of a stream is authenticated again."""

PROTECTED_S: Final = 1.0
"""A connection that began to compute or send a response within this time is not replaced."""

AbsentPage: TypeAlias = Callable[[HttpRequest], HttpResponse | None]
"""Returns the response to a request for an unknown path; None for status 404."""

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 21\r\n"
    b"Connection: close\r\n\r\ntoo many connections\n"
)


class HttpServer:
    """The HTTP port of one broker. Serves GET and HEAD, and POST of pages that accept it."""

    def __init__(
        self,
        pages: Mapping[str, AnyPage],
        limits: "HttpLimits | None" = None,
        *,
        absent: AbsentPage = lambda _: None,
        hosts: Collection[str] = (),
        hosts_setting: str = "kohort.http.hosts",
        tls: "ssl.SSLContext | None" = None,
    ) -> None:
        """`hosts` are accepted in the Host header, besides IP addresses and names such as localhost
        that nobody can register in DNS; see `may_be_called`.
        `hosts_setting` names the setting of `hosts` in error messages. `absent` answers requests
        for unknown paths. With `tls`, only TLS connections are accepted.
        """
        self._pages = dict(pages)
        self._routes: Routes | None = None
        """Routes of `_pages`; made at the first request."""
        self._limits = limits
        self._absent = absent
        self._hosts_setting = hosts_setting
        self._hosts = frozenset(name.lower() for name in hosts)
        self._handshakes = None if tls is None else TlsHandshakes(tls, self._on_connection)
        self._guard: Guard | None = None
        self._schemes: tuple[str, ...] = ()
        self._again_s = REAUTHENTICATION_S
        self._servers: list[asyncio.Server] = []
        """One server for each address of the host."""
        self._connections: dict[asyncio.Task[None], HttpConnection] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Connections that were replaced; they end in the next event loop iteration."""

    def guard_by(
        self, guard: Guard, schemes: tuple[str, ...], *, again_s: float = REAUTHENTICATION_S
    ) -> None:
        """Require authentication with one of `schemes` from now on; clients of streams are
        authenticated again every `again_s` seconds.
        """
        self._guard, self._schemes, self._again_s = guard, schemes, again_s

    def add_pages(self, pages: Mapping[str, AnyPage]) -> None:
        """Add pages by path. The server may be running already."""
        self._pages.update(pages)
        self._routes = None

    @property
    def port(self) -> int:
        """The port that the server listens on, even if port 0 was requested."""
        assert self._servers, "not started"
        port: int = self._servers[0].sockets[0].getsockname()[1]
        return port

    @property
    def is_open(self) -> bool:
        return bool(self._servers)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def start(self, host: str, port: int, *, tries: int = 1) -> None:
        """Listen; an empty host means every interface. Addresses that do not exist are skipped.

        If `port` is taken, the ports after it are tried in order, `tries` ports in all.

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
        # Not with asyncio's own lookup of the host: uvloop fails if one of its addresses is
        # missing, as ::1 of "localhost" is in most containers.
        sockets = listening_sockets(host, port)
        servers: list[asyncio.Server] = []
        try:
            for listener in sockets:
                servers.append(await self._serve(listener))  # noqa: PERF401 - one may fail.
        except OSError:
            for server in servers:
                server.close()
            close_all(sockets[len(servers) :])
            raise
        return servers

    async def _serve(self, listener: socket.socket) -> asyncio.Server:
        if self._handshakes is None:
            return await asyncio.start_server(self._on_connection, sock=listener)
        loop = asyncio.get_running_loop()
        return await loop.create_server(self._handshakes.new_protocol, sock=listener)

    async def close(self) -> None:
        if not self._servers:
            return
        for server in self._servers:
            server.close()
        if self._handshakes is not None:
            await self._handshakes.close()
        self._ending.update(self._connections)
        for connection in self._ending:
            connection.cancel()
        if self._ending:
            await asyncio.wait(self._ending)
        for server in self._servers:
            await server.wait_closed()

    async def _page_of(self, request: HttpRequest) -> ResponseOrStream:
        # Percent-decoding needs urllib, whose import would delay the broker's start.
        from kohort.broker.http.routes import Routes  # noqa: PLC0415

        if self._routes is None:
            self._routes = Routes(self._pages)
        if request.path not in OPEN_PAGES and not may_be_called(request.host, self._hosts):
            return HttpResponse.error(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"unknown host name in the Host header; {self._hosts_setting} allows more names",
            )
        if self._guard is not None and request.path not in OPEN_PAGES:
            try:
                request = request._replace(requester=await self._guard(request))
            except UnauthenticatedError:
                return unauthorized(self._schemes)
        response = await self._page_response(request, self._routes)
        if isinstance(response, HttpResponse) or request.requester is None:
            return response
        return AuthorizedStream(response, self._reauthentication(request))

    async def _page_response(self, request: HttpRequest, routes: "Routes") -> ResponseOrStream:
        try:
            is_read = request.method in {"GET", "HEAD"}
            # The page for POST to a path is registered as "POST /path".
            route = routes.find(request.path if is_read else f"{request.method} {request.path}")
            if route is None and not is_read and routes.find(request.path) is not None:
                return HttpResponse.error(
                    HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD only", ("Allow", "GET, HEAD")
                )
            if route is None:
                if (response := self._absent(request)) is not None:
                    return response
                paths = " ".join(sorted(self._pages))
                return HttpResponse.error(
                    HTTPStatus.NOT_FOUND, f"no such page; the pages are {paths}"
                )
            page, values = route
            return await page(request._replace(path_values=values) if values else request)
        except BadRequestError as error:
            return HttpResponse.error(HTTPStatus.BAD_REQUEST, str(error))

    def _reauthentication(self, request: HttpRequest) -> Callable[[], Awaitable[bool]]:
        """Return a function that checks whether the request's credentials are still valid: the
        password may have changed, the user may be disabled, the token may have expired.
        """
        time = asyncio.get_running_loop().time
        checked_s = time()

        async def is_authenticated() -> bool:
            nonlocal checked_s
            if self._guard is None or time() - checked_s < self._again_s:
                return True
            try:
                await self._guard(request)
            except UnauthenticatedError:
                return False
            checked_s = time()
            return True

        return is_authenticated

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Imported here, because importing h11 would delay the broker's start by ten milliseconds.
        from kohort.broker.http.connection import HttpConnection, HttpLimits  # noqa: PLC0415

        limits = self._limits or HttpLimits()
        if len(self._connections) >= limits.connections_max and not self._replace_connection():
            writer.write(_BUSY)
            writer.close()
            return
        connection = HttpConnection(reader, writer, self._page_of, limits)
        task = asyncio.get_running_loop().create_task(connection.serve(), name="http connection")
        self._connections[task] = connection
        task.add_done_callback(self._on_connection_done)

    def _replace_connection(self) -> bool:
        """Cancel the first unprotected connection in the order of replacement; return False if
        there is none.
        """
        from kohort.broker.http.connection import Phase  # noqa: PLC0415 - as above.

        oldest_s = asyncio.get_running_loop().time() - PROTECTED_S
        replaceable = (
            (connection.phase, connection.since_s, task)
            for task, connection in self._connections.items()
            if connection.phase < Phase.WRITING or connection.since_s <= oldest_s
        )
        found = min(replaceable, key=itemgetter(0, 1), default=None)
        if found is None:
            return False
        task = found[-1]
        del self._connections[task]
        self._ending.add(task)
        task.cancel()
        return True

    def _on_connection_done(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task, None)
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("An HTTP connection failed", exc_info=error)


def may_be_called(host: str, known: Collection[str]) -> bool:
    """Whether a Host header is accepted: an address, a name without a dot, a name that cannot be
    registered, or one of `known`. An empty header is accepted, because browsers always send a name.

    This prevents DNS rebinding: the owner of a web page can make its name resolve to this machine,
    so that the page can send requests here; but such requests have that name in the Host header.
    """
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") <= 1:
        name = name.partition(":")[0]
    name = name.removesuffix(".")
    if "." not in name and ":" not in name:
        return True
    if name.endswith(_UNREGISTRABLE) or name in known:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

"""One HTTP connection: reads requests, calls pages, writes responses, until either side closes it.

h11 implements the protocol: it parses strictly, bounds a request's head and knows whether a
connection can be reused. This module adds the socket and the clock. Every wait has a timeout, and
`HttpLimits` bounds the memory that a peer can use.

Requests with a body are rejected: no page accepts one.
"""

import asyncio
import logging
from collections.abc import Iterable
from enum import IntEnum
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

from kohort.broker.http.messages import (
    AnyPage,
    HttpRequest,
    HttpResponse,
    HttpStream,
    ResponseOrStream,
)

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 16 * 1024


class HttpLimits(NamedTuple):
    """Limits for peers of the HTTP port, which serves a few scrapers, probes and browsers."""

    connections_max: int = 32
    """Maximum number of connections; a further one replaces an idle one (see
    `HttpServer`)."""
    head_bytes_max: int = 16 * 1024
    """Maximum size of request line and headers."""
    head_timeout_s: float = 10.0
    """Time from the first byte of a request to the end of its headers, even if they arrive
    steadily."""
    idle_timeout_s: float = 120.0
    """Maximum time between requests; longer than usual scrape intervals, so that scrapers stay
    connected."""
    answer_timeout_s: float = 60.0
    write_timeout_s: float = 30.0
    """Timeout for the peer to read a response."""


class Phase(IntEnum):
    """Phases of a connection, in the order in which connections are closed at the limit."""

    IDLE = 0
    """A connection between requests, or before the first."""
    HEAD = 1
    """A request has begun to arrive."""
    STREAMING = 2
    """A stream is being sent; if it is closed, the client reconnects."""
    WRITING = 3
    """The peer has not read the whole response."""
    ANSWERING = 4
    """A page is computing the response."""


class HttpConnection:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        page_of: AnyPage,
        limits: HttpLimits,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._page_of = page_of
        peer = writer.get_extra_info("peername")
        self._ip = str(peer[0]) if peer else ""
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes_max)
        self._loop = asyncio.get_running_loop()
        self.phase = Phase.IDLE
        self.since_s = self._loop.time()
        """Time at which the phase began."""
        self._is_head = False
        """Whether the request is HEAD, so the response has a Content-Length but no body."""

    async def serve(self) -> None:
        """Serve requests; return when the connection has ended, for any reason."""
        try:
            while await self._serve_request():
                self._http.start_next_cycle()
        except (TimeoutError, ConnectionError, asyncio.CancelledError) as error:
            # Not `close`, which could wait for the client to read a response.
            self._writer.transport.abort()
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._writer.close()

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since_s = self._loop.time()

    async def _serve_request(self) -> bool:
        """Serve one request; return False if the client has disconnected, or this was the last
        request.
        """
        try:
            request = await self._read_request()
        except h11.RemoteProtocolError as error:
            await self._refuse(HTTPStatus(error.error_status_hint), str(error))
            return False
        if request is None:
            return False
        if self._http.their_state not in {h11.DONE, h11.MUST_CLOSE}:
            await self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "requests must not have a body")
            return False
        response = await self._respond(request)
        if not isinstance(response, HttpResponse):
            await self._stream(response)
            return False
        await self._send(response)
        return self._http.our_state is h11.DONE

    async def _read_request(self) -> HttpRequest | None:
        """Return the next request, None if the peer has disconnected.

        Raises:
            h11.RemoteProtocolError: the head is not HTTP/1.1, or too long. TimeoutError: the peer
            sends nothing, or does not complete its headers in time.
        """
        if not self._http.trailing_data[0]:
            self._enter(Phase.IDLE)
            async with asyncio.timeout(self._limits.idle_timeout_s):
                await self._receive()
        self._enter(Phase.HEAD)
        async with asyncio.timeout(self._limits.head_timeout_s):
            while (event := self._http.next_event()) is h11.NEED_DATA:
                await self._receive()
        if not isinstance(event, h11.Request):
            return None
        # Without a body, the next event is the end of the request.
        self._http.next_event()
        self._is_head = event.method == b"HEAD"
        path, _, query = event.target.decode("ascii").partition("?")

        def header(wanted: bytes) -> str:
            values = [value.decode("latin-1") for name, value in event.headers if name == wanted]
            return ",".join(values)

        return HttpRequest(
            event.method.decode("ascii"),
            path,
            query,
            header(b"accept"),
            host=header(b"host"),
            if_none_match=header(b"if-none-match"),
            accept_encoding=header(b"accept-encoding"),
            fetch_site=header(b"sec-fetch-site"),
            confirm=header(b"kohort-confirm"),
            authorization=header(b"authorization"),
            ip=self._ip,
        )

    async def _receive(self) -> None:
        self._http.receive_data(await self._reader.read(_READ_BYTES))

    async def _respond(self, request: HttpRequest) -> ResponseOrStream:
        self._enter(Phase.ANSWERING)
        try:
            async with asyncio.timeout(self._limits.answer_timeout_s):
                return await self._page_of(request)
        except Exception:
            logger.exception("Request failed: %s %s", request.method, request.path)
            return HttpResponse.text(
                HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the broker's log has details"
            )

    async def _refuse(self, status: HTTPStatus, reason: str) -> None:
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            response = HttpResponse.text(status, reason, ("Connection", "close"))
            await self._send(response)

    async def _stream(self, stream: HttpStream) -> None:
        """Send chunks until the stream ends or the client disconnects.

        Raises:
            TimeoutError: the client does not read them in time.
        """
        self._enter(Phase.STREAMING)
        # The client sends nothing more, so any input or end of file ends the stream.
        disconnected = self._loop.create_task(self._reader.read(1), name="http client disconnect")
        disconnected.add_done_callback(lambda _: stream.close())
        try:
            head = _head(HTTPStatus.OK, stream.content_type, None, stream.headers)
            await self._write([self._http.send(head) or b""])
            while (chunk := await stream.wait_chunk()) is not None:
                parts = self._http.send_with_data_passthrough(h11.Data(data=chunk)) or ()
                await self._write(parts)
            await self._write([self._http.send(h11.EndOfMessage()) or b""])
        finally:
            stream.close()
            disconnected.cancel()
            await asyncio.wait([disconnected])

    async def _send(self, response: HttpResponse) -> None:
        self._enter(Phase.WRITING)
        length = sum(len(part) for part in response.body)
        head = _head(response.status, response.content_type, length, response.headers)
        parts = [self._http.send(head) or b""]
        if not self._is_head:
            for part in response.body:
                parts.extend(self._http.send_with_data_passthrough(h11.Data(data=part)) or ())
        self._http.send(h11.EndOfMessage())
        await self._write(parts)

    async def _write(self, parts: Iterable[bytes]) -> None:
        for part in parts:
            # Not writelines: asyncio's in Python 3.12 and 3.13.0 does not apply back-pressure.
            self._writer.write(part)
        async with asyncio.timeout(self._limits.write_timeout_s):
            await self._writer.drain()


def _head(
    status: HTTPStatus, content_type: str, length: int | None, more: Iterable[tuple[str, str]]
) -> h11.Response:
    """Return the head of a response. A `length` of None is for a stream, which is sent in
    chunks.
    """
    length_header = ("Connection", "close") if length is None else ("Content-Length", str(length))
    return h11.Response(
        status_code=status,
        reason=status.phrase.encode(),
        headers=[
            ("Content-Type", content_type),
            length_header,
            ("X-Content-Type-Options", "nosniff"),
            *more,
        ],
    )

"""One HTTP connection: requests in, pages asked, answers out, until either side has enough.

h11 is the protocol: it parses strictly, bounds the head of a request and knows when a connection
can be used again. This shell adds the socket and the clock. Every wait has an end, and what a peer
can make us hold is bounded by `HttpLimits`.

Request bodies are refused: no page takes one.
"""

import asyncio
import logging
from enum import IntEnum
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

from kohort.broker.http.messages import HttpRequest, HttpResponse, Page

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 16 * 1024


class HttpLimits(NamedTuple):
    """What a peer may ask of the HTTP port. Some scrapers and some probes are all it is for."""

    connections_max: int = 32
    """When one more comes, it takes the place of one that does nothing; see `HttpServer`."""
    head_bytes_max: int = 16 * 1024
    """Request line and headers."""
    head_timeout_s: float = 10.0
    """From the first byte of a request to the end of its headers, however steadily they drip."""
    idle_timeout_s: float = 120.0
    """Between requests; longer than any scrape interval in use, so that scrapers can stay."""
    answer_timeout_s: float = 60.0
    """What a page may take."""
    write_timeout_s: float = 30.0
    """What the peer may take to read an answer."""


class Phase(IntEnum):
    """What a connection is at; the lower, the less is lost when it ends now."""

    IDLE = 0
    """Between requests, or before the first."""
    HEAD = 1
    """A request has begun to arrive."""
    WRITING = 2
    """The peer has not taken all of its answer."""
    ANSWERING = 3
    """A page is at work."""


class HttpConnection:
    """Serves one accepted connection and closes it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        page_of: Page,
        limits: HttpLimits,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._page_of = page_of
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes_max)
        self._loop = asyncio.get_running_loop()
        self.phase = Phase.IDLE
        self.since_s = self._loop.time()
        """When the phase began."""
        self._is_head = False
        """An answer to HEAD tells the length of its body and leaves it out."""

    async def serve(self) -> None:
        """Return when the connection is over, for whatever reason."""
        try:
            while await self._serve_request():
                self._http.start_next_cycle()
        except (TimeoutError, ConnectionError, asyncio.CancelledError) as error:
            # Its end may be stuck behind an answer that the client does not read.
            self._writer.transport.abort()
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._writer.close()

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since_s = self._loop.time()

    async def _serve_request(self) -> bool:
        """Answer one request; False if it was the last, or if there was none."""
        try:
            request = await self._read_request()
        except h11.RemoteProtocolError as error:
            await self._refuse(HTTPStatus(error.error_status_hint), str(error))
            return False
        if request is None:
            return False
        if self._http.their_state not in {h11.DONE, h11.MUST_CLOSE}:
            await self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "no page takes a body")
            return False
        await self._send(await self._answer(request))
        return self._http.our_state is h11.DONE

    async def _read_request(self) -> HttpRequest | None:
        """The next request, None if the peer has gone.

        Raises:
            h11.RemoteProtocolError: what came is not HTTP/1.1, or too long.
            TimeoutError: the peer is silent, or does not come to the end of its headers.
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
        # If there is no body this is the end of the request, and h11 moves on to it.
        self._http.next_event()
        self._is_head = event.method == b"HEAD"
        path, _, query = event.target.decode("ascii").partition("?")
        accept = [value.decode("latin-1") for name, value in event.headers if name == b"accept"]
        host = [value.decode("latin-1") for name, value in event.headers if name == b"host"]
        return HttpRequest(
            event.method.decode("ascii"), path, query, ",".join(accept), host=",".join(host)
        )

    async def _receive(self) -> None:
        self._http.receive_data(await self._reader.read(_READ_BYTES))

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        self._enter(Phase.ANSWERING)
        try:
            async with asyncio.timeout(self._limits.answer_timeout_s):
                return await self._page_of(request)
        except Exception:
            logger.exception("%s %s", request.method, request.path)
            return HttpResponse.text(HTTPStatus.INTERNAL_SERVER_ERROR, "see the broker's log")

    async def _refuse(self, status: HTTPStatus, reason: str) -> None:
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            response = HttpResponse.text(status, reason, ("Connection", "close"))
            await self._send(response)

    async def _send(self, response: HttpResponse) -> None:
        self._enter(Phase.WRITING)
        length = sum(len(part) for part in response.body)
        head = h11.Response(
            status_code=response.status,
            reason=response.status.phrase.encode(),
            headers=[
                ("Content-Type", response.content_type),
                ("Content-Length", str(length)),
                ("X-Content-Type-Options", "nosniff"),
                *response.headers,
            ],
        )
        parts = [self._http.send(head) or b""]
        if not self._is_head:
            for part in response.body:
                parts.extend(self._http.send_with_data_passthrough(h11.Data(data=part)) or ())
        self._http.send(h11.EndOfMessage())
        for part in parts:
            # Not writelines: asyncio's of Python 3.12 and 3.13.0 forgets that the peer may be slow.
            self._writer.write(part)
        async with asyncio.timeout(self._limits.write_timeout_s):
            await self._writer.drain()

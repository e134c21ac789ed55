"""A stream lasts as long as its requester may see it, and no longer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.http.messages import HttpRequest, HttpRequester
from kohort.broker.http.requesters import UnauthenticatedError, for_operators
from kohort.broker.http.server import HttpServer
from tests.unit.broker.http.test_server import Letters


class Known:
    """A requester whose rights a test takes away, and whose password it changes."""

    principal = "User:known"

    def __init__(self) -> None:
        self.has_rights = True
        self.password = "Basic right"
        self.asked_count = 0

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        assert (operation, kind, name) == (
            Operation.DESCRIBE,
            ResourceType.CLUSTER,
            "kafka-cluster",
        )
        return self.has_rights

    sees = may

    async def guard(self, request: HttpRequest) -> HttpRequester:
        self.asked_count += 1
        if request.authorization != self.password:
            raise UnauthenticatedError
        return self


class Reader:
    """The client of a stream."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def next(self) -> bytes:
        """The next chunk; empty at the end."""
        size = int(await self._reader.readline(), 16)
        return (await self._reader.readexactly(size + 2))[:-2]


@asynccontextmanager
async def reading(known: Known, letters: Letters, again_s: float) -> AsyncIterator[Reader]:
    async def page(_: HttpRequest) -> Letters:
        return letters

    server = HttpServer({"/stream": for_operators(page)})
    server.guard_by(known.guard, ("basic",), again_s=again_s)
    await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(
            b"GET /stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic right\r\n\r\n"
        )
        await reader.readuntil(b"\r\n\r\n")
        yield Reader(reader)
    finally:
        writer.close()
        await server.close()


async def test_it_ends_when_rights_are_taken() -> None:
    known, letters = Known(), Letters()
    async with reading(known, letters, again_s=3_600) as client:
        letters.letters.put_nowait(b"a")
        assert await client.next() == b"a"
        known.has_rights = False
        letters.letters.put_nowait(b"b")
        assert await client.next() == b""
        assert letters.is_closed
        assert known.asked_count == 1


async def test_it_ends_when_its_visitor_would_not_be_let_in_again() -> None:
    known, letters = Known(), Letters()
    async with reading(known, letters, again_s=0) as client:
        letters.letters.put_nowait(b"a")
        assert await client.next() == b"a"
        assert known.asked_count == 2
        known.password = "Basic another"
        letters.letters.put_nowait(b"b")
        assert await client.next() == b""
        assert letters.is_closed

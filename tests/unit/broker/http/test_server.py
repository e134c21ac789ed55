"""The HTTP port over real sockets: what it answers, and what a peer cannot make it do."""

import asyncio
import errno
import http.client
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus

import pytest
import uvloop

from kohort.broker.http.connection import HttpLimits, Phase
from kohort.broker.http.messages import AnyPage, BadRequestError, HttpRequest, HttpResponse
from kohort.broker.http.server import PROTECTED_S, HttpServer
from tests.support.waiting import until

SECRET = "a secret of the page"


async def _echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse.text(HTTPStatus.OK, f"{request.path}|{request.query}|{request.accept}")


async def _large(_: HttpRequest) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, "text/plain", [b"x" * 1_000_000] * 20)


async def _broken(_: HttpRequest) -> HttpResponse:
    raise RuntimeError(SECRET)


async def _stuck(_: HttpRequest) -> HttpResponse:
    await asyncio.sleep(3600)
    raise AssertionError


async def _named(request: HttpRequest) -> HttpResponse:
    if request.path_values == ("refused",):
        raise BadRequestError("what the page has against it")
    return HttpResponse.text(HTTPStatus.OK, "|".join(request.path_values))


class Letters:
    """A stream of the letters that are given to it."""

    content_type = "text/event-stream"
    headers = (("Cache-Control", "no-store"),)

    def __init__(self) -> None:
        self.letters: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.is_closed = False

    async def wait_chunk(self) -> bytes | None:
        return await self.letters.get()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.letters.put_nowait(None)


STREAMS: list[Letters] = []


async def _stream(_: HttpRequest) -> Letters:
    STREAMS.append(Letters())
    return STREAMS[-1]


PAGES: dict[str, AnyPage] = {
    "/stream": _stream,
    "/named/{first}/{second}": _named,
    "/named/{only}": _named,
    "/echo": _echo,
    "/large": _large,
    "/broken": _broken,
    "/stuck": _stuck,
}


@asynccontextmanager
async def serving(limits: HttpLimits | None = None) -> AsyncIterator[HttpServer]:
    server = HttpServer(PAGES, limits)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()


async def exchange(server: HttpServer, request: bytes) -> bytes:
    """All that the server sends until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(request)
        async with asyncio.timeout(60):
            try:
                return await reader.read()
            except ConnectionResetError:
                return b""
    finally:
        writer.close()


def phases(server: HttpServer) -> list[Phase]:
    return [connection.phase for connection in server._connections.values()]


async def test_a_page_gets_path_query_and_accept_apart() -> None:
    async with serving() as server:
        answer = await exchange(
            server,
            b"GET /echo?a=b HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\nAccept: */*\r\n"
            b"Connection: close\r\n\r\n",
        )
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n/echo|a=b|text/plain,*/*\n")


async def test_a_name_that_somebody_else_could_own_gets_no_page() -> None:
    async with serving() as server:
        for host, status in ((b"evil.example", b"421"), (b"127.0.0.1:9308", b"200")):
            head = b"GET /echo HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"
            assert (await exchange(server, head)).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    ("method", "path", "told"),
    [
        ("GET", "/nothing", "/named/{only}"),
        ("PUT", "/echo", "GET and HEAD"),
        ("GET", "/named/refused", "against it"),
    ],
)
async def test_errors_are_json(method: str, path: str, told: str) -> None:
    async with serving() as server:
        answer = await exchange(server, f"{method} {path} HTTP/1.0\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Type: application/json" in head
    assert told in json.loads(body)["error"]


async def test_a_connection_serves_one_request_after_the_other() -> None:
    def ask_twice() -> list[bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        answers = []
        for query in ("first", "second"):
            connection.request("GET", f"/echo?{query}")
            answers.append(connection.getresponse().read())
        connection.close()
        return answers

    async with serving() as server:
        assert await asyncio.to_thread(ask_twice) == [b"/echo|first|\n", b"/echo|second|\n"]


async def test_a_large_answer_arrives_whole() -> None:
    async with serving() as server:
        answer = await exchange(
            server, b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
    assert len(answer.partition(b"\r\n\r\n")[2]) == 20_000_000


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"GET /named/%ff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400),
        (b"GET /named/%4 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400),
        (b"GET /named/refused HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400),
        (b"GET /named/a\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400),
        (b"GET /named/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"PUT /named/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405),
        (b"DELETE /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 413),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n", 413),
        (b"HEAD /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 413),
        (b"GET /echo HTTP/1.1\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nHost: x\r\nBad Header: y\r\n\r\n", 400),
        (b"\x00\x00\x00\x0e\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 10_000, 431),
    ],
)
async def test_what_is_no_request_for_a_page_is_refused(request_bytes: bytes, status: int) -> None:
    async with serving() as server:
        answer = await exchange(server, request_bytes)
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
        assert (await exchange(server, b"GET /echo HTTP/1.0\r\n\r\n")).endswith(b"/echo||\n")


async def test_a_page_that_fails_answers_500_and_tells_its_reason_to_the_log_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        answer = await exchange(server, b"GET /broken HTTP/1.0\r\n\r\n")
    assert b" 500 " in answer
    assert SECRET.encode() not in answer
    assert SECRET in caplog.text


async def test_a_page_that_never_ends_answers_500_in_time() -> None:
    async with serving(HttpLimits(answer_timeout_s=0.05)) as server:
        assert b" 500 " in await exchange(server, b"GET /stuck HTTP/1.0\r\n\r\n")


async def test_a_request_that_drips_in_is_cut_off_in_time() -> None:
    async with serving(HttpLimits(head_timeout_s=0.2)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        dripped = 0
        async with asyncio.timeout(60):
            while not reader.at_eof():
                writer.write(b"G" if dripped == 0 else b"E")
                dripped += 1
                try:
                    async with asyncio.timeout(0.05):
                        await reader.read(1)
                except TimeoutError:
                    pass
                except ConnectionResetError:
                    # From now on every read raises it at once, and none ever ends the loop.
                    break
        writer.close()
    assert dripped < 50


async def test_a_peer_that_does_not_read_its_answer_is_cut_off_in_time() -> None:
    async with serving(HttpLimits(write_timeout_s=0.1)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1000)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: server.connection_count == 1)
        await until(lambda: server.connection_count == 0)
        writer.transport.abort()
        assert not reader.at_eof()


async def test_connections_beyond_the_limit_are_told_so_and_closed_while_all_pages_work() -> None:
    async with serving(HttpLimits(connections_max=1)) as server:
        _, first = await asyncio.open_connection("127.0.0.1", server.port)
        first.write(b"GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: phases(server) == [Phase.ANSWERING])
        answer = await exchange(server, b"")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert answer.endswith(b"\r\n\r\ntoo many connections\n")
        # No page has to work for so long that a probe may not have its place.
        await asyncio.sleep(PROTECTED_S)
        assert b" 200 " in await exchange(server, b"GET /echo HTTP/1.0\r\n\r\n")
        first.close()


@pytest.mark.parametrize(
    ("sent", "phase"),
    [
        (b"", Phase.IDLE),
        (b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", Phase.IDLE),
        (b"GET /echo HTTP/1.1\r\nHo", Phase.HEAD),
    ],
)
async def test_a_probe_gets_its_answer_beside_more_connections_than_there_may_be(
    sent: bytes, phase: Phase
) -> None:
    limit = 8
    async with serving(HttpLimits(connections_max=limit)) as server:
        others = []
        for _ in range(2 * limit):
            others.append(await asyncio.open_connection("127.0.0.1", server.port))
            others[-1][1].write(sent)
        await until(lambda: phases(server) == [phase] * limit)
        for _ in range(3):
            answer = await exchange(server, b"GET /echo HTTP/1.0\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 ")
        assert server.connection_count < limit
        for _, writer in others:
            writer.transport.abort()


async def test_the_connection_that_is_idle_for_longest_is_closed_first() -> None:
    async with serving(HttpLimits(connections_max=3)) as server:
        opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        opened[0][1].write(b"GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: phases(server) == [Phase.ANSWERING, Phase.IDLE, Phase.IDLE])
        answer = await exchange(server, b"GET /echo HTTP/1.0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert await opened[1][0].read() == b""
        await until(lambda: phases(server) == [Phase.ANSWERING, Phase.IDLE])
        for _, writer in opened:
            writer.transport.abort()


async def test_a_probe_need_not_wait_for_peers_that_do_not_read_their_answers() -> None:
    async with serving(HttpLimits(connections_max=2)) as server:
        opened = [
            await asyncio.open_connection("127.0.0.1", server.port, limit=1000) for _ in range(2)
        ]
        for _, writer in opened:
            writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: phases(server) == [Phase.WRITING] * 2)
        await asyncio.sleep(PROTECTED_S)
        assert b" 200 " in await exchange(server, b"GET /echo HTTP/1.0\r\n\r\n")
        for _, writer in opened:
            writer.transport.abort()


async def test_a_long_request_is_cut_off_while_a_new_response_is_being_sent() -> None:
    async with serving(HttpLimits(connections_max=2)) as server:
        _, stuck = await asyncio.open_connection("127.0.0.1", server.port)
        stuck.write(b"GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: phases(server) == [Phase.ANSWERING])
        await asyncio.sleep(PROTECTED_S)
        _, large = await asyncio.open_connection("127.0.0.1", server.port, limit=1000)
        large.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: phases(server) == [Phase.ANSWERING, Phase.WRITING])
        assert b" 200 " in await exchange(server, b"GET /echo HTTP/1.0\r\n\r\n")
        for writer in (stuck, large):
            writer.transport.abort()


async def test_closing_ends_connections_and_requests_under_way() -> None:
    is_asked = asyncio.Event()

    async def stuck(request: HttpRequest) -> HttpResponse:
        is_asked.set()
        return await _stuck(request)

    server = HttpServer({"/stuck": stuck})
    await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n")
    await is_asked.wait()
    await server.close()
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()


async def test_a_page_that_is_added_later_is_served_from_then_on() -> None:
    async with serving() as server:
        assert b" 404 " in await exchange(server, b"GET /new HTTP/1.0\r\n\r\n")
        server.add_pages({"/new": _echo})
        assert b" 200 " in await exchange(server, b"GET /new HTTP/1.0\r\n\r\n")


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


async def test_a_port_above_is_found_where_the_first_is_taken() -> None:
    with taken_port() as port:
        server = HttpServer(PAGES)
        await server.start("127.0.0.1", port, tries=20)
        assert port < server.port < port + 20
        await server.close()


async def test_no_other_port_is_tried_for_an_address_that_is_not_of_this_machine() -> None:
    with pytest.raises(OSError, match="assign requested address") as raised:
        await HttpServer(PAGES).start("192.0.2.1", 9308, tries=20)
    assert raised.value.errno == errno.EADDRNOTAVAIL


def test_an_address_that_the_machine_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # As "localhost" in a container, whose file of hosts has ::1 where there is no IPv6.
    look_up = socket.getaddrinfo

    def both(host: bytes, port: int, **more: int) -> object:
        names = ["192.0.2.1", "127.0.0.1"] if host == b"both.example" else [host]
        return [found for name in names for found in look_up(name, port, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", both)

    async def ask() -> bytes:
        server = HttpServer(PAGES)
        await server.start("both.example", 0)
        try:
            return await exchange(server, b"GET /echo HTTP/1.0\r\nHost: localhost\r\n\r\n")
        finally:
            await server.close()

    # The loop of a broker, which takes such an address for an error.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert b" 200 " in runner.run(ask())


@asynccontextmanager
async def streaming(
    limits: HttpLimits | None = None,
) -> AsyncIterator[tuple[HttpServer, asyncio.StreamReader, asyncio.StreamWriter, Letters]]:
    """A client that has the head of a stream."""
    async with serving(limits) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-type: text/event-stream" in head.lower()
        assert b"content-length" not in head.lower()
        try:
            yield server, reader, writer, STREAMS[-1]
        finally:
            writer.close()


async def test_a_stream_is_sent_as_it_comes_until_it_ends() -> None:
    async with streaming() as (_, reader, _, stream):
        stream.letters.put_nowait(b"first")
        assert await reader.readuntil(b"first\r\n") == b"5\r\nfirst\r\n"
        stream.letters.put_nowait(b"then")
        assert await reader.readuntil(b"then\r\n") == b"4\r\nthen\r\n"
        stream.close()
        assert await reader.read() == b"0\r\n\r\n"


async def test_a_stream_whose_client_goes_is_closed_although_there_is_nothing_to_send() -> None:
    async with streaming() as (server, _, writer, stream):
        writer.close()
        await until(lambda: stream.is_closed and not server.connection_count)


async def test_a_stream_whose_client_says_something_more_is_closed() -> None:
    async with streaming() as (_, reader, writer, stream):
        writer.write(b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n")
        assert await reader.read() == b"0\r\n\r\n"
        assert stream.is_closed


async def test_a_stream_that_is_not_read_ends_and_holds_one_chunk() -> None:
    limits = HttpLimits(write_timeout_s=0.05)
    async with streaming(limits) as (server, _, _, stream):
        for _ in range(100):
            stream.letters.put_nowait(b"x" * 1_000_000)
        await until(lambda: not server.connection_count)
        assert stream.is_closed
        # What was not asked for is still here, but for what the sockets hold.
        assert stream.letters.qsize() > 80


async def test_a_stream_makes_room_for_a_request_before_one_that_is_answered_does() -> None:
    async with streaming(HttpLimits(connections_max=1)) as (server, _, _, stream):
        assert phases(server) == [Phase.STREAMING]
        assert b"/echo" in await exchange(
            server, b"GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        )
        await until(lambda: stream.is_closed)

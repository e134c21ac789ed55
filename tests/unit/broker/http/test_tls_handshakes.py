"""The HTTP port with TLS: silent clients take few descriptors, and keep no one out."""

import asyncio
import http.client
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kohort.broker.http.messages import HttpRequest, HttpResponse
from kohort.broker.http.server import HANDSHAKES_MAX, HttpServer
from tests.support.brokers.certificates import Authority
from tests.support.waiting import until

RunAll = Callable[[Coroutine[Any, Any, None]], None]
CROWD = 3 * HANDSHAKES_MAX


async def _page(request: HttpRequest) -> HttpResponse:
    return HttpResponse.text(HTTPStatus.OK, request.ip)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Path:
    return authority.issue("http", "IP:127.0.0.1")


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> RunAll:
    """What brokers run on, and what tests of their users run on."""
    chosen: RunAll = request.param
    return chosen


@asynccontextmanager
async def running(own: Path) -> AsyncIterator[HttpServer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(own)
    server = HttpServer({"/": _page}, tls=context)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()


def silent(server: HttpServer) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    made.setblocking(False)
    return made


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def get(server: HttpServer, authority: Authority) -> str:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    client = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=30, context=context)
    try:
        client.request("GET", "/")
        return client.getresponse().read().decode().strip()
    finally:
        client.close()


def test_silent_clients_make_room_for_one_another(
    run: RunAll, authority: Authority, own: Path
) -> None:
    async def scenario() -> None:
        async with running(own) as server:
            crowd = [silent(server) for _ in range(CROWD)]
            await until(lambda: sum(map(is_closed, crowd)) == CROWD - HANDSHAKES_MAX)
            # As soon as it comes, and all of what it sends at once is read.
            for _ in range(5):
                assert await asyncio.to_thread(get, server, authority) == "127.0.0.1"
            assert server.connection_count <= 1
            for one in crowd:
                one.close()

    run(scenario())


def test_a_crowd_of_one_address_makes_no_other_start_over(
    run: RunAll, authority: Authority, own: Path
) -> None:
    async def scenario() -> None:
        async with running(own) as server:
            other = socket.create_connection(
                ("127.0.0.1", server.port), timeout=30, source_address=("127.0.0.2", 0)
            )
            crowd = [silent(server) for _ in range(CROWD)]
            await until(lambda: is_closed(crowd[0]))
            context = ssl.create_default_context(cafile=str(authority.certificate))
            shaking = asyncio.to_thread(context.wrap_socket, other, server_hostname="127.0.0.1")
            with await shaking as secured:
                assert secured.version() is not None
            for one in crowd:
                one.close()

    run(scenario())


def test_the_end_of_the_server_ends_handshakes(run: RunAll, own: Path) -> None:
    async def scenario() -> None:
        async with running(own) as server:
            one = silent(server)
            nonsense = silent(server)
            nonsense.send(b"GET / HTTP/1.1\r\n\r\n")

            def has_alert() -> bool:
                try:
                    return nonsense.recv(100) is not None
                except BlockingIOError:
                    return False
                except ConnectionResetError:
                    return True

            await until(has_alert)
            assert not is_closed(one)
        await until(lambda: is_closed(one))
        one.close()
        nonsense.close()

    run(scenario())

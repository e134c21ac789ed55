"""Connections that are not used, and what holds up the loop."""

import asyncio
import hashlib
import socket
import ssl
import threading
from typing import Any

import pytest

from kohort import Consumer, errors
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.opening import open_connection
from kohort.client.net.thread_call import run_in_thread
from kohort.protocol.codec import codec
from kohort.protocol.framing import API_VERSIONS_KEY
from tests.support import messages as m
from tests.support.network.memory_transport import MemoryTransport
from tests.support.virtual_time import virtual

VERSIONS = m.ApiVersionsResponse(
    error_code=0,
    api_keys=[
        m.ApiVersion(api_key=API_VERSIONS_KEY, min_version=0, max_version=3),
        m.ApiVersion(api_key=12, min_version=4, max_version=4),
    ],
)
REQUEST = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="me")


class Broker(MemoryTransport):
    """Answers as it is told to."""

    def answer(self, response: object, version: int, correlation_id: int, tags: bytes) -> None:
        body = (
            correlation_id.to_bytes(4, "big")
            + tags
            + codec(type(response), version).encode(response)
        )
        self.send(len(body).to_bytes(4, "big") + body)


async def greeted(max_idle_ms: int) -> tuple[BrokerConnection, Broker]:
    connection = BrokerConnection("broker:1", ConnectionConfig(max_idle_ms=max_idle_ms))
    broker = Broker(connection)
    greeting = asyncio.create_task(connection.greet())
    await asyncio.sleep(0)
    broker.answer(VERSIONS, 3, 1, b"")
    await greeting
    return connection, broker


@virtual
async def test_a_connection_that_is_not_used_is_closed_after_its_time() -> None:
    connection, _ = await greeted(540_000)
    await asyncio.sleep(539)
    was_closed = connection.is_closed
    await asyncio.sleep(2)
    assert (was_closed, connection.is_closed) == (False, True)
    with pytest.raises(DisconnectedError, match="idle for 540 s"):
        connection.send(REQUEST)


@virtual
async def test_a_connection_lives_as_long_as_it_is_used_or_an_answer_is_waited_for() -> None:
    connection, broker = await greeted(10_000)
    await asyncio.sleep(8)
    asked = connection.send(REQUEST)
    # As a join that is parked.
    await asyncio.sleep(60)
    assert not connection.is_closed
    broker.answer(m.HeartbeatResponse(error_code=0), 4, 2, b"\x00")
    await asked
    await asyncio.sleep(8)
    was_closed = connection.is_closed
    await asyncio.sleep(13)
    assert (was_closed, connection.is_closed) == (False, True)


@virtual
async def test_without_a_limit_a_connection_may_rest_for_ever() -> None:
    connection, _ = await greeted(-1)
    await asyncio.sleep(10**6)
    assert not connection.is_closed
    connection.close()
    await connection.wait_closed()


async def test_the_system_looks_after_connections_that_are_silent() -> None:
    made: list[BrokerConnection] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        body = frame[4:8] + codec(m.ApiVersionsResponse, 3).encode(VERSIONS)
        writer.write(len(body).to_bytes(4, "big") + body)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        made.append(await open_connection("127.0.0.1", port, ConnectionConfig()))
        transport = made[0]._transport
        assert transport is not None
        found = transport.get_extra_info("socket")
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        made[0].close()
        await made[0].wait_closed()


async def test_the_loop_goes_on_while_a_thread_works() -> None:
    turns = 0
    is_over = False

    async def turn() -> None:
        nonlocal turns
        while not is_over:
            turns += 1
            await asyncio.sleep(0.001)

    turning = asyncio.create_task(turn())
    salted = await run_in_thread(lambda: hashlib.pbkdf2_hmac("sha512", b"p", b"s", 1 << 17), "hash")
    is_over = True
    await turning
    assert len(salted) == 64
    assert turns > 3


async def test_what_work_aside_raises_is_raised_where_it_is_waited_for() -> None:
    def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_in_thread(work, "fail")


async def test_the_systems_authorities_are_read_once_and_not_on_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers: list[str] = []
    read = ssl.create_default_context

    def noted(*args: Any, **options: Any) -> ssl.SSLContext:  # noqa: ANN401
        readers.append(threading.current_thread().name)
        return read(*args, **options)

    monkeypatch.setattr(ssl, "create_default_context", noted)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        consumer = Consumer(
            bootstrap_servers=f"127.0.0.1:{nobody.getsockname()[1]}",
            group_id="g",
            security_protocol="SSL",
        )
        assert not readers
        with pytest.raises(errors.BrokerUnreachableError):
            await consumer.start()
    assert readers == ["load the system's CAs"]

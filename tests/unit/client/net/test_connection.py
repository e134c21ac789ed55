"""How long a connection waits for an answer, on virtual time; bytes come when the test says so."""

import asyncio
from collections.abc import Iterable
from errno import ECONNREFUSED

import pytest

from kohort.client.net.config import ConnectionConfig
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError, connect_error
from kohort.client.net.security import SecurityConfig
from kohort.client.net.versions import ApiVersionTable
from kohort.protocol.codec import codec
from kohort.protocol.messages.membership import HeartbeatRequest, HeartbeatResponse
from tests.support.virtual_time import virtual

REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Nowhere(asyncio.Transport):
    """What is sent there is lost."""

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None: ...

    def abort(self) -> None: ...


def connected() -> BrokerConnection:
    connection = BrokerConnection("nowhere:1", ConnectionConfig())
    connection.connection_made(Nowhere())
    connection.versions = ApiVersionTable({12: (0, 4)})
    return connection


def answer_frame() -> bytes:
    coder = codec(HeartbeatResponse, 0)
    body = b"".join(coder.encode_into(HeartbeatResponse(error_code=27), bytearray()))
    frame = (1).to_bytes(4, "big") + body
    return len(frame).to_bytes(4, "big") + frame


def arrives(connection: BrokerConnection, data: bytes, *, rounds: int) -> None:
    """The rest of `data`, a byte in every so many rounds of the loop."""

    def receive(left: bytes, wait: int) -> None:
        if wait:
            loop.call_soon(receive, left, wait - 1)
        elif left:
            connection.get_buffer(-1)[:1] = left[:1]
            connection.buffer_updated(1)
            loop.call_soon(receive, left[1:], rounds - 1)

    loop = asyncio.get_running_loop()
    loop.call_soon(receive, data, rounds - 1)


@pytest.mark.parametrize("rounds", [1, 2])
@virtual
async def test_an_answer_that_is_being_received_when_its_time_is_over_is_received_to_its_end(
    rounds: int,
) -> None:
    connection = connected()
    loop = asyncio.get_running_loop()
    loop.call_later(1, lambda: arrives(connection, answer_frame(), rounds=rounds))
    answer = await connection.call(REQUEST, version=0, timeout_ms=1_000)
    assert answer.error_code == 27
    assert not connection.is_closed


@virtual
async def test_a_part_of_an_answer_is_none() -> None:
    connection = connected()
    arrives(connection, answer_frame()[:-1], rounds=1)
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(DisconnectedError, match="no answer to HeartbeatRequest within 1000 ms"):
        await connection.call(REQUEST, version=0, timeout_ms=1_000)
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(1)
    assert connection.is_closed


@virtual
async def test_who_gives_up_waiting_leaves_the_connection_to_the_others() -> None:
    connection = connected()
    calling = asyncio.create_task(connection.call(REQUEST, version=0))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    arrives(connection, answer_frame(), rounds=1)
    await asyncio.sleep(1)
    assert connection.in_flight_count == 0
    assert not connection.is_closed


def test_why_a_broker_cannot_be_reached_is_told_in_words() -> None:
    refused = connect_error("h:1", OSError(ECONNREFUSED, "Connection refused"), SecurityConfig())
    assert str(refused) == "h:1 cannot be reached: Connection refused"
    slow = connect_error("h:1", TimeoutError("timed out"), SecurityConfig())
    assert str(slow) == "h:1 cannot be reached: timed out"

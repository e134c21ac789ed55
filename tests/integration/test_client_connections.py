"""The client's connections against a real broker, and against things that are none."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from kohort.client.core.errors import AuthenticationError, BrokerUnreachableError
from kohort.client.core.partitions import TopicPartition
from kohort.client.net.address import Address
from kohort.client.net.cluster import Cluster, ClusterConfig
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.opening import open_connection
from kohort.client.net.security import SecurityConfig
from kohort.protocol.errors import ErrorCode
from kohort.testing import Kafka
from tests.support import messages as m
from tests.support.brokers.server_process import free_port
from tests.support.network.requests import creation

CONFIG = ConnectionConfig(client_id="tests", request_timeout_ms=60_000)


@pytest.fixture
def broker(kafka_module: Kafka) -> Kafka:
    return kafka_module


def cluster_of(*ports: int) -> Cluster:
    return Cluster(ClusterConfig([Address("127.0.0.1", port) for port in ports], CONFIG))


async def test_requests_that_follow_each_other_are_answered_in_order(broker: Kafka) -> None:
    connection = await open_connection("127.0.0.1", broker.port, CONFIG)
    request = m.HeartbeatRequest(group_id="nobody", generation_id=1, member_id="m")
    answers = await asyncio.gather(
        *(connection.send(request if n % 2 else m.MetadataRequest(topics=[])) for n in range(200))
    )
    assert all(hasattr(answer, "brokers") for answer in answers[::2])
    assert {answer.error_code for answer in answers[1::2]} == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert connection.in_flight_count == 0
    connection.close()
    await connection.wait_closed()


async def test_waiting_calls_are_told_when_the_connection_ends(broker: Kafka) -> None:
    connection = await open_connection("127.0.0.1", broker.port, CONFIG)
    waiting = connection.send(m.MetadataRequest(topics=None))
    connection.close()
    with pytest.raises(DisconnectedError, match="closed by this client"):
        await waiting
    with pytest.raises(DisconnectedError):
        await connection.call(m.MetadataRequest(topics=None))
    await connection.wait_closed()


async def test_the_cluster_is_learnt_from_any_broker_that_answers(broker: Kafka) -> None:
    cluster = cluster_of(free_port(), broker.port)
    connection = await cluster.any_connection()
    await connection.call(creation("three", partitions=3))
    await cluster.refresh(["three", "none"])
    assert cluster.partition_counts(["three", "none"]) == {"three": 3}
    leader = cluster.leader(TopicPartition("three", 2))
    assert leader is not None
    assert cluster.broker(leader.node_id) == Address("127.0.0.1", broker.port)
    assert cluster.leader(TopicPartition("three", 3)) is None
    assert cluster.topics["none"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await cluster.close()


async def test_connections_are_shared_by_purpose_and_made_again_when_they_are_gone(
    broker: Kafka,
) -> None:
    address = Address("127.0.0.1", broker.port)
    cluster = cluster_of(broker.port)
    first, second = await asyncio.gather(cluster.connection(address), cluster.connection(address))
    assert first is second
    assert await cluster.connection(address, "group") is not first
    first.close()
    assert await cluster.connection(address) is not first
    await cluster.close()
    with pytest.raises(DisconnectedError):
        await cluster.connection(address)


async def test_a_cluster_that_cannot_be_reached_says_what_to_check() -> None:
    with pytest.raises(BrokerUnreachableError, match=r"advertised\.listeners"):
        await cluster_of(free_port(), free_port()).refresh(None)


async def test_a_broker_that_does_not_let_us_in_is_not_asked_again_at_once(
    broker: Kafka,
) -> None:
    """It may count failures, and lock the user out."""
    security = SecurityConfig(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="ann",
        sasl_plain_password="word",
    )
    address = Address("127.0.0.1", broker.port)
    config = ConnectionConfig(security=security)
    backoff_ms = 100
    cluster = Cluster(ClusterConfig([address], config, backoff_ms, 8 * backoff_ms))
    began_s = asyncio.get_running_loop().time()
    for _ in range(4):
        with pytest.raises(AuthenticationError):
            await cluster.connection(address)
    took_s = asyncio.get_running_loop().time() - began_s
    # 100, 200 and 400 milliseconds, give or take a fifth.
    assert took_s >= 0.7 * 0.8
    await cluster.close()


Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def _talks_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(10)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()


async def _answers_another(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(10)
    writer.write(b"\x00\x00\x00\x06\x00\x00\x00\x63\x00\x00")
    await reader.read()


async def _hangs_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read(10)


@pytest.mark.parametrize("peer", [_silent, _talks_http, _answers_another, _hangs_up])
async def test_what_is_not_a_kafka_broker_is_an_error_and_not_a_wait(peer: Peer) -> None:
    config = ConnectionConfig(request_timeout_ms=300)
    is_over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await peer(reader, writer)
        writer.transport.abort()
        await asyncio.sleep(0)
        is_over.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(60):
            with pytest.raises(DisconnectedError):
                await open_connection("127.0.0.1", port, config)
            await is_over.wait()


async def test_what_comes_by_any_connection_is_counted_and_stays_so(broker: Kafka) -> None:
    cluster = cluster_of(broker.port)
    address = cluster.addresses[0]
    one, two = [await cluster.connection(address, purpose) for purpose in ("", "other")]
    had = [one.received_bytes, two.received_bytes]
    assert cluster.received_bytes == 0
    for connection in (one, two, one):
        await connection.call(m.MetadataRequest(topics=[]))
    came = one.received_bytes + two.received_bytes - sum(had)
    assert cluster.received_bytes == came > 0
    one.close()
    assert cluster.received_bytes == came
    await cluster.close()

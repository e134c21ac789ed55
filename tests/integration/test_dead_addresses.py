"""Hosts with addresses that swallow what is sent to them, as those of dead machines do."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.heartbeat import FindingKind, HeartbeatRules
from kohort.client.core.group.identity import Identity
from kohort.client.group.heartbeat_thread import HeartbeatThread, _complete
from kohort.client.net.address import Address
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.opening import open_connection
from tests.support.brokers.broker_thread import BrokerThread

HOST = "brokers.test"
DEAD_HOST = "127.0.0.2"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def dead(broker: BrokerThread) -> Iterator[Address]:
    """An address of the broker's port where connections are neither accepted nor refused."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((DEAD_HOST, broker.port))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex((DEAD_HOST, broker.port))
            yield Address(DEAD_HOST, broker.port)
        finally:
            for one in waiting:
                one.close()


@pytest.fixture
def name(dead: Address, monkeypatch: pytest.MonkeyPatch) -> str:
    """A name whose first address is dead, and whose second is the broker's."""
    look_up = socket.getaddrinfo

    def resolve(host: Any, port: Any, *args: Any, **options: Any) -> list[Any]:  # noqa: ANN401
        if host != HOST:
            return look_up(host, port, *args, **options)
        ips = dead.host, "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ips]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return HOST


async def test_the_next_address_of_a_name_is_tried_while_the_first_is_silent(
    broker: BrokerThread, name: str
) -> None:
    began_s = time.monotonic()
    patient = ConnectionConfig(connect_timeout_ms=120_000, request_timeout_ms=120_000)
    connection = await open_connection(name, broker.port, patient)
    connection.close()
    await connection.wait_closed()
    # Neither the connect timeout nor the request timeout is spent on it.
    assert time.monotonic() - began_s < 60


async def test_an_address_that_is_silent_is_given_up_after_the_connect_timeout(
    dead: Address,
) -> None:
    began_s = time.monotonic()
    config = ConnectionConfig(connect_timeout_ms=300)
    with pytest.raises(DisconnectedError, match="no answer"):
        await open_connection(*dead, config)
    assert time.monotonic() - began_s > 0.2


async def test_the_heartbeat_thread_tries_the_next_address_as_well(
    broker: BrokerThread, name: str
) -> None:
    connection = BlockingConnection(
        Address(name, broker.port), ConnectionConfig(connect_timeout_ms=300)
    )
    await asyncio.to_thread(connection.open, 120)
    connection.close()


def test_connecting_ends_when_another_thread_closes(dead: Address) -> None:
    connection = BlockingConnection(dead, ConnectionConfig(connect_timeout_ms=60_000))
    failures: list[Exception] = []

    def connect() -> None:
        try:
            connection.open(60)
        except DisconnectedError as error:
            failures.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    while connection._socket is None:
        time.sleep(0.001)
    connection.close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(failures) == 1


CONFIG = ConnectionConfig(connect_timeout_ms=60_000)


def heartbeats(told: asyncio.Event, session_timeout_ms: int) -> HeartbeatThread:
    settings = MembershipConfig("g", None, session_timeout_ms, 100)
    rules = HeartbeatRules(settings, Backoff(20, 100, lambda: 0.5))
    config = ConsumerConfig(
        group_id="g", session_timeout_ms=session_timeout_ms, heartbeat_interval_ms=100
    )
    return HeartbeatThread(config, rules, loop=asyncio.get_running_loop(), on_findings=told.set)


async def test_a_coordinator_that_is_gone_without_a_word_is_asked_last(
    broker: BrokerThread, dead: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Address] = []
    connect = BlockingConnection.open

    def noted(connection: BlockingConnection, timeout_s: float) -> None:
        tried.append(connection.address)
        connect(connection, timeout_s)

    monkeypatch.setattr(BlockingConnection, "open", noted)
    told = asyncio.Event()
    # Half of it is spent on the answer that does not come.
    thread = heartbeats(told, session_timeout_ms=12_000)
    thread.polled()
    thread.start()
    live = Address("127.0.0.1", broker.port)
    thread.begin(Identity(1, "somebody", "range"), dead, [dead, live])
    kinds: list[FindingKind] = []
    async with asyncio.timeout(120):
        # The living broker does not know this member, and says so.
        while FindingKind.MEMBERSHIP_LOST not in kinds:
            told.clear()
            kinds += [one.kind for one in thread.take_findings()]
            if FindingKind.MEMBERSHIP_LOST not in kinds:
                await told.wait()
    # Once as the coordinator, and not again when another one is looked for.
    assert tried.count(dead) == 1
    assert set(tried[1:]) == {live}
    thread.stop()
    assert await thread.wait_stopped(60)


async def test_what_the_loop_has_found_is_used_by_the_thread(
    broker: BrokerThread, dead: Address
) -> None:
    told = asyncio.Event()
    thread = heartbeats(told, session_timeout_ms=60_000)
    thread.polled()
    thread.start()
    thread.begin(Identity(1, "somebody", "range"), Address("127.0.0.1", 1), [dead])
    kinds: list[FindingKind] = []
    async with asyncio.timeout(120):
        while FindingKind.COORDINATOR_LOST not in kinds:
            await told.wait()
            told.clear()
            kinds += [one.kind for one in thread.take_findings()]
        thread.know_brokers([Address("127.0.0.1", broker.port)])
        thread.coordinator_found(Address("127.0.0.1", broker.port))
        while FindingKind.MEMBERSHIP_LOST not in kinds:
            await told.wait()
            told.clear()
            kinds += [one.kind for one in thread.take_findings()]
    thread.stop()
    assert await thread.wait_stopped(60)


async def test_the_thread_stops_at_once_while_it_connects_to_a_dead_machine(dead: Address) -> None:
    thread = heartbeats(asyncio.Event(), session_timeout_ms=60_000)
    thread.polled()
    thread.start()
    thread.begin(Identity(1, "somebody", "range"), dead, [dead])
    async with asyncio.timeout(60):
        while thread._connection is None:  # noqa: ASYNC110 - it is another thread that acts.
            await asyncio.sleep(0.01)
    thread.stop()
    assert await thread.wait_stopped(30)  # Half of what it would wait for the connection.


async def test_a_thread_that_is_stopped_asks_no_further_broker(dead: Address) -> None:
    thread = heartbeats(asyncio.Event(), session_timeout_ms=60_000)
    others = [Address(f"127.0.0.{number}", dead.port) for number in range(3, 9)]
    thread.know_brokers([dead, *others])
    looking = asyncio.create_task(asyncio.to_thread(_complete, thread._find_coordinator()))
    async with asyncio.timeout(60):
        while thread._connection is None:  # noqa: ASYNC110 - the thread has no event for it.
            await asyncio.sleep(0.01)
    thread.stop()
    with pytest.raises(DisconnectedError, match="stopped"):
        await looking
    assert list(thread._suspects) == [dead]

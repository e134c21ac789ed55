"""Limits on how fast connections come, over real sockets."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from tests.integration.test_client_quotas import alter
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.certificates import Authority
from tests.support.brokers.server_process import free_port
from tests.support.network.wire import RawClient

THERE = "127.0.0.9"
"""An address that has a limit."""

NewLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerThread]:
    new_loop: NewLoop = request.param
    with BrokerThread(tmp_path, loop_factory=new_loop) as made:
        yield made


def test_an_address_over_its_limit_is_not_served_and_loses_its_connection_later(
    broker: BrokerThread,
) -> None:
    with RawClient(broker.port) as client:
        assert alter(client, [("ip", THERE)], ("connection_creation_rate", 1.0)) == 0
        began = time.monotonic()
        made = [RawClient(broker.port, source=THERE) for _ in range(11)]
        assert made[9].is_answered()
        with pytest.raises(ConnectionError):
            made[10].is_answered()
        # To the end of the window that the first of them began.
        assert time.monotonic() - began >= 0.9
        assert client.is_answered()
        for one in made:
            one.close()
        # Others come as they like.
        with RawClient(broker.port) as other:
            assert other.is_answered()


def test_a_broker_stops_while_connections_are_held(broker: BrokerThread) -> None:
    with RawClient(broker.port) as client:
        assert alter(client, [("ip", None)], ("connection_creation_rate", 1.0)) == 0
    made = [RawClient(broker.port, source=THERE) for _ in range(30)]
    assert made[0].is_answered()
    broker.stop()
    assert made[-1].is_closed()
    for one in made:
        one.close()


def test_a_handshake_is_not_begun_with_an_address_over_its_limit(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    ports = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},SSL://127.0.0.1:{ports[1]}",
        "ssl.keystore.location": str(authority.issue("broker", "IP:127.0.0.1")),
    }
    with BrokerThread(
        tmp_path / "data", overrides=settings, loop_factory=uvloop.new_event_loop
    ) as broker:
        with RawClient(broker.port) as client:
            assert alter(client, [("ip", THERE)], ("connection_creation_rate", 1.0)) == 0
        made = [RawClient(ports[1], source=THERE) for _ in range(11)]
        made[0].send(b"nonsense")
        # The one that is served is told so by an alert.
        assert made[0].socket.recv(1) != b""
        made[10].send(b"nonsense")
        assert made[10].is_closed()
        for one in made:
            one.close()


def test_a_listener_over_its_limit_serves_all_who_come_and_lets_them_wait(tmp_path: Path) -> None:
    # asyncio's own loop accepts all that wait before it looks at anything else.
    with BrokerThread(tmp_path, loop_factory=uvloop.new_event_loop) as broker:
        server = broker.broker.network
        limited = server.limits._replace(max_connection_creation_rate=2)
        broker.call(lambda: server.set_limits(limited))
        began = time.monotonic()
        # Twenty are free, and each of the others takes half a second more.
        made = [RawClient(broker.port) for _ in range(23)]
        assert all(one.is_answered() for one in made)
        assert time.monotonic() - began >= 0.4
        for one in made:
            one.close()
        with RawClient(broker.port) as client:
            assert client.is_answered()

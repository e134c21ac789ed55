"""Several listeners: each client is told to come back by the way it came."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.model import Record


@pytest.fixture
def outer_port() -> int:
    return free_port()


@pytest.fixture
def two_sided(tmp_path: Path, outer_port: int) -> Iterator[KohortServer]:
    """A broker that one network knows as 127.0.0.1 and another as localhost."""
    inner_port = free_port()
    overrides = {
        "listeners": f"INNER://127.0.0.1:{inner_port},OUTER://127.0.0.1:{outer_port}",
        "advertised.listeners": f"INNER://127.0.0.1:{inner_port},OUTER://localhost:{outer_port}",
        "listener.security.protocol.map": "INNER:PLAINTEXT,OUTER:PLAINTEXT",
    }
    with KohortServer(tmp_path, port=inner_port, overrides=overrides) as server:
        yield server


def test_a_client_is_told_the_address_of_the_listener_it_came_by(
    two_sided: KohortServer, outer_port: int
) -> None:
    for port, host in ((two_sided.port, "127.0.0.1"), (outer_port, "localhost")):
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})

        (broker,) = admin.list_topics(timeout=10).brokers.values()

        assert f"{broker.host}:{broker.port}" == f"{host}:{port}"
        (node,) = admin.describe_cluster().result(30).nodes
        assert f"{node.host}:{node.port}" == f"{host}:{port}"


def test_a_group_is_found_through_either_listener(two_sided: KohortServer, outer_port: int) -> None:
    ConfluentClient(two_sided.bootstrap).produce("shared", [Record(b"one", partition=None)])

    outer = ConfluentClient(f"127.0.0.1:{outer_port}")

    assert [record.value for record in outer.consume("shared", 1)] == [b"one"]


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
def test_clients_are_never_sent_to_every_interface(tmp_path: Path, host: str) -> None:
    port = free_port()
    overrides = {"listeners": f"PLAINTEXT://{host}:{port}"}
    with KohortServer(tmp_path, port=port, overrides=overrides):
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})

        (broker,) = admin.list_topics(timeout=10).brokers.values()

    assert f"{broker.host}:{broker.port}" == f"{socket.gethostname()}:{port}"


def test_a_listener_that_is_not_advertised_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = {
        "listeners": "INNER://127.0.0.1:0,OUTER://127.0.0.2:0",
        "advertised.listeners": "INNER://127.0.0.1:9092",
        "listener.security.protocol.map": "INNER:PLAINTEXT,OUTER:PLAINTEXT",
    }
    with BrokerThread(tmp_path, overrides=overrides):
        pass
    assert "not contain listener OUTER: its clients are redirected to INNER://127" in caplog.text
    assert "no listener INNER" not in caplog.text

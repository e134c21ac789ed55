"""The HTTP port: the health check of the image, with and without TLS, and host names."""

import os
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.certificates import Authority
from tests.support.brokers.server_process import free_port


def probe(port: int) -> int:
    command = [sys.executable, "-m", "kohort.broker.http.probe"]
    environment = os.environ | {"KOHORT_METRICS_PORT": str(port)}
    return subprocess.run(command, env=environment, check=False, capture_output=True).returncode


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_broker_that_serves_clients_is_healthy(tmp_path: Path, has_tls: bool) -> None:
    port = free_port()
    overrides = {"kohort.metrics.port": str(port)}
    if has_tls:
        # Not valid for localhost.
        store = Authority(tmp_path / "certificates").issue("broker", "DNS:broker.example.com")
        overrides["listener.name.http.ssl.keystore.location"] = str(store)
    with BrokerThread(tmp_path / "data", overrides=overrides):
        assert probe(port) == 0
    assert probe(port) == 1


def test_the_hosts_of_advertised_listeners_are_accepted_in_the_host_header(tmp_path: Path) -> None:
    port = free_port()
    overrides = {
        "kohort.metrics.port": str(port),
        "advertised.listeners": "PLAINTEXT://broker.example.com:9092",
    }
    with BrokerThread(tmp_path, overrides=overrides):
        for host, status in (("broker.example.com:9308", 200), ("evil.example", 421)):
            connection = HTTPConnection("localhost", port, timeout=30)
            connection.request("GET", "/metrics", headers={"Host": host})
            assert connection.getresponse().status == status
            connection.close()

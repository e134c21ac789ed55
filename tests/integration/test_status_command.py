"""`kohort status` of a Kohort, with and without its console."""

from pathlib import Path

import pytest

from tests.support.brokers.broker_thread import BrokerThread
from tests.support.processes.commands import said_here


def test_the_console_is_found_through_the_kafka_port(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokerThread(tmp_path, overrides={"kohort.console.port": "0"}) as broker:
        address = ("-b", f"127.0.0.1:{broker.port}")
        kohort = said_here(capsys, "status", "--json", *address).json["kohort"]
        lines = said_here(capsys, "status", *address).out.splitlines()
    assert kohort["version"] in lines[1]
    assert kohort["up_ms"] >= 0


def test_without_a_console_the_rest_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokerThread(tmp_path, overrides={"kohort.console.port": "-1"}) as broker:
        address = ("-b", f"127.0.0.1:{broker.port}")
        status = said_here(capsys, "status", "--json", *address).json
    assert status["kohort"] is None
    assert len(status["brokers"]) == 1
    assert said_here(capsys, "status", *address).code == 3

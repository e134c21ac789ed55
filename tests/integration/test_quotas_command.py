"""`kohort quotas` on a running broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.cli import main
from tests.support.brokers.broker_thread import BrokerThread


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path) as made:
        yield made


def run(broker: BrokerThread, *arguments: str) -> int:
    return main(["quotas", *arguments, "--bootstrap-server", f"127.0.0.1:{broker.port}"])


def test_limits_are_set_listed_and_removed(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ("producer_byte_rate=1000", "request_percentage=50.5")
    assert run(broker, "set", *limits, "--user", "alice", "--default-client-id") == 0
    capsys.readouterr()
    assert run(broker, "list", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["quotas"]
    assert found == {
        "entity": {"user": "alice", "client-id": None},
        "producer_byte_rate": 1000,
        "request_percentage": 50.5,
    }
    both = ("--user", "alice", "--default-client-id")
    assert run(broker, "remove", "request_percentage", *both) == 0
    assert run(broker, "remove", "request_percentage", *both) == 1
    assert run(broker, "remove", *both) == 0
    assert run(broker, "list") == 0
    assert "alice" not in capsys.readouterr().out.splitlines()[-1]


def test_all_digits_of_a_limit_are_shown(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = "producer_byte_rate=10485761"
    assert run(broker, "set", limit, "request_percentage=0.125", "--user", "alice") == 0
    assert limit in capsys.readouterr().out
    assert run(broker, "list") == 0
    lines = [line.split()[2:] for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == [["producer_byte_rate", "10485761"], ["request_percentage", "0.125"]]


def test_a_limit_that_the_broker_does_not_keep_is_told(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(broker, "set", "connection_creation_rate=1", "--user", "alice") == 4
    assert "INVALID_REQUEST" in capsys.readouterr().err


def test_a_user_is_named_without_its_type(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(broker, "set", "producer_byte_rate=1000", "--user", "User:alice") == 2
    assert "--user is the name without User:" in capsys.readouterr().err


def test_an_address_is_told_how_it_is_written(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(broker, "set", "connection_creation_rate=5", "--ip", "2001:DB8:0::1") == 4
    assert "as connections have it: 2001:db8::1" in capsys.readouterr().err


def test_addresses_have_limits_too(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(broker, "set", "connection_creation_rate=5", "--ip", "10.0.0.7") == 0
    assert run(broker, "set", "connection_creation_rate=50", "--default-ip") == 0
    capsys.readouterr()
    assert run(broker, "list") == 0
    rows = capsys.readouterr().out
    assert "ip 10.0.0.7" in rows
    assert "ip <default>" in rows


def test_it_has_to_be_said_for_whom(broker: BrokerThread) -> None:
    assert run(broker, "set", "producer_byte_rate=1") == 2
    assert run(broker, "set", "producer_byte_rate=1", "--user", "a", "--default-user") == 2

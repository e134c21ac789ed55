"""The test kit over HTTP, as tests in other languages use it."""

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.groups.raw_members import RawMember, share
from tests.support.network.wire import RawClient

SETTINGS = ("--override", "num.partitions=2")


class Client:
    """`kohort testing serve`, and one connection to it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kohort.cli", "testing", "serve", *SETTINGS],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.kafka_port = int(line.split()[1].rstrip(",").rpartition(":")[2])
        self.port = int(line.rpartition(":")[2])
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def post(self, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        content = json.dumps({} if body is None else body)
        given = {"Content-Type": "application/json", **headers}
        self.connection.request("POST", path, content, given)
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())

    def close(self) -> int:
        self.connection.close()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    running = Client()
    yield running
    assert running.close() == 0


@pytest.fixture
def broker(client: Client) -> Iterator[str]:
    status, made = client.post("/brokers", {"settings": {"num.partitions": 2}})
    assert status == 200
    yield f"/brokers/{made['id']}"
    client.post(f"/brokers/{made['id']}/close")


def port_of(client: Client, broker: str) -> int:
    return int(client.post(broker)[1]["bootstrap_servers"].rpartition(":")[2])


def test_records_go_in_and_out(client: Client, broker: str) -> None:
    assert client.post(f"{broker}/create_topic", {"name": "orders"}) == (200, {})
    written = {"topic": "orders", "value": "ä", "key": {"base64": "//8="}, "partition": 1}
    status, answer = client.post(f"{broker}/produce", written)
    assert (status, answer) == (200, {"topic": "orders", "partition": 1, "offset": 0})
    _, answer = client.post(f"{broker}/records", {"topic": "orders", "count": 1})
    (record,) = answer["records"]
    assert (record["value"], record["key"]) == ("ä", {"base64": "//8="})


def test_groups_are_waited_for_and_disturbed(client: Client, broker: str) -> None:
    member = RawMember(port_of(client, broker), "billing")
    client.post(f"{broker}/create_topic", {"name": "t"})
    member.arrive().answer()
    member.sync({member.member_id: share("t", 0, 1)})
    group = f"{broker}/groups/billing"
    assert client.post(f"{group}/wait", {"state": "Stable", "members": 1})[0] == 200
    assert client.post(f"{group}/wait", {"members": 2, "timeout": 0.01})[0] == 408
    _, described = client.post(f"{group}/describe")
    assert described["members"][0]["partitions"] == [["t", 0], ["t", 1]]
    assert client.post(f"{group}/expire", {"client_id": "test"})[1]["members"] == [member.member_id]
    assert client.post(f"{group}/expire", {"client_id": "test"})[0] == 404
    _, told = client.post(f"{group}/rebalances")
    kinds = [one["trigger"]["kind"] for one in told["rebalances"]]
    assert kinds == ["member_added", "session_expired"]
    assert "missed its session timeout" in "\n".join(client.post(f"{group}/why")[1]["why"])


def test_faults_begin_count_and_end(client: Client, broker: str) -> None:
    _, made = client.post(f"{broker}/faults", {"api": "ApiVersions", "disconnect": True})
    fault = f"{broker}/faults/{made['id']}"
    with RawClient(port_of(client, broker)) as raw:
        raw.send(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
        with pytest.raises((AssertionError, OSError)):
            raw.receive()
    assert client.post(f"{fault}/hits") == (200, {"hits": 1})
    assert client.post(f"{fault}/end") == (200, {"hits": 1})
    assert client.post(f"{fault}/end")[0] == 404


def test_a_broker_is_restarted_and_killed(client: Client, broker: str) -> None:
    client.post(f"{broker}/produce", {"topic": "orders", "value": "x"})
    assert client.post(f"{broker}/restart") == (200, {})
    assert client.post(f"{broker}/crash") == (200, {})
    assert len(client.post(f"{broker}/records", {"topic": "orders"})[1]["records"]) == 1


def test_the_first_broker_has_the_settings_of_the_command(client: Client) -> None:
    client.post("/brokers/1/create_topic", {"name": "two"})
    with RawClient(client.kafka_port):
        pass
    places = [
        client.post("/brokers/1/produce", {"topic": "two", "value": "x"})[1]["partition"]
        for _ in range(2)
    ]
    assert sorted(places) == [0, 1]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/nothing", {}, 404),
        ("/brokers/77/stop", {}, 404),
        ("/brokers/1/dance", {}, 404),
        ("/brokers/1/produce", {"topic": "t", "value": 7}, 400),
        ("/brokers/1/produce", {"nonsense": 1}, 400),
        ("/brokers/1/records", {"topic": "not there"}, 409),
        ("/brokers/1/faults", {"api": "Dance", "drop": True}, 400),
        ("/brokers", {"settings": {"num.partition": 1}}, 400),
        ("/brokers", [], 400),
    ],
)
def test_what_cannot_be_done_is_told(client: Client, path: str, body: object, status: int) -> None:
    answered, answer = client.post(path, body)
    assert answered == status
    assert answer["error"]


def test_pages_of_a_browser_cannot_reach_it(client: Client) -> None:
    assert client.post("/brokers/1", Host="evil.example.com")[0] == 403
    client.connection.close()
    assert client.post("/brokers/1", **{"Content-Type": "text/plain"})[0] == 415
    client.connection.close()
    assert client.post("/brokers/1")[0] == 200

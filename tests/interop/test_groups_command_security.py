"""`kohort groups` with the listeners of a real Kafka that want TLS and SASL."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from kohort import Consumer
from kohort.cli import main
from tests.support.brokers.secure_kafka import LISTENERS, PASSWORD, USER, SecureKafka
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.model import Record

MODULES = "org.apache.kafka.common.security"
GROUP = f"billing-{uuid.uuid4().hex[:8]}"
TOPIC = f"orders-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """With a group that has read two of three records."""
    with SecureKafka(tmp_path_factory.mktemp("secure")) as kafka:
        admin = admin_client(kafka.bootstrap)
        create_topics(admin, NewTopic(TOPIC, 1, 1))
        client = ConfluentClient(kafka.bootstrap)
        client.produce(TOPIC, [Record(b"%d" % number) for number in range(3)])
        asyncio.run(read_two(kafka.bootstrap))
        yield kafka


async def read_two(bootstrap: str) -> None:
    async with (
        asyncio.timeout(60),
        Consumer(
            TOPIC, bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest"
        ) as one,
    ):
        for _ in range(2):
            await one.getone()
        await one.commit()


def settings(kafka: SecureKafka, listener: str, mechanism: str) -> dict[str, str]:
    """The properties that a user of the listener needs, as Kafka's documentation writes them."""
    protocol = LISTENERS[listener]
    found = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        found |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(kafka.authority.certificate),
        }
    if protocol.startswith("SASL_"):
        kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        login = f'{MODULES}.{kind}LoginModule required username="{USER}" password="{PASSWORD}";'
        found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
    if listener == "MUTUAL":
        key = kafka.authority.issue("client", "DNS:client")
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key)}
    return found


class Command:
    """The command, in this process."""

    def __init__(self, kafka: SecureKafka, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.kafka = kafka
        self._path = path
        self._capsys = capsys

    def __call__(
        self, listener: str, properties: dict[str, str], *arguments: str, host: str = "127.0.0.1"
    ) -> tuple[int, str, str]:
        """The exit code, and what was printed on both streams."""
        self._path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        server = f"{host}:{self.kafka.ports[listener]}"
        where = ["--bootstrap-server", server, "--command-config", str(self._path)]
        code = main(["groups", *arguments, *where, "--timeout", "60"])
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err


@pytest.fixture
def command(kafka: SecureKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(kafka, tmp_path / "client.properties", capsys)


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        ("SSL", ""),
        ("MUTUAL", ""),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-512"),
    ],
)
def test_groups_are_listed_and_described_through_every_listener(
    command: Command, listener: str, mechanism: str
) -> None:
    properties = settings(command.kafka, listener, mechanism)
    code, out, err = command(listener, properties, "list", "--json")
    assert (code, err) == (0, "")
    assert GROUP in {group["group"] for group in json.loads(out)["groups"]}
    code, out, err = command(listener, properties, "describe", GROUP, "--json")
    assert (code, err) == (0, "")
    described = json.loads(out)
    assert (described["state"], described["lag"]) == ("Empty", 1)
    assert described["coordinator"] == f"127.0.0.1:{command.kafka.ports[listener]}"


def test_a_wrong_password_is_told_in_the_words_of_the_file(command: Command) -> None:
    properties = settings(command.kafka, "SASL_SSL", "PLAIN")
    properties["sasl.jaas.config"] = properties["sasl.jaas.config"].replace(PASSWORD, "other-word")
    code, out, err = command("SASL_SSL", properties, "list")
    assert (code, out) == (4, "")
    assert f"authentication of user '{USER}' failed: SASL_AUTHENTICATION_FAILED" in err
    assert "check username and password in sasl.jaas.config" in err
    assert "other-word" not in err


@pytest.mark.parametrize(
    ("listener", "changes", "exit_code", "said"),
    [
        ("SSL", {"ssl.truststore.location": None, "ssl.truststore.type": None}, 3, "truststore"),
        ("MUTUAL", {"ssl.keystore.location": None, "ssl.keystore.type": None}, 3, "ssl.keystore."),
        ("SASL_PLAINTEXT", {"sasl.mechanism": "SCRAM-SHA-512"}, 4, "change sasl.mechanism"),
    ],
)
def test_what_the_listener_does_not_accept_is_told_with_the_property_to_change(
    command: Command, listener: str, changes: dict[str, str | None], exit_code: int, said: str
) -> None:
    properties: dict[str, Any] = settings(command.kafka, listener, "PLAIN") | changes
    given = {name: value for name, value in properties.items() if value is not None}
    code, out, err = command(listener, given, "list")
    assert (code, out) == (exit_code, "")
    assert said in err


def test_a_certificate_of_another_host_is_accepted_only_if_the_file_says_so(
    command: Command,
) -> None:
    properties = settings(command.kafka, "SSL", "")
    code, _, err = command("SSL", properties, "list", host="127.0.0.2")
    assert code == 3
    assert "127.0.0.2" in err
    properties["ssl.endpoint.identification.algorithm"] = ""
    assert command("SSL", properties, "list", host="127.0.0.2")[0] == 0


@pytest.mark.parametrize("listener", ["SSL", "SASL_PLAINTEXT"])
def test_without_a_file_it_is_told_what_the_listener_wants(command: Command, listener: str) -> None:
    code, _, err = command(listener, {}, "list")
    assert code == 3
    assert "set security.protocol to " in err
    assert "--command-config" in err

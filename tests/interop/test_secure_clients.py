"""Other people's clients and tools through TLS and SCRAM, with settings as for a Kafka."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

import kohort
from kohort.cli import main
from tests.interop.tools import Tools
from tests.support.brokers.secure_kafka import PASSWORD, USER
from tests.support.brokers.secure_kohort import SecureKohort
from tests.support.clients.confluent_client import QUIET
from tests.support.clients.login import Login
from tests.support.processes.java_process import JavaProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKohort]:
    with SecureKohort(tmp_path_factory.mktemp("secure")) as broker:
        yield broker


@pytest.fixture
def login(broker: SecureKohort) -> Login:
    bootstrap = f"127.0.0.1:{broker.ports['SASL_SSL']}"
    return Login(bootstrap, broker.authority.certificate, USER, PASSWORD)


@pytest.fixture
def properties(login: Login, tmp_path: Path) -> Path:
    """What Kafka's tools take with --command-config."""
    return login.java_file(tmp_path / "client.properties")


@pytest.fixture
def bootstrap(login: Login) -> str:
    return login.bootstrap


async def read(consumer: Any) -> bytes:  # noqa: ANN401 - ours, or aiokafka's.
    async with asyncio.timeout(60), consumer:
        value: bytes = (await consumer.getone()).value
        return value


@pytest.mark.long
async def test_aiokafka_and_our_own_consumer(login: Login) -> None:
    settings = {"bootstrap_servers": login.bootstrap, **login.python()}
    async with asyncio.timeout(60), AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait("asynchronous", b"value")
    settings |= {"auto_offset_reset": "earliest"}
    ours = kohort.Consumer("asynchronous", group_id="ours", **settings)
    assert await read(ours) == b"value"
    theirs = AIOKafkaConsumer("asynchronous", group_id="theirs", **settings)
    assert await read(theirs) == b"value"


@pytest.mark.long
def test_librdkafka(login: Login) -> None:
    settings = {**QUIET, "bootstrap.servers": login.bootstrap, **login.librdkafka()}
    producer = Producer({**settings, "enable.idempotence": True})
    producer.produce("librdkafka", b"x" * 900_000)
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["librdkafka"])
    message = consumer.poll(30)
    assert message is not None
    assert len(message.value() or b"") == 900_000
    consumer.close()


@pytest.mark.long
def test_kafka_python(login: Login) -> None:
    settings = {"bootstrap_servers": login.bootstrap, **login.python()}
    producer = KafkaProducer(**settings)
    producer.send("kafka-python", b"value").get(30)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python",
        group_id="k",
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
        **settings,
    )
    assert next(iter(consumer)).value == b"value"
    consumer.close()


@pytest.mark.long
def test_kafkas_own_tools(
    bootstrap: str,
    properties: Path,
    tool_process: JavaProcess,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tools = Tools(bootstrap, tool_process)
    config = "--command-config", str(properties)
    tools.topics("--create", "--topic", "console", "--partitions", "1", *config)
    tools.console_producer("--topic", "console", *config, stdin="one\ntwo\n")
    shown = tools.console_consumer(
        *("--topic", "console", "--from-beginning", "--max-messages", "2"),
        *("--timeout-ms", "20000", *config),
    )
    assert shown.splitlines() == ["one", "two"]
    user = "--entity-type", "users", "--entity-name", "bob"
    added = "SCRAM-SHA-256=[iterations=8192,password=bob-secret]"
    tools.configs("--alter", "--add-config", added, *user, *config)
    assert main(["users", "list", "--bootstrap-server", bootstrap, *config]) == 0
    assert ["bob", "8192", "-", "enabled"] in map(str.split, capsys.readouterr().out.splitlines())
    tools.configs("--alter", "--delete-config", "SCRAM-SHA-256", *user, *config)


@pytest.mark.parametrize(
    "command",
    [["topics", "list"], ["groups", "list"], ["transactions", "list"], ["users", "list"]],
    ids=lambda command: command[0],
)
def test_every_command_takes_a_command_config(
    bootstrap: str, properties: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--bootstrap-server", bootstrap, "--command-config", str(properties)]
    assert main([*command, *where]) == 0
    capsys.readouterr()

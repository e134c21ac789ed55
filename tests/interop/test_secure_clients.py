"""Other people's clients and tools through TLS and SCRAM, with settings as for a Kafka."""

import asyncio
import ssl
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
from tests.support.processes.java_process import JavaProcess

MECHANISM = "SCRAM-SHA-512"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKohort]:
    with SecureKohort(tmp_path_factory.mktemp("secure")) as broker:
        yield broker


@pytest.fixture
def properties(broker: SecureKohort, tmp_path: Path) -> Path:
    """What Kafka's tools take with --command-config."""
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={MECHANISM}\n"
        f'sasl.jaas.config={MODULE} required username="{USER}" password="{PASSWORD}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={broker.authority.certificate}\n"
    )
    return path


@pytest.fixture
def bootstrap(broker: SecureKohort) -> str:
    return f"127.0.0.1:{broker.ports['SASL_SSL']}"


def python_settings(broker: SecureKohort, bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=broker.authority.certificate),
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }


async def read(consumer: Any) -> bytes:  # noqa: ANN401 - ours, or aiokafka's.
    async with asyncio.timeout(60), consumer:
        value: bytes = (await consumer.getone()).value
        return value


@pytest.mark.long
async def test_aiokafka_and_our_own_consumer(broker: SecureKohort, bootstrap: str) -> None:
    settings = python_settings(broker, bootstrap)
    async with asyncio.timeout(60), AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait("asynchronous", b"value")
    settings |= {"auto_offset_reset": "earliest"}
    ours = kohort.Consumer("asynchronous", group_id="ours", **settings)
    assert await read(ours) == b"value"
    theirs = AIOKafkaConsumer("asynchronous", group_id="theirs", **settings)
    assert await read(theirs) == b"value"


@pytest.mark.long
def test_librdkafka(broker: SecureKohort, bootstrap: str) -> None:
    settings: dict[str, Any] = {
        **QUIET,
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(broker.authority.certificate),
    }
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
def test_kafka_python(broker: SecureKohort, bootstrap: str) -> None:
    settings = python_settings(broker, bootstrap)
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
    assert ["bob", "8192", "-"] in map(str.split, capsys.readouterr().out.splitlines())
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

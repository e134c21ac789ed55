"""The recipe with OAuth of docs/securing-it.md, to the letter but for names: an issuer of tokens,
the broker, a client of Kafka's own, our commands with its file, our consumer, and a client of
librdkafka.
"""

import re
import shlex
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from kohort import ClientCredentials
from kohort import Consumer as KohortConsumer
from tests.interop.tools import Tools
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.certificates import Authority
from tests.support.brokers.server_process import free_port
from tests.support.clients.confluent_client import QUIET
from tests.support.processes.commands import said_by_process
from tests.support.processes.java_process import JavaProcess
from tests.support.processes.oauth_server import OAuthServer
from tests.support.waiting import wait_until

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "securing-it.md"
ALLOWED: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"

pytestmark = pytest.mark.long


class Recipe:
    """Its three files, with real names."""

    def __init__(self, authority: Authority, server: OAuthServer) -> None:
        section = DOCUMENT.read_text().partition("\n## OAuth\n")[2].partition("\n## ")[0]
        self._blocks = re.findall(r"```properties\n(.*?)```", section, re.DOTALL)
        assert len(self._blocks) == 3
        [self._commands] = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
        self.authority = authority
        self.server = server
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self._key = authority.issue("broker", "IP:127.0.0.1")

    def broker(self) -> dict[str, str]:
        return self._file(0)

    def java(self) -> dict[str, str]:
        found = self._file(1)
        # The issuer's certificate is signed by an authority of one's own.
        trusted = f' ssl.truststore.type="PEM" ssl.truststore.location="{self._ca}";'
        return found | {"sasl.jaas.config": found["sasl.jaas.config"].rstrip(";") + trusted}

    def librdkafka(self) -> dict[str, str]:
        return self._file(2) | {"https.ca.location": self._ca}

    @property
    def _ca(self) -> str:
        return str(self.authority.certificate)

    def commands(self, config: Path) -> list[list[str]]:
        """The commands of the page, with the client's file at `config`."""
        text = self._real(self._commands).replace("client.properties", str(config))
        return [shlex.split(line)[1:] for line in text.splitlines()]

    def _file(self, number: int) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self._real(self._blocks[number]).splitlines())

    def _real(self, text: str) -> str:
        for name, real in (
            ("https://issuer.example.com/.well-known/jwks.json", f"{self.server.issuer}/jwks"),
            ("https://issuer.example.com/oauth/token", f"{self.server.issuer}/token"),
            ("https://issuer.example.com", self.server.issuer),
            ("//:9093", f"//{self.bootstrap}"),
            ("broker.example.com:9093", self.bootstrap),
            ("broker.pem", str(self._key)),
            ("ca.pem", self._ca),
            ("...", "secret"),
        ):
            text = text.replace(name, real)
        return text


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recipe]:
    """The recipe, with a broker where only the subject of the client's token may do everything."""
    directory = tmp_path_factory.mktemp("oauth")
    authority = Authority(directory / "certificates")
    with (
        pytest.MonkeyPatch.context() as environment,
        OAuthServer(directory, authority, "kohort") as server,
    ):
        recipe = Recipe(authority, server)
        environment.setenv("SSL_CERT_FILE", str(authority.certificate))
        rights = {"authorizer.class.name": "kohort", "super.users": "User:orders"}
        with BrokerThread(directory / "data", overrides={**recipe.broker(), **rights}):
            yield recipe


def test_a_client_of_kafkas_own(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = recipe.java()
    url = settings["sasl.oauthbearer.token.endpoint.url"]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-D{ALLOWED}={url}")
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    given = "--topic", "java", "--command-config", str(config)
    with JavaProcess("ToolRunner", "tools", log=tmp_path / "tools.log") as process:
        tools = Tools(recipe.bootstrap, process)
        tools.console_producer(*given, "--sync", stdin="value\n")
        shown = tools.console_consumer(
            *given, "--from-beginning", "--max-messages", "1", "--timeout-ms", "20000"
        )
    assert shown.splitlines() == ["value"]


@pytest.mark.parametrize("trusts_by", ["the file", "the environment"])
def test_commands_of_ours_with_the_same_file(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusts_by: str
) -> None:
    settings = recipe.java()
    if trusts_by == "the file":
        monkeypatch.delenv("SSL_CERT_FILE")
    else:
        settings |= {"sasl.jaas.config": settings["sasl.jaas.config"].partition(" ssl.")[0] + ";"}
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    create, consume = recipe.commands(config)
    assert said_by_process(*create, "--if-not-exists").lines[0].startswith("orders: ")
    assert said_by_process(*consume).lines == []


async def test_our_consumer(recipe: Recipe) -> None:
    trusted = ssl.create_default_context(cafile=recipe.authority.certificate)
    url = recipe.java()["sasl.oauthbearer.token.endpoint.url"]
    provider = ClientCredentials(url, "orders", "secret", ssl_context=trusted)
    async with KohortConsumer(
        bootstrap_servers=recipe.bootstrap,
        security_protocol="SASL_SSL",
        ssl_context=trusted,
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=provider,
    ) as consumer:
        assert await consumer.topics() is not None


def test_one_of_librdkafka(recipe: Recipe) -> None:
    settings: dict[str, Any] = {
        **QUIET,
        **recipe.librdkafka(),
        "bootstrap.servers": recipe.bootstrap,
    }
    producer = Producer(settings)
    producer.produce("librdkafka", b"value")
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["librdkafka"])
    message = consumer.poll(30)
    assert message is not None
    assert message.value() == b"value"
    consumer.close()


def test_a_token_of_another_issuer_lets_no_one_in(recipe: Recipe) -> None:
    errors: list[KafkaError] = []
    url = f"{recipe.server.stranger}/token"
    producer = Producer(
        {
            **QUIET,
            **recipe.librdkafka(),
            "sasl.oauthbearer.token.endpoint.url": url,
            "bootstrap.servers": recipe.bootstrap,
            "error_cb": errors.append,
        }
    )

    def is_refused() -> bool:
        producer.poll(0.1)
        return KafkaError._AUTHENTICATION in {error.code() for error in errors}

    wait_until(is_refused, lambda: f"{errors}")

"""Commands with tokens, on a real Kafka and on Kohort: `--command-config` as for Kafka's tools."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.brokers.oauth_brokers import OAuthKafka, OAuthKohort
from tests.support.brokers.on_both import on_both
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.model import Record
from tests.support.processes.commands import ROOT, said_by_process
from tests.support.processes.token_endpoint import TokenEndpoint
from tests.support.waiting import wait_until

LIFETIME_S: Final = 4
MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

Broker = OAuthKafka | OAuthKohort
broker = on_both(OAuthKafka, OAuthKohort, long=OAuthKafka)


@pytest.fixture
def endpoint(broker: Broker) -> Iterator[TokenEndpoint]:
    """Gives out tokens of 4 s."""

    def give() -> tuple[str, float]:
        return broker.issuer.token("orders", LIFETIME_S)[0], LIFETIME_S - 1

    with TokenEndpoint(give) as found:
        yield found


class Config:
    """Writes the files, and runs commands with them."""

    def __init__(self, broker: Broker, path: Path) -> None:
        self.path = path
        self._broker = broker

    def write(self, listener: str, login: str, url: str) -> tuple[str, ...]:
        lines = [
            "sasl.mechanism=OAUTHBEARER",
            f"sasl.jaas.config={MODULE} required {login};",
            f"sasl.oauthbearer.token.endpoint.url={url}",
            "security.protocol=SASL_PLAINTEXT",
        ]
        if listener == "OAUTHTLS":
            lines[-1:] = [
                "security.protocol=SASL_SSL",
                "ssl.truststore.type=PEM",
                f"ssl.truststore.location={self._broker.authority.certificate}",
            ]
        self.path.write_text("\n".join(lines) + "\n")
        server = f"127.0.0.1:{self._broker.ports[listener]}"
        return "--bootstrap-server", server, "--command-config", str(self.path)


@pytest.fixture
def config(broker: Broker, tmp_path: Path) -> Config:
    return Config(broker, tmp_path / "client.properties")


LOGIN: Final = 'clientId="orders" clientSecret="hidden"'


@pytest.mark.parametrize("listener", ["OAUTH", "OAUTHTLS"])
def test_commands_get_in_with_tokens_of_an_endpoint(
    config: Config, endpoint: TokenEndpoint, listener: str
) -> None:
    given = config.write(listener, LOGIN, endpoint.url)
    topic = f"by-{listener.lower()}"
    assert said_by_process("topics", "create", topic, *given).lines == [f"{topic}: created"]
    produced = subprocess.run(
        [sys.executable, "-m", "kohort.cli", "produce", topic, *given],
        cwd=ROOT,
        input=b"first\nsecond\n",
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert produced.returncode == 0, produced.stderr
    shown = said_by_process("consume", topic, "--from-beginning", "--exit", *given)
    assert shown.lines == ["first", "second"]
    assert said_by_process("groups", "list", *given).code == 0
    # Each of the commands has asked once; consume has two clients.
    assert len(endpoint.asked) == 5


def test_a_token_in_a_file_is_enough(broker: Broker, config: Config, tmp_path: Path) -> None:
    token = tmp_path / "token.jwt"
    token.write_text(broker.issuer.token("orders", 60)[0] + "\n")
    given = config.write("OAUTH", "", token.as_uri())
    assert said_by_process("topics", "list", *given).code == 0
    token.write_text(broker.issuer.token("orders", -60)[0])
    expired = said_by_process("topics", "list", *given)
    assert expired.code == 3
    assert "sasl.oauthbearer.token.endpoint.url: the token expired 6" in expired.err


def test_a_token_that_is_refused_is_told_in_the_brokers_words(
    broker: Broker, config: Config, tmp_path: Path
) -> None:
    token = tmp_path / "token.jwt"
    token.write_text(broker.issuer.token("orders", 60, aud="others")[0])
    refused = said_by_process("topics", "list", *config.write("OAUTH", "", token.as_uri()))
    assert refused.code == 4
    assert '"status":"invalid_token"' in refused.err
    assert "sasl_" not in refused.err


def test_an_issuer_that_refuses_is_told(config: Config, endpoint: TokenEndpoint) -> None:
    endpoint.status, endpoint.body = 401, b'{"error":"invalid_client"}'
    refused = said_by_process("topics", "list", *config.write("OAUTH", LOGIN, endpoint.url))
    assert (refused.code, refused.out) == (3, "")
    assert refused.err == f"kohort: {endpoint.url} answers 401: invalid_client\n"


def test_what_is_printed_goes_on_beyond_a_token(
    broker: Broker, config: Config, endpoint: TokenEndpoint
) -> None:
    given = config.write("OAUTH", LOGIN, endpoint.url)
    said_by_process("topics", "create", "long", *given)
    client = ConfluentClient(broker.bootstrap)
    client.produce("long", [Record(b"first")])
    with subprocess.Popen(
        [sys.executable, "-m", "kohort.cli", "consume", "long", "--group", "g", *given],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        began = len(endpoint.asked)
        time.sleep(2.5 * LIFETIME_S)
        wait_until(lambda: len(endpoint.asked) >= began + 2, lambda: f"{endpoint.asked}")
        client.produce("long", [Record(b"second")])
        assert process.stdout.readline() == b"second\n"
        process.terminate()
        process.wait(30)
        assert b"Traceback" not in process.stderr.read()

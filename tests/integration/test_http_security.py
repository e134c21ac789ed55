"""The HTTP port of a whole broker: who is asked what, and who is shown what."""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.admin.users import hashed
from kohort.broker.app import StartError
from kohort.broker.core.security.acls import (
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.cli import main
from kohort.cli.stopped_broker import stopped_broker
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.certificates import Authority
from tests.support.brokers.server_process import free_port

PASSWORD = "a secret: 100%"
USERS = ("root", "watcher", "tenant", "nobody")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def rule(
    who: str, kind: ResourceType, name: str, operation: Operation = Operation.DESCRIBE
) -> Rule:
    return Rule(kind, name, PatternType.LITERAL, f"User:{who}", "*", operation, Permission.ALLOW)


RULES = [
    rule("watcher", ResourceType.CLUSTER, CLUSTER_NAME),
    rule("watcher", ResourceType.GROUP, "*"),
    rule("watcher", ResourceType.TOPIC, "readable", Operation.READ),
    rule("tenant", ResourceType.GROUP, "own"),
]


def test_a_port_open_to_all_machines_without_authentication_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ports = {"kohort.metrics.port": "0", "kohort.console.port": "0"}
    with BrokerThread(tmp_path, overrides=ports):
        assert "does not authenticate" not in caplog.text
    with BrokerThread(tmp_path, overrides={**ports, "kohort.console.host": ""}):
        assert "The HTTP port on every interface does not authenticate" in caplog.text


class Port:
    """The HTTP port of a broker."""

    def __init__(self, broker: BrokerThread, url: str, authority: Authority) -> None:
        self.broker = broker
        self.url = url
        self.console = ""
        self.authority = authority
        context = ssl.create_default_context(cafile=str(authority.certificate))
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def get(self, path: str, user: str = "", password: str = PASSWORD) -> tuple[int, str]:
        """Status and body."""
        headers = {}
        if user:
            credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {credentials}"
        return self.ask(self.url + path, headers)

    def ask(self, url: str, headers: dict[str, str]) -> tuple[int, str]:
        request = urllib.request.Request(url, headers=headers)
        try:
            with self._opener.open(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    directory = tmp_path_factory.mktemp("broker")
    authority = Authority(directory / "certificates")
    number, console = free_port(), free_port()
    settings = {
        "authorizer.class.name": "kohort",
        "super.users": "User:root;User:ANONYMOUS",
        "kohort.metrics.port": str(number),
        "kohort.console.port": str(console),
        "kohort.http.authentication": "basic",
        "listener.name.http.ssl.keystore.location": str(authority.issue("http", "IP:127.0.0.1")),
        "connection.failed.authentication.delay.ms": "1",
    }
    with stopped_broker(str(directory / "data")) as place:
        for user in USERS:
            place.set_password(user, hashed(PASSWORD, ["SCRAM-SHA-256"], 4_096))
    with BrokerThread(directory / "data", overrides=settings) as broker:
        access = broker.broker.services.access
        assert access is not None
        rules = access.rules.authorizer
        broker.call(lambda: rules.change(added=RULES))
        made = Port(broker, f"https://127.0.0.1:{number}", authority)
        made.console = f"https://127.0.0.1:{console}"
        yield made


def test_probes_are_answered_to_everybody(port: Port) -> None:
    assert port.get("/-/ready")[0] == 200
    assert port.get("/-/healthy", "nobody", "wrong")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Basic"},
        {"Authorization": "Basic %%%"},
        {"Authorization": "Basic " + base64.b64encode(b"no colon").decode()},
        {"Authorization": "Basic " + base64.b64encode(b"root:a\0b").decode()},
        {"Authorization": "Bearer x.y.z"},
        {"Authorization": "Negotiate x"},
    ],
    ids=["nothing", "empty", "no base64", "no password", "a NUL", "a token", "another scheme"],
)
def test_who_does_not_say_who_it_is_is_asked(port: Port, headers: dict[str, str]) -> None:
    assert port.ask(port.url + "/groups/g", headers)[0] == 401


def test_every_page_but_the_probes_asks(port: Port) -> None:
    for path in ("/metrics", "/groups", "/transactions", "/no/such/page"):
        assert port.ask(port.url + path, {})[0] == 401


def test_unknown_users_and_wrong_passwords_are_answered_alike(port: Port) -> None:
    assert port.get("/metrics", "root", "wrong") == port.get("/metrics", "no such user")


@pytest.mark.parametrize(
    ("user", "seen"),
    [
        ("root", {"/metrics", "/groups", "/groups/own", "/groups/g", "/transactions"}),
        ("watcher", {"/metrics", "/groups", "/groups/own", "/groups/g", "/transactions"}),
        ("tenant", {"/groups", "/groups/own", "/groups/own/rebalances"}),
        ("nobody", {"/groups"}),
    ],
)
def test_requesters_see_what_clients_of_their_rights_see(
    port: Port, user: str, seen: set[str]
) -> None:
    paths = {
        *("/metrics", "/groups", "/groups/own", "/groups/g", "/transactions", "/transactions/x"),
        *("/groups/own/rebalances", "/groups/g/rebalances", "/topics/t/0/transactions"),
    }
    forbidden = {path for path in paths if port.get(path, user)[0] == 403}
    allowed = paths - forbidden
    if user in {"tenant", "nobody"}:
        assert allowed == seen
    else:
        assert seen <= allowed


def test_the_console_is_for_those_who_see_the_cluster(port: Port) -> None:
    assert port.ask(port.console + "/", {})[0] == 401
    statuses = [console_status(port, user, "groups") for user in ("watcher", "tenant")]
    assert statuses == [200, 403]


def console_status(port: Port, user: str, path: str) -> int:
    credentials = base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
    return port.ask(f"{port.console}/api/{path}", {"Authorization": f"Basic {credentials}"})[0]


def test_records_are_for_those_who_may_read_the_topic(port: Port) -> None:
    def status(user: str, topic: str) -> int:
        return console_status(port, user, f"topics/{topic}/records")

    # There is neither topic: whether there is one is told only to those who may read it.
    assert status("watcher", "readable") == 404
    assert status("watcher", "secret") == 403
    assert status("root", "secret") == 404
    assert status("tenant", "readable") == 403


def test_settings_of_the_broker_are_for_those_who_may_describe_them(port: Port) -> None:
    assert console_status(port, "watcher", "broker") == 200
    assert console_status(port, "watcher", "broker/configs") == 403
    assert console_status(port, "root", "broker/configs") == 200


PASSWORDS = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"}


@pytest.mark.parametrize(
    ("console", "settings", "is_open"),
    [
        ("localhost", {}, True),
        ("", {}, False),
        ("", {"listeners": "PLAINTEXT://0.0.0.0:0"}, True),
        ("localhost", {"authorizer.class.name": "kohort", "super.users": "User:ANONYMOUS"}, False),
        ("localhost", PASSWORDS, False),
    ],
    ids=["here", "wider than the listener", "as wide", "with rules", "with passwords"],
)
def test_without_authentication_records_are_for_those_who_could_consume_them(
    tmp_path: Path, console: str, settings: dict[str, str], *, is_open: bool
) -> None:
    number = free_port()
    given = {
        "kohort.console.port": str(number),
        "kohort.console.host": console,
        "kohort.http.authentication": "none",
        **settings,
    }
    with BrokerThread(tmp_path, overrides=given):
        request = f"http://127.0.0.1:{number}/api/topics/t/records"
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(request, timeout=30)
        error.value.close()
    assert error.value.code == (404 if is_open else 403)


def test_what_is_denied_is_denied_alike_whether_it_is_there_or_not(port: Port) -> None:
    assert port.get("/groups/g", "nobody") == port.get("/groups/there-is-none", "nobody")


def test_a_command_says_who_asks(
    port: Port, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def properties(user: str) -> str:
        path = tmp_path / f"{user}.properties"
        path.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={port.authority.certificate}\n"
            f'sasl.jaas.config={MODULE} required username="{user}" password="{PASSWORD}";\n'
        )
        return str(path)

    def why(user: str, url: str) -> int:
        return main(
            ["groups", "why", "own", "--http", url, "--command-config", properties(user), "--json"]
        )

    # It is asked as that user, and there is no such group.
    assert why("watcher", port.url) == 1
    assert "there is no group" in capsys.readouterr().err
    assert why("tenant", port.url) == 1
    assert "there is no group" in capsys.readouterr().err
    assert why("nobody", port.url) == 4
    assert "DESCRIBE on the group" in capsys.readouterr().err
    # Without a trust store, the issuer of the certificate is unknown.
    assert main(["groups", "why", "own", "--http", port.url]) == 3
    assert "ssl.truststore.location must trust its issuer" in capsys.readouterr().err
    # The password goes nowhere without TLS.
    assert why("watcher", "http://192.0.2.1:9308") == 2
    assert "no TLS" in capsys.readouterr().err


def test_with_rights_a_port_that_others_reach_is_not_open_by_omission(tmp_path: Path) -> None:
    settings = {
        "authorizer.class.name": "kohort",
        "super.users": "User:ANONYMOUS",
        "kohort.metrics.host": "0.0.0.0",
        "kohort.metrics.port": "0",
    }
    with (
        pytest.raises(StartError, match=r"kohort\.http\.authentication"),
        BrokerThread(tmp_path, overrides=settings),
    ):
        pass
    with BrokerThread(tmp_path, overrides={**settings, "kohort.http.authentication": "none"}):
        pass


def test_a_certificate_without_a_key_store_stops_the_start(tmp_path: Path) -> None:
    settings = {
        "kohort.metrics.port": "0",
        "listener.name.http.ssl.keystore.location": str(tmp_path / "none.pem"),
    }
    with pytest.raises(StartError, match=r"none\.pem"), BrokerThread(tmp_path, overrides=settings):
        pass


def test_members_of_a_group_are_for_those_who_see_the_cluster(port: Port) -> None:
    listed = json.loads(port.get("/groups", "tenant")[1])
    assert listed == {"groups": [], "total": 0, "after": None}


def test_a_renewed_certificate_is_shown_to_new_connections(port: Port) -> None:
    address = "127.0.0.1", int(port.url.rpartition(":")[2])
    before = ssl.get_server_certificate(address)
    port.authority.issue("http", "IP:127.0.0.1")
    port.broker.call(port.broker.broker.listeners.tls["HTTP"].reload)
    assert ssl.get_server_certificate(address) != before
    assert port.get("/groups", "root")[0] == 200

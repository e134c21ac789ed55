"""Secrets among the settings, at the start and at run time, of the broker and of single listeners:
none of them is in an answer, a page, a log, a traceback or a debugging text.
"""

import base64
import gc
import logging
import re
import secrets
import ssl
import subprocess
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import pytest

from kohort.admin.users import hashed
from kohort.broker.app import StartError
from kohort.broker.config import ConfigError
from kohort.cli.stopped_broker import stopped_broker
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.alter_configs import AlterableConfig as OldConfig
from kohort.protocol.messages.alter_configs import AlterConfigsResource as OldResource
from kohort.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.certificates import Authority
from tests.support.brokers.server_process import free_port
from tests.support.network.wire import RawClient
from tests.support.processes.commands import said_by_process

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
FOREIGN: Final = "com.sun.security.auth.module.JndiLoginModule"
TOPIC, BROKER = 2, 4
PROTOCOLS: Final = "listener.security.protocol.map"
LISTENERS: Final = {
    "listeners": "OWN://127.0.0.1:0,BARE://127.0.0.1:0,TLS://127.0.0.1:0",
    PROTOCOLS: "OWN:SASL_PLAINTEXT,BARE:SASL_PLAINTEXT,TLS:SSL",
}
"""One of the two with passwords has settings of its own."""


class Planted:
    """Secrets that are somewhere, each looked for by itself."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def new(self) -> str:
        self.all.append(secrets.token_hex(12))
        return self.all[-1]

    def key(self, path: Path, password: str | None = None) -> str:
        """The private key at `path` as PEM in a line, encrypted if there is a password."""
        command = ["openssl", "pkcs8", "-topk8", "-in", str(path)]
        command += ["-nocrypt"] if password is None else ["-passout", f"pass:{password}"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self.all += text.splitlines()[1:-1]
        return text.replace("\n", " ")

    def found_in(self, texts: list[str]) -> list[str]:
        everything = "\n".join(texts)
        return [one for one in self.all if one in everything]


@pytest.fixture
def planted() -> Planted:
    return Planted()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "certificates")
    made.issue("broker", "IP:127.0.0.1")
    return made


def given_settings(planted: Planted, authority: Authority) -> dict[str, str]:
    password = planted.new()
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.jaas.config": f'{PLAIN} required user_a="{planted.new()}";',
        "listener.name.own.plain.sasl.jaas.config": (
            f'{PLAIN} required username="b" password="{planted.new()}" user_b="{planted.new()}";'
        ),
        "listener.name.own.scram-sha-256.sasl.jaas.config": (
            f'{SCRAM} required username="c" password="{planted.new()}";'
        ),
        "listener.name.tls.ssl.keystore.key": planted.key(
            authority.directory / "broker.key", password
        ),
        "listener.name.tls.ssl.keystore.certificate.chain": (
            (authority.directory / "broker.crt").read_text()
        ),
        "listener.name.tls.ssl.key.password": password,
        "listener.name.http.ssl.keystore.location": str(authority.directory / "broker.pem"),
        "delegation.token.secret.key": planted.new(),
        "sasl.oauthbearer.client.credentials.client.secret": planted.new(),
    }


class Change(NamedTuple):
    """Settings that the others are changed by."""

    values: dict[str, str]
    at_start: bool = False
    """Whether a broker starts with them."""
    at_run_time: bool = False


def changes(planted: Planted, authority: Authority) -> Iterator[Change]:
    """Changes to try; those that cannot be have each another reason."""
    key, password = authority.directory / "broker.key", planted.new()
    own, tls, jaas = "listener.name.own.", "listener.name.tls.", "sasl.jaas.config"
    both = {"at_start": True, "at_run_time": True}
    yield Change({jaas: f'{PLAIN} required user_d="{planted.new()}";'}, **both)
    mine = {f"{own}plain.{jaas}": f'{PLAIN} required user_e="{planted.new()}";'}
    yield Change(mine, at_start=True)
    again = planted.key(key, password)
    yield Change({f"{tls}ssl.keystore.key": again, f"{tls}ssl.key.password": password}, **both)
    yield Change({f"{tls}ssl.key.password": planted.new()})
    yield Change({f"{tls}ssl.keystore.key": planted.key(key)})
    yield Change({f"{tls}ssl.keystore.key": f"-----BEGIN PRIVATE KEY----- {planted.new()}"})
    yield Change({jaas: f'{FOREIGN} required password="{planted.new()}";'})
    yield Change({jaas: f'{PLAIN} required user_f="{planted.new()}'})
    yield Change({f"{own}plain.{jaas}": planted.new()})
    yield Change({f"{own}no.such.setting": planted.new()}, at_start=True)
    yield Change({"listener.name.nowhere.ssl.key.password": planted.new()}, at_start=True)
    yield Change({"no.such.password": planted.new()}, at_start=True)
    yield Change({"super.users": planted.new()}, at_start=True)


def change_requests(
    kind: int, name: str, values: Mapping[str, str]
) -> Iterator[tuple[object, int, type]]:
    """The same change by both APIs."""
    new = [AlterableConfig(name=one, config_operation=0, value=to) for one, to in values.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=new)
    yield (
        m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
        1,
        m.IncrementalAlterConfigsResponse,
    )
    old = [OldConfig(name=one, value=to) for one, to in values.items()]
    whole = OldResource(resource_type=kind, resource_name=name, configs=old)
    yield m.AlterConfigsRequest(resources=[whole], validate_only=True), 2, m.AlterConfigsResponse


def described(client: RawClient) -> Iterator[str]:
    for name in ("1", ""):
        resource = m.DescribeConfigsResource(
            resource_type=BROKER, resource_name=name, configuration_keys=None
        )
        asked = m.DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=True
        )
        yield repr(client.call(asked, 4, m.DescribeConfigsResponse))


PAGES: Final = (
    *("/", "/metrics", "/groups", "/groups/g", "/transactions", "/transactions/x"),
    *("/api/broker", "/api/checks", "/api/topics", "/api/groups", "/-/ready", "/nowhere"),
)
"""Paths of the port for metrics and of the console."""


def pages(port: int, user: str, password: str, paths: Sequence[str] = PAGES) -> Iterator[str]:
    """What a browser is shown, be it that it may not see it."""
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    for path in paths:
        url = f"https://127.0.0.1:{port}{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Basic {token}"})
        trusting_all = ssl._create_unverified_context()
        try:
            with urllib.request.urlopen(request, context=trusting_all, timeout=30) as page:
                yield page.read().decode()
        except urllib.error.HTTPError as error:
            yield f"{error.headers}{error.read().decode()}"


def debugging_texts() -> list[str]:
    """The texts of all objects of the broker, but for requests, which tests have, too."""
    gc.collect()
    found = []
    for one in gc.get_objects():
        module = type(one).__module__
        if module.startswith("kohort.broker."):
            found.append(repr(one))
    return found


def fail(*_arguments: object) -> NoReturn:
    raise RuntimeError("as planned")


def test_no_secret_of_the_settings_is_told_while_they_change(
    tmp_path: Path, authority: Authority, planted: Planted, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ports = {name: free_port() for name in ("PLAINTEXT", "http", "console")}
    settings = {
        **given_settings(planted, authority),
        "listeners": f"PLAINTEXT://127.0.0.1:{ports['PLAINTEXT']},{LISTENERS['listeners']}",
        PROTOCOLS: f"PLAINTEXT:PLAINTEXT,{LISTENERS[PROTOCOLS]}",
        "authorizer.class.name": "kohort",
        "super.users": "User:root;User:ANONYMOUS",
        "kohort.http.authentication": "basic",
        "kohort.metrics.port": str(ports["http"]),
        "kohort.console.port": str(ports["console"]),
        "connection.failed.authentication.delay.ms": "1",
    }
    root, wrong = planted.new(), planted.new()
    with stopped_broker(str(tmp_path / "data")) as place:
        place.set_password("root", hashed(root, ["SCRAM-SHA-256"], 4_096))
    told: list[str] = []
    with BrokerThread(tmp_path / "data", overrides=settings) as broker:
        with RawClient(ports["PLAINTEXT"]) as admin:
            told += described(admin)
            for change in changes(planted, authority):
                for request, version, response in change_requests(BROKER, "1", change.values):
                    answer: Any = admin.call(request, version, response)
                    code = answer.responses[0].error_code
                    assert (code == ErrorCode.NONE) == change.at_run_time, answer
                    told.append(repr(answer))
                told += described(admin)
            for request, version, response in change_requests(
                TOPIC, "t", {"ssl.key.password": planted.new()}
            ):
                told.append(repr(admin.call(request, version, response)))
            broker.call(lambda: broker.broker.router.intercept(lambda _: fail))
            for request, version, response in change_requests(
                BROKER, "1", {"listener.name.tls.ssl.key.password": planted.new()}
            ):
                told.append(repr(admin.call(request, version, response)))
            broker.call(lambda: broker.broker.router.intercept(None))
        for port in (ports["http"], ports["console"]):
            shown = list(pages(port, "root", root))
            assert "kohort_" in shown[1] or port == ports["console"]
            told += shown
            # An address that fails ten times waits longer.
            told += pages(port, "root", wrong, PAGES[:4])
        texts = broker.call(debugging_texts)
        assert any("CurrentConfig" in one or "BrokerConfig" in one for one in texts)
        told += texts
    assert "as planned" in caplog.text
    assert "Traceback" in caplog.text
    assert len(planted.all) > 30
    assert planted.found_in([*told, caplog.text]) == []


def test_no_secret_is_told_of_a_start_that_fails(
    tmp_path: Path, authority: Authority, planted: Planted, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = []
    for number, change in enumerate(changes(planted, authority)):
        settings = {
            **given_settings(planted, authority),
            **LISTENERS,
            **change.values,
        }
        expected = nullcontext() if change.at_start else pytest.raises((StartError, ConfigError))
        with expected as refused, BrokerThread(tmp_path / f"data-{number}", overrides=settings):
            pass
        if refused is not None:
            told += [repr(refused.value), *traceback.format_exception(refused.value)]
    assert planted.found_in([*told, caplog.text]) == []
    assert re.search("ssl.key.password is wrong", "".join(told))


@pytest.mark.parametrize("is_json", [False, True])
def test_no_secret_is_told_of_settings_that_are_checked(
    tmp_path: Path, authority: Authority, planted: Planted, is_json: bool
) -> None:
    values = given_settings(planted, authority)
    extra = {
        "fine": {},
        "wrong": {"sasl.jaas.config": f'{PLAIN} required user_x="{planted.new()}'},
        "unknown": {"no.such.password": planted.new(), "listener.name.own.no": planted.new()},
    }
    told = []
    for name, more in extra.items():
        file = tmp_path / f"{name}.properties"
        lines = [
            f"{key}={' '.join(value.splitlines())}\n" for key, value in {**values, **more}.items()
        ]
        listeners = [f"{one}={text}\n" for one, text in LISTENERS.items()]
        file.write_text("".join([*listeners, *lines]))
        arguments = ["config", "check", "--config", str(file), *(["--json"] * is_json)]
        told.append(repr(said_by_process(*arguments)))
    assert "sasl.jaas.config" in told[0]
    assert planted.found_in(told) == []

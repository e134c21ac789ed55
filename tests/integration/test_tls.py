"""Listeners with TLS, over real sockets."""

import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from kohort.broker.app import StartError
from kohort.broker.core.security.session import Principal
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.certificates import Authority
from tests.support.brokers.server_process import free_port
from tests.support.clients.confluent_client import QUIET
from tests.support.network.wire import request_body, response_in
from tests.support.processes.java_env import missing

pytestmark = pytest.mark.usefixtures("broker")
"""Each test may be the first in its process."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("PLAINTEXT", "SSL", "MUTUAL", "MAPPED")}


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, ports: dict[str, int]
) -> Iterator[BrokerThread]:
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    # A copy: other tests have certificates of the same name issued.
    store = tmp_path_factory.mktemp("store") / "broker.pem"
    shutil.copy(authority.issue("broker", "IP:127.0.0.1,DNS:localhost"), store)
    overrides = {
        "listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,MAPPED:SSL",
        "ssl.keystore.location": str(store),
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mapped.ssl.client.auth": "requested",
        "listener.name.mapped.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+).*$/$1@here/U",
    }
    with BrokerThread(tmp_path_factory.mktemp("data"), overrides=overrides) as broker:
        yield broker


def trusting(authority: Authority, own: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if own is not None:
        context.load_cert_chain(own)
    return context


def connected(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def ask(connection: socket.socket, *topics: str) -> m.MetadataResponse:
    named = [m.MetadataRequestTopic(name=topic) for topic in topics]
    body = request_body(m.MetadataRequest(topics=named), 9)
    connection.sendall(len(body).to_bytes(4, "big") + body)
    size = int.from_bytes(exactly(connection, 4), "big")
    return response_in(exactly(connection, size), m.MetadataResponse, 9)


def exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise ConnectionResetError("closed")
        found += part
    return found


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_first_request_may_be_large(
    authority: Authority, ports: dict[str, int], version: ssl.TLSVersion
) -> None:
    context = trusting(authority)
    context.minimum_version = context.maximum_version = version
    # Right behind the handshake's last message, and more than a handshake may be.
    names = [f"{number}".rjust(30_000, "x") for number in range(20)]
    for _ in range(20):
        with connected(ports["SSL"], context) as connection:
            assert len(ask(connection, *names).topics) == len(names)


def principals(broker: BrokerThread) -> set[Principal]:
    """Principals that are connected; what another test has closed may still be among them."""
    connections = broker.broker.network._connections
    return broker.call(lambda: {one.info.session.principal for one in connections})


def test_a_certificate_names_the_principal(
    broker: BrokerThread, authority: Authority, ports: dict[str, int]
) -> None:
    context = trusting(authority, authority.issue("alice", "DNS:alice"))
    with connected(ports["MUTUAL"], context) as connection:
        ask(connection)
        assert Principal("User", "CN=alice") in principals(broker)
    with connected(ports["MAPPED"], context) as connection:
        ask(connection)
        assert Principal("User", "ALICE@HERE") in principals(broker)


def test_a_certificate_of_a_disabled_user_is_refused(
    broker: BrokerThread, authority: Authority, ports: dict[str, int]
) -> None:
    context = trusting(authority, authority.issue("mallory", "DNS:mallory"))
    with connected(ports["MUTUAL"], context) as before:
        ask(before)
        set_at_broker(broker, "kohort.users.disabled", "CN=mallory")
        try:
            with pytest.raises(OSError), closing(connected(ports["MUTUAL"], context)) as after:
                ask(after)
            ask(before)
            set_at_broker(broker, "kohort.users.disconnected", "CN=mallory")
            with pytest.raises(OSError):
                ask(before)
        finally:
            set_at_broker(broker, "kohort.users.disabled", "")
    with connected(ports["MUTUAL"], context) as again:
        ask(again)


def test_a_certificate_that_no_rule_matches_is_refused(
    authority: Authority, ports: dict[str, int]
) -> None:
    context = trusting(authority, authority.issue("4711", "DNS:x"))
    with pytest.raises(OSError), closing(connected(ports["MAPPED"], context)) as connection:
        ask(connection)


def test_where_a_certificate_is_required_none_and_a_strangers_are_refused(
    authority: Authority, ports: dict[str, int], tmp_path: Path
) -> None:
    stranger = Authority(tmp_path).issue("mallory", "DNS:mallory")
    for own in (None, stranger):
        context = trusting(authority, own)
        # With TLS 1.3 a client learns of it when it reads.
        with pytest.raises(OSError), closing(connected(ports["MUTUAL"], context)) as connection:
            ask(connection)


def test_authorities_of_the_system_sign_for_no_client(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Authority(tmp_path / "known")
    # As if the system trusted it.
    monkeypatch.setenv("SSL_CERT_FILE", str(known.certificate))
    port = free_port()
    overrides = {
        "listeners": f"SSL://127.0.0.1:{port}",
        "ssl.keystore.location": str(authority.issue("broker", "IP:127.0.0.1")),
        "ssl.client.auth": "requested",
    }
    with BrokerThread(tmp_path / "data", overrides=overrides):
        with closing(connected(port, trusting(authority))) as connection:
            ask(connection)
        context = trusting(authority, known.issue("alice", "DNS:alice"))
        with pytest.raises(OSError), closing(connected(port, context)) as connection:
            ask(connection)


def test_certificates_are_asked_for_at_run_time_where_a_listener_does_not_say_it_itself(
    broker: BrokerThread, authority: Authority, ports: dict[str, int]
) -> None:
    context = trusting(authority)
    set_at_broker(broker, "ssl.client.auth", "required")
    try:
        with pytest.raises(OSError), closing(connected(ports["SSL"], context)) as connection:
            ask(connection)
        with closing(connected(ports["MAPPED"], context)) as connection:
            ask(connection)
    finally:
        set_at_broker(broker, "ssl.client.auth", "none")
    with closing(connected(ports["SSL"], context)) as connection:
        ask(connection)


def test_a_plain_client_of_a_tls_port_is_closed(ports: dict[str, int]) -> None:
    body = request_body(m.MetadataRequest(topics=[]), 9)
    with socket.create_connection(("127.0.0.1", ports["SSL"]), timeout=30) as connection:
        connection.sendall(len(body).to_bytes(4, "big") + body)
        alert = connection.recv(100)
        assert alert[:1] in {b"", b"\x15"}


@pytest.mark.parametrize(
    ("version", "command", "goes_on"), [("-tls1_2", "R", False), ("-tls1_3", "K", True)]
)
def test_a_handshake_is_not_begun_again_and_keys_may_be_renewed(
    authority: Authority, ports: dict[str, int], version: str, command: str, goes_on: bool
) -> None:
    if shutil.which("openssl") is None:
        missing("openssl is not installed")
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{ports['SSL']}", version,
         "-CAfile", authority.certificate],
        input=f"{command}\n".encode() * 3,
        capture_output=True,
        check=False,
        timeout=60,
    )  # fmt: skip
    said = (done.stdout + done.stderr).decode()
    assert ("KEYUPDATE" if goes_on else "RENEGOTIATING") in said
    assert ("no renegotiation" in said) is not goes_on
    assert (done.returncode == 0) is goes_on
    with closing(connected(ports["SSL"], trusting(authority))) as connection:
        ask(connection)


def test_librdkafka_produces_and_consumes(authority: Authority, ports: dict[str, int]) -> None:
    admin = AdminClient(
        {
            **QUIET,
            "bootstrap.servers": f"127.0.0.1:{ports['SSL']}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority.certificate),
        }
    )
    (known,) = admin.list_topics(timeout=20).brokers.values()
    assert known.port == ports["SSL"]


def serial(port: int, authority: Authority) -> str:
    with connected(port, trusting(authority)) as connection:
        found: Any = connection.getpeercert()
        return str(found["serialNumber"])


def set_location(broker: BrokerThread, path: Path | str) -> None:
    set_at_broker(broker, "listener.name.ssl.ssl.keystore.location", str(path))


def set_at_broker(broker: BrokerThread, name: str, value: str) -> None:
    """Raises KafkaException."""
    admin = AdminClient({**QUIET, "bootstrap.servers": f"127.0.0.1:{broker.port}"})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(30)


def test_a_key_store_is_replaced_while_connections_stay(
    broker: BrokerThread, authority: Authority, ports: dict[str, int], tmp_path: Path
) -> None:
    before = serial(ports["SSL"], authority)
    names = "IP:127.0.0.1,DNS:localhost"
    first = authority.issue("broker", names)
    renewed = tmp_path / "renewed.pem"
    renewed.write_bytes(first.read_bytes())
    with connected(ports["SSL"], trusting(authority)) as old:
        ask(old)
        for refused in ("nowhere.pem", authority.issue("other", names)):
            with pytest.raises(KafkaException, match=r"key store|cannot be read"):
                set_location(broker, refused)
        with pytest.raises(KafkaException, match="alternative names"):
            set_location(broker, authority.issue("broker", "IP:127.0.0.1"))
        assert serial(ports["SSL"], authority) == before
        set_location(broker, renewed)
        assert serial(ports["SSL"], authority) != before
        ask(old)
    renewed.write_bytes(authority.issue("broker", names).read_bytes())
    os.utime(renewed, (time.time() + 5, time.time() + 5))
    seen = serial(ports["SSL"], authority)
    broker.call(broker.broker.listeners.tls["SSL"].reload_if_changed)
    assert serial(ports["SSL"], authority) != seen
    renewed.write_text("no key")
    broker.call(broker.broker.listeners.tls["SSL"].reload)
    serial(ports["SSL"], authority)
    tls = broker.broker.listeners.tls["SSL"]
    assert tls.reload_failures == 1
    assert time.time() < tls.expires_s < time.time() + 3 * 86_400
    # Whatever else is set at run time has this listener read its store again.
    renewed.write_bytes(authority.issue("broker", names).read_bytes())


def encrypted(authority: Authority) -> str:
    key = authority.directory / "broker.key"
    command = ["openssl", "pkcs8", "-topk8", "-in", str(key), "-passout", "pass:secret"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def inline(authority: Authority) -> dict[str, str]:
    authority.issue("broker", "IP:127.0.0.1,DNS:localhost")
    return {
        # As a properties file may have it: one line.
        "ssl.keystore.key": " ".join(encrypted(authority).split("\n")),
        "ssl.keystore.certificate.chain": (authority.directory / "broker.crt").read_text(),
        "ssl.key.password": "secret",
    }


@pytest.mark.parametrize("client_auth", ["none", "requested"])
def test_a_start_warns_of_certificates_that_are_asked_for_in_vain(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture, client_auth: str
) -> None:
    overrides = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.issue("broker", "IP:127.0.0.1")),
        "ssl.client.auth": client_auth,
    }
    with BrokerThread(tmp_path, overrides=overrides):
        pass
    assert ("and rejects all of" in caplog.text) == (client_auth == "requested")


def test_a_start_warns_of_a_certificate_that_is_not_for_this_machine_where_it_is_advertised(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    store = authority.issue("broker", "DNS:localhost")
    overrides = {"listeners": "SSL://:0", "ssl.keystore.location": str(store)}
    with BrokerThread(tmp_path, overrides=overrides):
        pass
    assert f"Listener SSL advertises {socket.gethostname()}, but" in caplog.text


def test_a_start_warns_of_an_advertised_host_that_the_certificate_is_not_for(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    store = authority.issue("broker", "DNS:localhost")
    overrides = {
        "listeners": "SSL://127.0.0.1:0",
        "advertised.listeners": "SSL://broker.example.com:9093",
        "ssl.keystore.location": str(store),
    }
    with BrokerThread(tmp_path, overrides=overrides):
        pass
    assert "Listener SSL advertises broker.example.com, but" in caplog.text


SUITES = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"as in an environment variable": ""}, None),
        ({"ssl.key.password": "wrong"}, "is wrong"),
        ({"ssl.key.password": None}, "encrypted"),
        ({"ssl.keystore.key": "nonsense"}, "has no private key"),
        ({"ssl.cipher.suites": "TLS_NONSENSE"}, "does not know"),
        ({"ssl.principal.mapping.rules": "RULE:("}, "is not a rule"),
        ({"ssl.cipher.suites": SUITES}, None),
    ],
)
def test_a_key_may_be_in_the_settings_themselves(
    tmp_path: Path,
    authority: Authority,
    change: dict[str, str | None],
    why: str | None,
) -> None:
    given = {"listeners": "SSL://127.0.0.1:0", **inline(authority), **change}
    if given.pop("as in an environment variable", None) is not None:
        for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain"):
            pem = authority.directory / ("broker.key" if name.endswith("key") else "broker.crt")
            given[name] = pem.read_text().replace("\n", "\\n")
        del given["ssl.key.password"]
    overrides = {name: value for name, value in given.items() if value is not None}
    broker = BrokerThread(tmp_path, overrides=overrides)
    if why is not None:
        with pytest.raises(StartError, match=why):
            broker.__enter__()
        return
    with broker, connected(broker.port, trusting(authority)) as connection:
        assert len(ask(connection).brokers) == 1


@pytest.mark.parametrize("own", [None, "none", "required"])
def test_a_listener_with_sasl_has_its_own_setting_of_client_auth(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture, own: str | None
) -> None:
    overrides = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "ssl.keystore.location": str(authority.issue("broker", "IP:127.0.0.1")),
        "ssl.truststore.location": str(authority.certificate),
        "ssl.client.auth": "required",
    }
    if own is not None:
        overrides["listener.name.sasl_ssl.ssl.client.auth"] = own
    with BrokerThread(tmp_path, overrides=overrides) as broker:
        wanted = broker.call(lambda: broker.broker.listeners.tls["SASL_SSL"].context.verify_mode)
    assert (wanted == ssl.CERT_REQUIRED) == (own == "required")
    assert ("ssl.client.auth applies only to SSL listeners" in caplog.text) == (own is None)

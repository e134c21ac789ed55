"""Listeners with SASL, over real sockets: which requests may come when, and what is told."""

import gc
import re
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from kohort.admin.users import hashed
from kohort.broker.core.security.session import Principal
from kohort.cli.stopped_broker import stopped_broker
from kohort.client.net.sasl import Plain
from kohort.protocol.errors import ErrorCode
from kohort.protocol.scram import salted_password
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.server_process import free_port
from tests.support.clients.confluent_client import QUIET
from tests.support.network.sasl import choose, log_in, log_in_by_scram, say
from tests.support.network.wire import RawClient, framed, header, request_body

PASSWORD = "alice's secret = 100%"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
NAMES = ("PLAINTEXT", "SASL", "SHORT")


pytestmark = pytest.mark.usefixtures("broker")
"""Each test may be the first in its process."""


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in NAMES}


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]
) -> Iterator[BrokerThread]:
    sasl = "SASL_PLAINTEXT"
    overrides = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,SASL:{sasl},SHORT:{sasl}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl.plain.sasl.jaas.config": f'{MODULE} required user_given="in file";',
        "listener.name.short.connections.max.reauth.ms": "3600000",
        "connection.failed.authentication.delay.ms": "1",
    }
    with BrokerThread(tmp_path_factory.mktemp("data"), overrides=overrides) as broker:
        admin = AdminClient({**QUIET, "bootstrap.servers": f"127.0.0.1:{ports['PLAINTEXT']}"})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            wanted: list[UserScramCredentialAlteration] = [
                UserScramCredentialUpsertion("alice", info, PASSWORD.encode())
            ]
            for future in admin.alter_user_scram_credentials(wanted).values():
                future.result(30)
        yield broker


@pytest.fixture
def client(broker: BrokerThread, ports: dict[str, int]) -> Iterator[RawClient]:
    with RawClient(ports["SASL"]) as client:
        yield client


def code_of(client: RawClient, user: str = "alice", password: str = PASSWORD) -> int:
    return log_in(client, user, password).error_code


def is_served(client: RawClient) -> bool:
    return bool(client.call(m.MetadataRequest(topics=[]), 9, m.MetadataResponse).brokers)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_lets_in_and_proves_the_broker(client: RawClient, mechanism: str) -> None:
    assert log_in_by_scram(client, "alice", PASSWORD, mechanism).error_code == 0
    assert is_served(client)


@pytest.mark.parametrize("salt", [b"", b"salt", b"s" * 1_024])
def test_a_salt_may_have_any_length_up_to_the_limit(
    broker: BrokerThread, ports: dict[str, int], salt: bytes
) -> None:
    user = f"salted-{len(salt)}"
    salted = salted_password("sha256", b"secret", salt, 4_096)
    wanted = m.ScramCredentialUpsertion(
        name=user, mechanism=1, iterations=4_096, salt=salt, salted_password=salted
    )
    alter = m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
    with RawClient(ports["PLAINTEXT"]) as client:
        (done,) = client.call(alter, 0, m.AlterUserScramCredentialsResponse).results
        assert done.error_code == 0
    with RawClient(ports["SASL"]) as client:
        assert code_of(client, user, "secret") == 0
    with RawClient(ports["SASL"]) as client:
        assert log_in_by_scram(client, user, "secret").error_code == 0
        assert is_served(client)


def test_plain_is_checked_against_the_stored_credential_and_the_settings(
    broker: BrokerThread, ports: dict[str, int]
) -> None:
    for user, password in (("alice", PASSWORD), ("alice", PASSWORD), ("given", "in file")):
        with RawClient(ports["SASL"]) as client:
            assert code_of(client, user, password) == 0
            assert is_served(client)
            connections = list(broker.broker.network._connections)
            found = [one.info.session.principal for one in connections]
            assert Principal("User", user) in found


def set_for_all_listeners(ports: dict[str, int], text: str | None) -> None:
    """Raises KafkaException."""
    entry = ConfigEntry(
        "sasl.jaas.config",
        text,
        incremental_operation=AlterConfigOpType.SET if text else AlterConfigOpType.DELETE,
    )
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({**QUIET, "bootstrap.servers": f"127.0.0.1:{ports['PLAINTEXT']}"})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def test_users_of_the_settings_change_at_run_time_where_a_listener_has_none_of_its_own(
    ports: dict[str, int],
) -> None:
    def logs_in(listener: str, user: str, password: str) -> bool:
        with RawClient(ports[listener]) as client:
            return code_of(client, user, password) == 0

    assert not logs_in("SHORT", "later", "added")
    set_for_all_listeners(ports, f'{MODULE} required user_later="added";')
    assert logs_in("SHORT", "later", "added")
    assert not logs_in("SASL", "later", "added")
    assert logs_in("SASL", "given", "in file")
    with pytest.raises(KafkaException, match="login module must be one of"):
        set_for_all_listeners(ports, "com.sun.security.auth.module.JndiLoginModule required;")
    assert logs_in("SHORT", "later", "added")
    set_for_all_listeners(ports, None)
    assert not logs_in("SHORT", "later", "added")


@pytest.mark.parametrize("user", ["alice", "nobody", "given"])
def test_a_wrong_password_and_an_unknown_user_are_told_the_same(
    client: RawClient, user: str
) -> None:
    assert choose(client) == 0
    told = say(client, Plain(user, "wrong").first())
    assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert told.error_message == "Authentication failed: Invalid username or password"
    assert client.is_closed()


def test_versions_may_be_asked_for_once(client: RawClient) -> None:
    versions = m.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    assert client.call(versions, 3, m.ApiVersionsResponse).error_code == 0
    client.send(framed(request_body(versions, 3)))
    assert client.is_closed()


def test_versions_may_be_asked_for_again_after_a_refusal(client: RawClient) -> None:
    client.send(framed(header(18, 99)))
    client.receive()
    versions = m.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    assert client.call(versions, 3, m.ApiVersionsResponse).error_code == 0
    assert code_of(client) == 0


def test_an_unknown_mechanism_is_told_which_there_are(client: RawClient) -> None:
    request = m.SaslHandshakeRequest(mechanism="GSSAPI")
    told = client.call(request, 1, m.SaslHandshakeResponse)
    assert told.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert set(told.mechanisms) == {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert client.is_closed()


WRONG = {
    "PLAIN": m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"),
    "SCRAM-SHA-256": m.SaslAuthenticateRequest(auth_bytes=b"nonsense"),
}


def test_a_connection_that_is_gone_is_freed_without_the_collector(
    broker: BrokerThread, ports: dict[str, int]
) -> None:
    found: list[weakref.ref[object]] = []

    def note() -> None:
        connections = list(broker.broker.network._connections)
        gates = [one.info.authentication for one in connections]
        found.extend(weakref.ref(gate) for gate in gates if gate is not None)

    gc.collect()
    gc.disable()
    try:
        for listener in ("SASL", "SHORT"):
            with RawClient(ports[listener]) as client:
                assert code_of(client) == 0
                broker.call(note)
            for mechanism, token in WRONG.items():
                for waits in (True, False):
                    # Another address, as who fails often is told so late.
                    with RawClient(ports[listener], source="127.9.9.9") as client:
                        assert choose(client, mechanism) == 0
                        broker.call(note)
                        client.send(framed(request_body(token, 2)))
                        if waits:
                            client.receive()
                            assert client.is_closed()
        assert len(found) >= 10
        for _ in range(6_000):
            if all(one() is None for one in found):
                return
            time.sleep(0.01)
    finally:
        gc.enable()
    raise AssertionError("something still knows them")


def test_a_request_that_comes_too_early_and_is_too_much_to_be_looked_at_is_not_answered(
    client: RawClient,
) -> None:
    topics = [m.MetadataRequestTopic(name="a" * 200)] * 30
    assert choose(client) == 0
    client.send(framed(request_body(m.MetadataRequest(topics=topics), 1)))
    assert client.is_closed()


def test_who_is_in_need_not_and_cannot_come_again(client: RawClient) -> None:
    assert code_of(client) == 0
    assert choose(client) == ErrorCode.ILLEGAL_SASL_STATE
    assert say(client, b"\0a\0b").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_served(client)


def test_where_clients_need_not_authenticate_they_cannot(
    broker: BrokerThread, ports: dict[str, int]
) -> None:
    with RawClient(ports["PLAINTEXT"]) as client:
        assert choose(client) == ErrorCode.ILLEGAL_SASL_STATE
        assert say(client, b"\0a\0b").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert is_served(client)


def test_bare_tokens_follow_the_first_version_of_the_handshake(client: RawClient) -> None:
    assert choose(client, version=0) == 0
    client.send(framed(Plain("alice", PASSWORD).first()))
    assert client.receive() == b""
    assert is_served(client)


def test_a_bare_token_that_is_wrong_ends_the_connection_without_a_word(client: RawClient) -> None:
    assert choose(client, version=0) == 0
    client.send(framed(Plain("alice", "wrong").first()))
    assert client.is_closed()


def test_all_may_be_sent_in_one_write(client: RawClient) -> None:
    client.send(
        framed(request_body(m.SaslHandshakeRequest(mechanism="PLAIN"), 1))
        + framed(
            request_body(m.SaslAuthenticateRequest(auth_bytes=Plain("alice", PASSWORD).first()), 2)
        )
        + framed(request_body(m.MetadataRequest(topics=[]), 9))
    )
    assert [bool(client.receive()) for _ in range(3)] == [True] * 3


def test_a_session_that_ends_is_told_and_renewed_by_the_same_user_alone(
    broker: BrokerThread, ports: dict[str, int]
) -> None:
    with RawClient(ports["SHORT"]) as client:
        assert choose(client) == 0
        told = say(client, Plain("alice", PASSWORD).first())
        assert told.session_lifetime_ms == 3_600_000
        assert is_served(client)
        assert choose(client) == 0
        assert say(client, Plain("alice", PASSWORD).first()).error_code == 0
        assert is_served(client)
        # Within a second of the one before it, unless this process was held up between the two.
        for _ in range(20):
            if choose(client) == ErrorCode.ILLEGAL_SASL_STATE:
                break
            assert say(client, Plain("alice", PASSWORD).first()).error_code == 0
        else:
            pytest.fail("a session is renewed as often as one likes")
    with RawClient(ports["SHORT"]) as client:
        assert code_of(client) == 0
        assert choose(client, "SCRAM-SHA-256") == 0
        assert say(client, b"n,,n=alice,r=x").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


@pytest.mark.parametrize("more_bytes", [0, 1])
def test_a_token_has_at_most_64_kib(client: RawClient, more_bytes: int) -> None:
    assert choose(client, "SCRAM-SHA-256") == 0
    begin = b"n,,n=alice,r=n0nce,x="
    answer = say(client, begin.ljust(65_536 + more_bytes, b"x"))
    assert bool(answer.auth_bytes) is not bool(more_bytes)
    code = ErrorCode.SASL_AUTHENTICATION_FAILED if more_bytes else ErrorCode.NONE
    assert answer.error_code == code


def test_credentials_are_stored_and_outlive_a_restart(tmp_path: Path) -> None:
    wanted = m.ScramCredentialUpsertion(
        name="bob", mechanism=1, iterations=4096, salt=bytes(16), salted_password=bytes(32)
    )
    alter = m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
    with BrokerThread(tmp_path) as broker, RawClient(broker.port) as client:
        done = client.call(alter, 0, m.AlterUserScramCredentialsResponse)
        assert done.results[0].error_code == 0
    describe = m.DescribeUserScramCredentialsRequest(users=[m.UserName(name="bob")])
    with BrokerThread(tmp_path) as broker, RawClient(broker.port) as client:
        (told,) = client.call(describe, 0, m.DescribeUserScramCredentialsResponse).results
        assert [info.iterations for info in told.credential_infos] == [4096]


@pytest.mark.parametrize(
    "change",
    [{"name": "x" * 256}, {"salt": bytes(1_025)}, {"salted_password": b""}],
    ids=["name", "salt", "password"],
)
def test_a_credential_beyond_our_limits_is_refused(
    broker: BrokerThread, ports: dict[str, int], change: dict[str, object]
) -> None:
    wanted = m.ScramCredentialUpsertion(
        name="carol", mechanism=1, iterations=4096, salt=bytes(16), salted_password=bytes(32)
    )
    for name, value in change.items():
        setattr(wanted, name, value)
    with RawClient(ports["PLAINTEXT"]) as client:
        alter = m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
        (result,) = client.call(alter, 0, m.AlterUserScramCredentialsResponse).results
    assert result.error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL


def test_users_are_for_administrators(tmp_path: Path) -> None:
    overrides = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{MODULE} required user_admin="a" user_guest="g";'
        ),
        "authorizer.class.name": "kohort",
        "super.users": "User:admin",
    }
    wanted = m.ScramCredentialUpsertion(
        name="bob", mechanism=1, iterations=4096, salt=bytes(16), salted_password=bytes(32)
    )
    alter = m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
    describe = m.DescribeUserScramCredentialsRequest(users=[m.UserName(name="bob")])
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with BrokerThread(tmp_path, overrides=overrides) as broker:
        for user, password, code in (("guest", "g", denied), ("admin", "a", ErrorCode.NONE)):
            with RawClient(broker.port) as client:
                assert code_of(client, user, password) == 0
                (done,) = client.call(alter, 0, m.AlterUserScramCredentialsResponse).results
                assert (done.user, done.error_code) == ("bob", code)
                told = client.call(describe, 0, m.DescribeUserScramCredentialsResponse)
                assert told.error_code == code
                assert [one.user for one in told.results] == ["" if code else "bob"]


def test_a_user_of_another_mechanism_is_told_of_as_that_and_to_the_log_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with stopped_broker(str(tmp_path)) as place:
        place.set_password("alice", hashed(PASSWORD, ["SCRAM-SHA-256"], 4_096))
    overrides = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    told = []
    with BrokerThread(tmp_path, overrides=overrides) as broker:
        for user in ("alice", "nobody"):
            with RawClient(broker.port) as client:
                answer = log_in_by_scram(client, user, PASSWORD, "SCRAM-SHA-512")
                told.append(answer.error_message)
    assert told[0] == told[1]
    refused = re.findall(
        "Failed authentication of '([a-z]+)' from .*: (.*)$", caplog.text, re.MULTILINE
    )
    assert refused == [
        ("alice", "the user has credentials only for SCRAM-SHA-256"),
        ("nobody", "unknown user"),
    ]


def test_a_client_without_sasl_is_told_of_as_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    with BrokerThread(tmp_path, overrides=overrides) as broker, RawClient(broker.port) as client:
        client.send(framed(request_body(m.MetadataRequest(topics=[]), 9)))
        assert client.is_closed()
    assert "a request with API key 3 before authentication; the client may not use" in caplog.text


@pytest.mark.parametrize(
    ("change", "is_warned"),
    [
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-512"}, True),
        ({}, True),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER", "kohort.oauth.unsecured": "true"}, False),
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, False),
        ({"sasl.jaas.config": 'PlainLoginModule required user_bob="x";'}, False),
    ],
)
def test_a_start_warns_that_there_are_no_users(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, str], is_warned: bool
) -> None:
    own = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"}
    with BrokerThread(tmp_path, overrides={**own, **change}):
        pass
    told = f"there are no users yet: `kohort users add NAME --data {tmp_path}` adds the first"
    assert (told in caplog.text) == is_warned
    caplog.clear()
    with stopped_broker(str(tmp_path)) as place:
        place.set_password("alice", hashed("secret", ["SCRAM-SHA-512"], 4_096))
    with BrokerThread(tmp_path, overrides={**own, **change}):
        pass
    assert "no users" not in caplog.text

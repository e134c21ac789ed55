"""TLS and SASL of the client's two kinds of connections, with the listeners of a real Kafka, and
with the same ones of a Kohort.
"""

import asyncio
import logging
import random
import ssl
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from confluent_kafka.admin import (
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from kohort import Consumer
from kohort.client.core.errors import (
    AuthenticationError,
    CertificateError,
    TlsError,
    UnsupportedMechanismError,
)
from kohort.client.net.address import Address
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.opening import open_connection
from kohort.client.net.security import SecurityConfig
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.metadata import MetadataRequest
from tests.support.brokers.on_both import on_both
from tests.support.brokers.secure_kafka import LISTENERS, PASSWORD, SESSION_MS, USER, SecureKafka
from tests.support.brokers.secure_kohort import SecureKohort
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.model import Record

TIMEOUT_MS = 60_000
AskBrokers = Callable[[str, int, SecurityConfig], Awaitable[set[int]]]
"""Connects and asks for the brokers' ports."""

Secure = SecureKafka | SecureKohort
kafka = on_both(SecureKafka, SecureKohort, long=SecureKafka)
"""One with listeners of all kinds: Kafka's, and ours."""


async def with_loop(host: str, port: int, security: SecurityConfig) -> set[int]:
    config = ConnectionConfig(request_timeout_ms=TIMEOUT_MS, security=security)
    connection = await open_connection(host, port, config)
    try:
        answer = await connection.call(MetadataRequest(topics=[]))
    finally:
        connection.close()
        await connection.wait_closed()
    return {broker.port for broker in answer.brokers}


async def with_thread(host: str, port: int, security: SecurityConfig) -> set[int]:
    config = ConnectionConfig(security=security)

    def ask() -> set[int]:
        connection = BlockingConnection(Address(host, port), config)
        try:
            connection.open(TIMEOUT_MS / 1000)
            answer = connection.call(MetadataRequest(topics=[]), TIMEOUT_MS / 1000)
        finally:
            connection.close()
        return {broker.port for broker in answer.brokers}

    return await asyncio.to_thread(ask)


@pytest.fixture(params=[with_loop, with_thread], ids=["loop", "thread"])
def ask_brokers(request: pytest.FixtureRequest) -> AskBrokers:
    asks: AskBrokers = request.param
    return asks


def trusting(kafka: Secure) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=kafka.authority.certificate)


def security_for(
    kafka: Secure,
    listener: str,
    **settings: Any,  # noqa: ANN401 - of many types.
) -> SecurityConfig:
    protocol = LISTENERS.get(listener, listener)
    if protocol.startswith("SASL_"):
        user = {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        settings = user | settings
    if protocol.endswith("SSL"):
        settings = {"ssl_context": trusting(kafka)} | settings
    return SecurityConfig(security_protocol=protocol, **settings)


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        ("PLAINTEXT", ""),
        ("SSL", ""),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-256"),
        ("SASL_SSL", "SCRAM-SHA-512"),
    ],
)
async def test_every_listener_lets_us_in(
    kafka: Secure, ask_brokers: AskBrokers, listener: str, mechanism: str
) -> None:
    security = security_for(kafka, listener, sasl_mechanism=mechanism)
    port = kafka.ports[listener]
    assert await ask_brokers("127.0.0.1", port, security) == {port}


@pytest.mark.parametrize(
    "mechanism", ["PLAIN", "SCRAM-SHA-256", pytest.param("SCRAM-SHA-512", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("wrong", ["sasl_plain_username", "sasl_plain_password"])
async def test_a_wrong_password_or_user_is_told_at_once_without_the_password(
    kafka: Secure, ask_brokers: AskBrokers, mechanism: str, wrong: str
) -> None:
    security = security_for(
        kafka, "SASL_SSL", sasl_mechanism=mechanism, **{wrong: "some-other-word"}
    )
    with pytest.raises(AuthenticationError) as refused:
        await ask_brokers("127.0.0.1", kafka.ports["SASL_SSL"], security)
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    text = str(refused.value)
    assert mechanism in text
    assert repr(security.sasl_plain_username) in text
    assert str(security.sasl_plain_password) not in text


Misfit = tuple[str, str, dict[str, Any], type[Exception] | tuple[type[Exception], ...], str]
MISFITS: dict[str, Misfit] = {
    "a mechanism that is not offered": (
        "SASL_PLAINTEXT",
        "SASL_PLAINTEXT",
        {"sasl_mechanism": "SCRAM-SHA-512"},
        UnsupportedMechanismError,
        "PLAIN, SCRAM-SHA-256",
    ),
    "SASL": ("PLAINTEXT", "SASL_PLAINTEXT", {}, UnsupportedMechanismError, "must be PLAINTEXT"),
    "no SASL": (
        "SASL_PLAINTEXT", "PLAINTEXT", {}, DisconnectedError, "SASL_PLAINTEXT or SASL_SSL",
    ),
    "TLS": ("PLAINTEXT", "SSL", {}, (DisconnectedError, TlsError), "to PLAINTEXT"),
    "no TLS": ("SSL", "PLAINTEXT", {}, DisconnectedError, "to SSL or SASL_SSL"),
    "an unknown authority": ("SSL", "SSL", {"ssl_context": None}, CertificateError, "ssl_context"),
    "no certificate of its own": ("MUTUAL", "MUTUAL", {}, CertificateError, "load_cert_chain"),
}  # fmt: skip
"""By what the client comes with: the listener, the one that it is configured for, what differs from
that, and how it is told.
"""


@pytest.mark.parametrize("misfit", MISFITS.values(), ids=MISFITS)
async def test_a_client_that_does_not_fit_the_listener_is_told_why(
    kafka: Secure, ask_brokers: AskBrokers, misfit: Misfit
) -> None:
    listener, other, changes, error, told = misfit
    with pytest.raises(error, match=told):
        await ask_brokers("127.0.0.1", kafka.ports[listener], security_for(kafka, other, **changes))


async def test_a_certificate_of_another_host_is_refused(
    kafka: Secure, ask_brokers: AskBrokers
) -> None:
    with pytest.raises(CertificateError, match=r"127\.0\.0\.2"):
        await ask_brokers("127.0.0.2", kafka.ports["SSL"], security_for(kafka, "SSL"))


async def test_a_listener_that_wants_to_know_the_client_gets_a_certificate(
    kafka: Secure, ask_brokers: AskBrokers
) -> None:
    context = trusting(kafka)
    context.load_cert_chain(kafka.authority.issue("client", "DNS:client"))
    security = security_for(kafka, "MUTUAL", ssl_context=context)
    port = kafka.ports["MUTUAL"]
    assert await ask_brokers("127.0.0.1", port, security) == {port}


def renewals(caplog: pytest.LogCaptureFixture) -> int:
    """How often a connection has authenticated again."""
    return sum(": reauthenticated" in record.getMessage() for record in caplog.records)


async def test_a_session_is_renewed_before_it_ends(
    kafka: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker hangs up on a request that comes later; none of ours may be lost so."""
    caplog.set_level(logging.DEBUG, "kohort.client.net")
    security = security_for(kafka, "SHORT", sasl_mechanism="SCRAM-SHA-256")
    config = ConnectionConfig(request_timeout_ms=TIMEOUT_MS, security=security)
    connection = await open_connection("127.0.0.1", kafka.ports["SHORT"], config)
    async with asyncio.timeout(20 * SESSION_MS / 1000):
        while renewals(caplog) < 2:
            await connection.call(MetadataRequest(topics=[]))
            await asyncio.sleep(0.02)
    connection.close()
    await connection.wait_closed()


async def test_a_session_that_has_ended_is_renewed_by_the_next_request(
    kafka: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kohort.client.net")
    security = security_for(kafka, "SHORT", sasl_mechanism="SCRAM-SHA-256")
    config = ConnectionConfig(request_timeout_ms=TIMEOUT_MS, security=security)
    connection = await open_connection("127.0.0.1", kafka.ports["SHORT"], config)
    await asyncio.sleep(1.2 * SESSION_MS / 1000)
    answers = await asyncio.gather(*(connection.call(MetadataRequest(topics=[])) for _ in range(5)))
    assert all(answer.brokers for answer in answers)
    assert renewals(caplog) == 1
    connection.close()
    await connection.wait_closed()


async def test_the_thread_renews_its_session_too(
    kafka: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kohort.client.net")
    security = security_for(kafka, "SHORT", sasl_mechanism="SCRAM-SHA-256")
    address = Address("127.0.0.1", kafka.ports["SHORT"])
    connection = BlockingConnection(address, ConnectionConfig(security=security))

    def ask() -> None:
        connection.open(TIMEOUT_MS / 1000)
        while not renewals(caplog):
            connection.call(MetadataRequest(topics=[]), TIMEOUT_MS / 1000)
            time.sleep(0.02)
        connection.close()

    async with asyncio.timeout(20 * SESSION_MS / 1000):
        await asyncio.to_thread(ask)


def consumer_settings(kafka: Secure, listener: str, name: str) -> dict[str, Any]:
    security = security_for(kafka, listener, sasl_mechanism="SCRAM-SHA-256")
    return {
        "bootstrap_servers": f"127.0.0.1:{kafka.ports[listener]}",
        "group_id": name,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
        "security_protocol": security.security_protocol,
        "ssl_context": security.ssl_context,
        "sasl_mechanism": security.sasl_mechanism,
        "sasl_plain_username": security.sasl_plain_username,
        "sasl_plain_password": security.sasl_plain_password,
    }


def fill(kafka: Secure, topic: str, *values: bytes) -> None:
    admin = admin_client(kafka.bootstrap)
    if topic not in admin.list_topics(timeout=10).topics:
        create_topics(admin, NewTopic(topic, 1, 1))
    ConfluentClient(kafka.bootstrap).produce(topic, [Record(value) for value in values])


@pytest.mark.long
async def test_a_whole_consumer_outlives_its_sessions(kafka: Secure) -> None:
    """All three of its connections authenticate again, the heartbeat thread's too."""
    name = f"short-{uuid.uuid4().hex[:12]}"
    await asyncio.to_thread(fill, kafka, name, b"first")
    async with (
        asyncio.timeout(60),
        Consumer(name, **consumer_settings(kafka, "SHORT", name)) as one,
    ):
        assert (await one.getone()).value == b"first"
        identity = one.group_metadata()
        # Until the broker had a coordinator there may have been some.
        failed = one.metrics()["failed-rebalance-total"]
        end_s = time.monotonic() + 2.5 * SESSION_MS / 1000
        while time.monotonic() < end_s:
            await one.poll(0.1)
        await asyncio.to_thread(fill, kafka, name, b"second")
        assert (await one.getone()).value == b"second"
        await one.commit()
        assert one.group_metadata() == identity
        assert one.metrics()["failed-rebalance-total"] == failed
        assert one.health().is_healthy


async def test_a_whole_consumer_speaks_sasl_over_tls(kafka: Secure) -> None:
    name = f"secure-{uuid.uuid4().hex[:12]}"
    # Many TLS records and many reads long.
    values = [b"small", random.Random(1).randbytes(900_000), b"behind it"]
    await asyncio.to_thread(fill, kafka, name, *values)
    settings = consumer_settings(kafka, "SASL_SSL", name)
    async with asyncio.timeout(60), Consumer(name, **settings) as one:
        assert [(await one.getone()).value for _ in values] == values
        await one.commit()
        while not one.metrics()["heartbeat-total"]:
            await one.poll(0.1)


async def test_a_consumer_whose_user_goes_away_is_told_by_its_next_poll(kafka: Secure) -> None:
    """When its session ends: the heartbeat thread has to find out, or a connection of the loop."""
    name = f"gone-{uuid.uuid4().hex[:12]}"
    await asyncio.to_thread(fill, kafka, name, b"value")
    guest, password = f"guest-{name}", "welcome"
    await asyncio.to_thread(change_user, kafka, guest, password)
    settings = consumer_settings(kafka, "SHORT", name)
    settings |= {"sasl_plain_username": guest, "sasl_plain_password": password}
    async with asyncio.timeout(90):
        one = Consumer(name, **settings)
        await one.start()
        assert (await one.getone()).value == b"value"
        await asyncio.to_thread(change_user, kafka, guest, None)
        with pytest.raises(AuthenticationError):
            await one.getone()
        await one.stop()


def change_user(kafka: Secure, user: str, password: str | None) -> None:
    """Make a user, or take one away."""
    admin = admin_client(kafka.bootstrap)
    change: Any = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)
    if password is not None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
        change = UserScramCredentialUpsertion(user, info, password.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(30)

"""The consumer with OAUTHBEARER: tokens that end while it runs, with Kafka and with Kohort."""

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

import pytest
from confluent_kafka.admin import NewTopic

from kohort import Consumer, OAuthToken
from kohort.client.core.errors import AuthenticationError, TokenError
from tests.support.brokers.oauth_brokers import OAuthKafka, OAuthKohort
from tests.support.brokers.on_both import on_both
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.model import Record

LIFETIME_S: Final = 4
LIMIT_S: Final = 90
SESSION_MS: Final = 6_000
"""The shortest that Kafka allows to a member of a group."""

Broker = OAuthKafka | OAuthKohort
broker = on_both(OAuthKafka, OAuthKohort, long=OAuthKafka)


@pytest.fixture
async def topic(broker: Broker) -> str:
    name = f"oauth-{uuid.uuid4().hex[:12]}"

    def make() -> None:
        create_topics(admin_client(broker.bootstrap), NewTopic(name, 1, 1))

    await asyncio.to_thread(make)
    return name


class Tokens:
    """A provider that counts; it may fail for a while."""

    def __init__(self, broker: Broker, lifetime_s: float = LIFETIME_S, **claims: object) -> None:
        self._broker = broker
        self._lifetime_s = lifetime_s
        self._claims = claims
        self.subject = "alice"
        self.count = 0
        self.failure: Exception | None = None

    def give(self) -> tuple[str, float]:
        if self.failure is not None:
            raise self.failure
        self.count += 1
        return self._broker.issuer.token(self.subject, self._lifetime_s, **self._claims)

    async def give_soon(self) -> OAuthToken:
        await asyncio.sleep(0.01)
        value, expires_s = self.give()
        return OAuthToken(value, expires_s, {"pool": "7"})


def consumer(broker: Broker, topic: str, provider: object, **others: Any) -> Consumer[Any, Any]:  # noqa: ANN401
    settings: dict[str, Any] = {
        "bootstrap_servers": f"127.0.0.1:{broker.ports['OAUTH']}",
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": SESSION_MS,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }
    return Consumer(topic, **settings | others)


async def fill(broker: Broker, topic: str, value: bytes) -> None:
    client = ConfluentClient(broker.bootstrap)
    await asyncio.to_thread(client.produce, topic, [Record(value)])


async def poll_until(one: Consumer[Any, Any], is_so: Callable[[], bool]) -> None:
    while not is_so():
        await one.poll(0.1)


def renewals(caplog: pytest.LogCaptureFixture, module: str) -> int:
    """How many connections of one kind have authenticated again."""
    return sum(
        record.name.endswith(module) and ": reauthenticated" in record.getMessage()
        for record in caplog.records
    )


async def test_a_consumer_outlives_its_tokens_by_authenticating_its_connections_again(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kohort.client.net")
    tokens = Tokens(broker)
    await fill(broker, topic, b"first")
    async with asyncio.timeout(LIMIT_S), consumer(broker, topic, tokens.give_soon) as one:
        assert (await one.getone()).value == b"first"
        identity = one.group_metadata()
        failed = one.metrics()["failed-rebalance-total"]
        began_s = time.monotonic()
        # Fetches and heartbeats never pause: their connections re-authenticate before every token's
        # end. A machine that is late for one loses that connection, and the next one goes on.
        await poll_until(
            one,
            lambda: renewals(caplog, ".connection") >= 2 and renewals(caplog, ".blocking") >= 2,
        )
        await fill(broker, topic, b"second")
        assert (await one.getone()).value == b"second"
        await one.commit()
        assert one.group_metadata() == identity
        assert one.metrics()["failed-rebalance-total"] == failed
        assert one.health().is_healthy
        # All connections share a token, renewed after half of its lifetime at the earliest.
        assert 3 <= tokens.count <= 2 + (time.monotonic() - began_s) / (LIFETIME_S / 2)


async def test_a_token_that_the_broker_refuses_is_told_in_its_words(
    broker: Broker, topic: str
) -> None:
    tokens = Tokens(broker, aud="somebody else")
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(
            AuthenticationError, match=re.escape('"status":"invalid_token"')
        ) as told:
            await consumer(broker, topic, tokens.give_soon).start()
    assert not isinstance(told.value, TokenError)
    assert "sasl.oauthbearer" in str(told.value)


async def test_a_provider_that_fails_is_told_and_asked_again(broker: Broker, topic: str) -> None:
    tokens = Tokens(broker)
    tokens.failure = OSError("the issuer is away")
    await fill(broker, topic, b"first")
    async with asyncio.timeout(LIMIT_S):
        one = consumer(broker, topic, tokens.give_soon)
        with pytest.raises(TokenError, match="raised OSError: the issuer is away"):
            await one.start()
        tokens.failure = None
        async with consumer(broker, topic, tokens.give_soon) as one:
            assert (await one.getone()).value == b"first"
            tokens.failure = OSError("the issuer is away")
            # Not before the last token has expired.
            with pytest.raises(TokenError, match="the issuer is away"):
                await poll_until(one, lambda: False)
            tokens.failure = None
            await fill(broker, topic, b"second")
            while True:
                try:
                    record = await one.getone()
                except TokenError:
                    continue
                assert record.value == b"second"
                break


@pytest.mark.long
async def test_another_user_comes_in_by_connections_of_its_own(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker does not let a connection change its user; what the consumer does goes on."""
    tokens = Tokens(broker)
    await fill(broker, topic, b"first")
    async with asyncio.timeout(LIMIT_S), consumer(broker, topic, tokens.give_soon) as one:
        assert (await one.getone()).value == b"first"
        identity = one.group_metadata()
        tokens.subject = "bob"
        end_s = time.monotonic() + 1.5 * LIFETIME_S
        await poll_until(one, lambda: time.monotonic() > end_s)
        assert "Cannot change principals" in caplog.text
        assert one.group_metadata() == identity
        await fill(broker, topic, b"second")
        assert (await one.getone()).value == b"second"


@pytest.mark.long
async def test_a_plain_function_keeps_the_membership_while_the_loop_is_blocked(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Longer than a token is good and a member may be silent."""
    caplog.set_level(logging.DEBUG, "kohort.client.net")
    tokens = Tokens(broker)
    await fill(broker, topic, b"first")
    async with asyncio.timeout(LIMIT_S), consumer(broker, topic, tokens.give) as one:
        assert (await one.getone()).value == b"first"
        identity = one.group_metadata()
        renewed = renewals(caplog, ".blocking")
        time.sleep(1.8 * SESSION_MS / 1000)  # noqa: ASYNC251 - this is the mistake to be survived.
        assert renewals(caplog, ".blocking") >= renewed + 2
        await fill(broker, topic, b"second")
        assert (await one.getone()).value == b"second"
        assert one.group_metadata() == identity

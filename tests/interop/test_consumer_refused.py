"""Rights that a real Kafka takes away and gives back, while a consumer wants them."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kohort import Consumer, errors
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.clients.confluent_client import ConfluentClient, admin_client
from tests.support.clients.model import Record

pytestmark = pytest.mark.long

TIMEOUT_S = 60
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Everything without a rule is allowed to all, and to this node itself.
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
    # Who asks first waits until all are made.
    "offsets.topic.num.partitions": "5",
}


class Rights:
    """Rights in one Kafka. No client has a name there, so others' rights keep us out."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin: AdminClient = admin_client(bootstrap)

    async def take(self, kind: ResourceType, name: str) -> None:
        """Let only somebody else use it."""
        await self._done(self._admin.create_acls([AclBinding(*self._rule(kind, name))]))

    async def give_back(self, kind: ResourceType, name: str) -> None:
        """Everybody may."""
        await self._done(self._admin.delete_acls([AclBindingFilter(*self._rule(kind, name))]))

    async def create(self, topic: str) -> None:
        """With one record."""
        await self._done(self._admin.create_topics([NewTopic(topic, 1, 1)]))
        client = ConfluentClient(self.bootstrap)
        await asyncio.to_thread(client.produce, topic, [Record(b"value")])

    @staticmethod
    def _rule(kind: ResourceType, name: str) -> tuple[Any, ...]:
        return (
            kind, name, ResourcePatternType.LITERAL, "User:else", "*", AclOperation.ALL,
            AclPermissionType.ALLOW,
        )  # fmt: skip

    @staticmethod
    async def _done(futures: Mapping[Any, Future[Any]]) -> None:
        for future in futures.values():
            await asyncio.to_thread(future.result, 30)


@pytest.fixture(scope="module")
def rights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rights]:
    with KafkaServer(tmp_path_factory.mktemp("kafka"), overrides=SETTINGS) as server:
        yield Rights(server.bootstrap)


@pytest.fixture
async def name(rights: Rights) -> str:
    """Name of a topic with one record, and of a group."""
    made = f"refused-{uuid.uuid4().hex[:12]}"
    await rights.create(made)
    return made


@pytest.fixture
async def consumer(rights: Rights, name: str) -> AsyncIterator[Consumer]:
    made = Consumer(
        name,
        bootstrap_servers=rights.bootstrap,
        group_id=name,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        auto_commit_interval_ms=50,
    )
    async with asyncio.timeout(TIMEOUT_S), made:
        yield made


async def refusals(consumer: Consumer, count: int) -> None:
    """Polls until so many of them were refused."""
    while count:
        try:
            await consumer.poll(0.1)
        except errors.AuthorizationError:
            count -= 1


async def test_a_group_that_may_be_read_a_while_later_is_joined_then(
    rights: Rights, name: str, consumer: Consumer
) -> None:
    await rights.take(ResourceType.GROUP, name)
    await refusals(consumer, 2)
    health = consumer.health()
    assert "GROUP_AUTHORIZATION_FAILED" in str(health.problem)
    assert health.is_alive
    await rights.give_back(ResourceType.GROUP, name)
    assert await _next(consumer) == b"value"


async def test_a_member_whose_heartbeats_are_refused_for_a_while_stays_one(
    rights: Rights, name: str, consumer: Consumer
) -> None:
    assert await _next(consumer) == b"value"
    before = consumer.group_metadata()
    await rights.take(ResourceType.GROUP, name)
    await refusals(consumer, 2)
    assert "GROUP_AUTHORIZATION_FAILED" in str(consumer.health().group_error)
    await rights.give_back(ResourceType.GROUP, name)
    while consumer.health().group_error is not None:
        await _poll(consumer)
    assert consumer.group_metadata() == before


async def test_commits_that_are_refused_are_no_commits(
    rights: Rights, name: str, consumer: Consumer
) -> None:
    assert await _next(consumer) == b"value"
    await rights.take(ResourceType.TOPIC, name)
    while (failing := consumer.health().commit_failure) is None or failing.times == 1:
        await _poll(consumer)
    assert (failing.is_refused, consumer.health().is_healthy) == (True, False)
    stored = consumer.metrics()["commit-total"]
    while consumer.health().failed_commits < failing.times + 2:
        await _poll(consumer)
    assert consumer.metrics()["commit-total"] == stored
    await rights.give_back(ResourceType.TOPIC, name)
    while consumer.health().commit_failure is not None:
        await _poll(consumer)
    assert (consumer.metrics()["commit-total"] or 0) > (stored or 0)


async def _poll(consumer: Consumer) -> None:
    with suppress(errors.AuthorizationError):
        await consumer.poll(0.1)


async def _next(consumer: Consumer) -> bytes:
    """What comes after all refusals that are on their way."""
    while True:
        try:
            value: bytes = (await consumer.getone()).value
        except errors.AuthorizationError:
            continue
        else:
            return value

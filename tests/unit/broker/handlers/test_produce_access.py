"""Permission to produce: what a connection has kept is never more than what the rules say now."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from kohort.broker.core.security.acls import Operation, PatternType, Permission, ResourceType, Rule
from kohort.broker.core.security.authorizer import Authorizer
from kohort.broker.core.security.session import Principal, Session
from kohort.broker.dispatch.access import Access
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.handlers.produce import produce
from kohort.broker.security.rules import AccessRules, Disk
from kohort.broker.topics.manager import TopicManager
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing.virtual_clock import VirtualClock
from tests.support import messages as m
from tests.support.brokers.running_topics import context, running_topics
from tests.support.records.batches import with_header

BATCH = encode_batch([Record(b"value", timestamp=1_700_000_000_000)])
NAMES = ("a", "b", "missing")
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def request_for(*names: str, records: bytes | None = BATCH) -> m.ProduceRequest:
    view = None if records is None else memoryview(records)
    topics = [
        m.TopicProduceData(
            name=name, partition_data=[m.PartitionProduceData(index=0, records=view)]
        )
        for name in names
    ]
    return m.ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics)


def session(user: str) -> Session:
    return Session(Principal("User", user), "::1", "PLAINTEXT")


def allowing(user: str, name: str, operation: Operation = Operation.WRITE) -> Rule:
    who = f"User:{user}"
    return Rule(
        ResourceType.TOPIC, name, PatternType.LITERAL, who, "*", operation, Permission.ALLOW
    )


class Place(NamedTuple):
    """Topics behind an authorizer, and a connection of the user u."""

    topics: TopicManager
    authorizer: Authorizer
    ctx: RequestContext

    def told(self, *names: str) -> list[int]:
        """The error of each topic."""
        response = produce(self.ctx, request_for(*names))
        assert isinstance(response, m.ProduceResponse)
        return [one.partition_responses[0].error_code for one in response.responses]

    def end_offset(self, name: str) -> int:
        topic = self.topics.get(name)
        assert topic is not None
        return topic.partitions[0].log.log_end_offset


@pytest.fixture
async def place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Place]:
    caplog.set_level(logging.CRITICAL, "kohort.authorizer")
    async with running_topics(tmp_path) as topics:
        for name in NAMES[:2]:
            await topics.changes.create_topic(name, partition_count=1)
        authorizer, clock = Authorizer(), VirtualClock()
        rules = AccessRules(authorizer, topics.disk.data.store, cast("Disk", None), clock)
        ctx = context(topics, request_for(*NAMES), 12)
        ctx.broker.access = Access(rules, clock, {}, {})
        ctx.connection.session = session("u")
        yield Place(topics, authorizer, ctx)


async def test_each_topic_is_answered_for_itself_whenever_rules_change(place: Place) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rules = [allowing("u", "a"), allowing("u", "missing")]
    assert place.told(*NAMES) == [DENIED, DENIED, DENIED]
    place.authorizer.change(added=rules)
    for _ in range(2):
        assert place.told(*NAMES) == [0, DENIED, unknown]
    place.authorizer.change(removed=rules[:1])
    for _ in range(2):
        assert place.told(*NAMES) == [DENIED, DENIED, unknown]
    assert (place.end_offset("a"), place.end_offset("b")) == (2, 0)


async def test_an_unknown_topic_id_is_not_denied(place: Place) -> None:
    """Only a known id has a name that rules could be for; as in Kafka."""
    denied = place.topics.get("a")
    assert denied is not None
    request = request_for("", "")
    request.topic_data[0].topic_id = denied.topic_id
    request.topic_data[1].topic_id = b"unknown".ljust(16)
    ctx = context(place.topics, request, 13)
    ctx.broker.access = place.ctx.broker.access
    ctx.connection.session = session("u")
    response = produce(ctx, request)
    assert isinstance(response, m.ProduceResponse)
    errors = [one.partition_responses[0].error_code for one in response.responses]
    assert errors == [DENIED, ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("has_authorizer", [True, False])
@pytest.mark.parametrize("bit", range(16))
async def test_a_batch_is_of_a_transaction_by_the_bit_that_its_header_has_for_it(
    place: Place, bit: int, *, has_authorizer: bool
) -> None:
    """Without a transactional id its request is rejected as a whole, as in Kafka."""
    if not has_authorizer:
        place.ctx.broker.access = None
    place.authorizer.change(added=[allowing("u", "a"), allowing("u", "b")])
    batch = with_header(BATCH, attributes=(1 << bit) - (1 << 16 if bit == 15 else 0))
    request = request_for("a", "b")
    request.topic_data[1].partition_data[0].records = memoryview(batch)
    if read_header(batch).is_transactional:
        with pytest.raises(KafkaError) as caught:
            produce(place.ctx, request)
        assert caught.value.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    else:
        assert isinstance(produce(place.ctx, request), m.ProduceResponse)
    assert place.end_offset("a") == (0 if read_header(batch).is_transactional else 1)


@pytest.mark.parametrize("size", [None, 0, 22, 23, len(BATCH) - 1])
async def test_a_batch_that_is_not_whole_is_of_no_transaction(
    place: Place, size: int | None
) -> None:
    records = None if size is None else with_header(BATCH, attributes=-1)[:size]
    assert isinstance(produce(place.ctx, request_for("a", records=records)), m.ProduceResponse)

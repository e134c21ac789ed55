"""Rules that change while a request waits: it is told nothing that was taken from its client."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker.core.security.acls import (
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.integration.test_access import NOBODY, SETTINGS, authorizer, close_to_others
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.requests import fetch_request, produce_request
from tests.support.network.wire import RawClient, framed, request_body, response_in
from tests.support.waiting import wait_until

TOPICS = ("kept", "taken")
RULES = {
    name: Rule(
        ResourceType.TOPIC, name, PatternType.LITERAL, "User:*", NOBODY, Operation.READ,
        Permission.ALLOW,
    )
    for name in TOPICS
}  # fmt: skip


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path, overrides=SETTINGS) as made:
        with RawClient(made.port) as admin:
            topics = [m.MetadataRequestTopic(name=name) for name in TOPICS]
            admin.call(m.MetadataRequest(topics=topics), 12, m.MetadataResponse)
        made.call(lambda: close_to_others(authorizer(made)))
        made.call(lambda: authorizer(made).change(added=RULES.values()))
        yield made


def produce(client: RawClient, name: str) -> None:
    batch = encode_batch([Record(b"secret", timestamp=1_700_000_000_000)])
    (topic,) = client.call(produce_request(name, batch), 9, m.ProduceResponse).responses
    assert topic.partition_responses[0].error_code == ErrorCode.NONE


def fetches_that_wait(broker: BrokerThread) -> int:
    def count() -> int:
        return broker.broker.services.purgatory.stats().get("Fetch", {"delayed": 0})["delayed"]

    return broker.call(count)


@pytest.mark.parametrize("name", TOPICS)
def test_a_fetch_that_waits_gets_nothing_that_it_may_not_read_any_more(
    broker: BrokerThread, name: str
) -> None:
    with RawClient(broker.port) as admin, RawClient(broker.port, source=NOBODY) as reader:
        request = fetch_request("kept", max_wait_ms=60_000)
        request.topics += fetch_request("taken").topics
        reader.send(framed(request_body(request, 11)))
        wait_until(lambda: fetches_that_wait(broker) == 1, "the fetch to wait")
        broker.call(lambda: authorizer(broker).change(removed=[RULES["taken"]]))
        produce(admin, name)
        answer = response_in(reader.receive(), m.FetchResponse, 11)
        told = {topic.topic: topic.partitions[0] for topic in answer.responses}
        taken = told["taken"]
        assert taken.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (taken.high_watermark, bytes(taken.records or b"")) == (-1, b"")
        assert told["kept"].error_code == ErrorCode.NONE
        assert (b"secret" in bytes(told["kept"].records or b"")) == (name == "kept")

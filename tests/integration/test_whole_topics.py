"""Checks by `read_whole` after kills mean something: it fails where readers are held back."""

import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from kohort.testing import Kafka
from tests.support.clients.confluent_client import admin_client, create_topics
from tests.support.clients.whole_topics import Isolation, read_whole


def test_a_transaction_that_does_not_end_is_noticed_though_what_is_decided_was_read(
    kafka_module: Kafka,
) -> None:
    bootstrap, topic = f"127.0.0.1:{kafka_module.port}", f"whole-{uuid.uuid4().hex[:8]}"
    create_topics(admin_client(bootstrap), NewTopic(topic, 2, 1))
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value, end in (
        (b"kept", producer.commit_transaction),
        (b"lost", producer.abort_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        end(30)
    places = [(topic, 0), (topic, 1)]

    assert values(bootstrap, places, "read_committed") == [b"kept"]
    assert values(bootstrap, places, "read_uncommitted") == [b"kept", b"lost"]

    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    producer.flush(30)
    assert values(bootstrap, places, "read_uncommitted") == [b"kept", b"lost", b"undecided"]
    with pytest.raises(AssertionError, match="not read to their ends"):
        values(bootstrap, places, "read_committed", timeout_s=1)
    producer.abort_transaction(30)


def values(
    bootstrap: str, places: list[tuple[str, int]], isolation: Isolation, *, timeout_s: float = 60
) -> list[bytes | None]:
    read = read_whole(bootstrap, places, isolation, timeout_s=timeout_s)
    return [message.value() for _, message in read]

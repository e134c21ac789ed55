"""Topics that nobody created: automatic creation as Kafka does it, and clear errors without it."""

import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.interop.model import Client, Record, wait_until


@pytest.fixture
def name() -> str:
    return f"interop-auto-{uuid.uuid4().hex[:12]}"


def test_producing_to_a_new_name_creates_the_topic(
    client: Client, admin: AdminClient, name: str
) -> None:
    client.produce(name, [Record(b"first", partition=None)])

    assert [record.value for record in client.consume(name, 1)] == [b"first"]
    admin.delete_topics([name])[name].result(30)


def test_a_consumer_that_may_not_create_its_topic_is_told_that_it_is_unknown(
    bootstrap: str, admin: AdminClient, name: str
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "allow.auto.create.topics": False,
            "topic.metadata.propagation.max.ms": 500,
        }
    )
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        errors: list[int] = []

        def poll() -> bool:
            message = consumer.poll(0.2)
            if message is not None and (error := message.error()) is not None:
                errors.append(error.code())
            return bool(errors)

        wait_until(poll, "an error")
    finally:
        consumer.close()

    unknown = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
    assert set(errors) <= unknown
    assert name not in admin.list_topics(timeout=10).topics

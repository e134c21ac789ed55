"""Topics not created yet: automatic creation as Kafka does it, and clear errors without it."""

import uuid

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from tests.support.clients.model import Client, Record


@pytest.fixture
def name() -> str:
    return f"interop-auto-{uuid.uuid4().hex[:12]}"


def test_producing_to_a_new_name_creates_the_topic(
    client: Client, admin: AdminClient, name: str
) -> None:
    client.produce(name, [Record(b"first", partition=None)])

    assert [record.value for record in client.consume(name, 1)] == [b"first"]
    admin.delete_topics([name])[name].result(30)


def test_asking_about_a_topic_does_not_create_it(admin: AdminClient, name: str) -> None:
    future = admin.describe_topics(TopicCollection([name]))[name]
    with pytest.raises(KafkaException) as caught:
        future.result(30)

    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert name not in admin.list_topics(timeout=10).topics

"""Topic and group administration with the admin clients of the Python libraries."""

import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import TopicPartition as PythonTopicPartition
from kafka.admin import ConfigResource as PythonConfigResource
from kafka.admin import ConfigResourceType as PythonConfigResourceType
from kafka.admin import KafkaAdminClient

from tests.interop.conftest import ClientNamed, CreateTopic
from tests.support.clients.model import Record
from tests.support.waiting import wait_until


@pytest.fixture
def name() -> str:
    return f"interop-{uuid.uuid4().hex[:12]}"


def error_code(future: "Future[Any]") -> int:
    """The error that the broker gave; the test fails if it gave none."""
    with pytest.raises(KafkaException) as caught:
        future.result(30)
    error: KafkaError = caught.value.args[0]
    return error.code()


def config_of(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(30)
    return entries


class TestConfluent:
    def test_a_topic_lives_from_creation_to_deletion(self, admin: AdminClient, name: str) -> None:
        topic = NewTopic(name, 2, 1, config={"max.message.bytes": "2000"})
        admin.create_topics([topic])[name].result(30)
        assert len(admin.list_topics(name, timeout=10).topics[name].partitions) == 2
        assert config_of(admin, name)["max.message.bytes"].value == "2000"

        admin.create_partitions([NewPartitions(name, 4)])[name].result(30)
        wait_until(
            lambda: len(admin.list_topics(name, timeout=10).topics[name].partitions) == 4,
            "four partitions",
        )

        admin.delete_topics([name])[name].result(30)
        wait_until(lambda: name not in admin.list_topics(timeout=10).topics, "the topic to go")

    def test_configs_are_changed_one_by_one(self, admin: AdminClient, topic: str) -> None:
        def change(key: str, value: str | None, operation: AlterConfigOpType) -> "Future[Any]":
            entry = ConfigEntry(key, value, incremental_operation=operation)
            resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
            future: Future[Any] = admin.incremental_alter_configs([resource])[resource]
            return future

        change("retention.ms", "1000", AlterConfigOpType.SET).result(30)
        change("cleanup.policy", "compact", AlterConfigOpType.APPEND).result(30)
        assert config_of(admin, topic)["retention.ms"].value == "1000"
        assert config_of(admin, topic)["cleanup.policy"].value == "delete,compact"

        change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT).result(30)
        change("retention.ms", None, AlterConfigOpType.DELETE).result(30)
        assert config_of(admin, topic)["retention.ms"].value == "604800000"
        assert config_of(admin, topic)["retention.ms"].is_default
        assert config_of(admin, topic)["cleanup.policy"].value == "compact"

        refusal = change("retention.ms", "1", AlterConfigOpType.APPEND)
        assert error_code(refusal) == KafkaError.INVALID_CONFIG

    def test_a_topic_is_described_with_its_id(
        self, admin: AdminClient, create_topic: CreateTopic
    ) -> None:
        topics = [create_topic(partitions=2), create_topic()]
        described = admin.describe_topics(TopicCollection(topics))

        results = [described[topic].result(30) for topic in topics]

        assert [len(result.partitions) for result in results] == [2, 1]
        assert len({str(result.topic_id) for result in results}) == 2

    def test_offsets_are_listed_and_records_deleted(
        self, admin: AdminClient, client_named: ClientNamed, topic: str
    ) -> None:
        client_named("java").produce(topic, [Record(b"%d" % number) for number in range(10)])
        place = TopicPartition(topic, 0)

        def offset(spec: OffsetSpec) -> int:
            future = admin.list_offsets({place: spec})[place]
            found: int = future.result(30).offset
            return found

        assert offset(OffsetSpec.latest()) == 10
        assert offset(OffsetSpec.earliest()) == 0
        admin.delete_records([TopicPartition(topic, 0, 6)])[place].result(30)
        assert offset(OffsetSpec.earliest()) == 6
        beyond = admin.delete_records([TopicPartition(topic, 0, 11)])[place]
        assert error_code(beyond) == KafkaError.OFFSET_OUT_OF_RANGE

    def test_the_offsets_of_a_group_are_read_set_and_deleted_with_it(
        self, admin: AdminClient, client_named: ClientNamed, topic: str, group: str
    ) -> None:
        client = client_named("confluent")
        client.produce(topic, [Record(b"%d" % number) for number in range(10)])
        with client.join(group, topic) as member:
            wait_until(lambda: len(member.records()) == 10, "everything read")

        def committed() -> int:
            question = [ConsumerGroupTopicPartitions(group)]
            answer = admin.list_consumer_group_offsets(question)[group].result(30)
            (place,) = answer.topic_partitions
            found: int = place.offset
            return found

        assert committed() == 10
        change = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])
        admin.alter_consumer_group_offsets([change])[group].result(30)
        assert committed() == 3

        admin.delete_consumer_groups([group])[group].result(30)
        gone = admin.delete_consumer_groups([group])[group]
        assert error_code(gone) == KafkaError.GROUP_ID_NOT_FOUND


class TestKafkaPython:
    @pytest.fixture
    def python_admin(self, bootstrap: str) -> Iterator[KafkaAdminClient]:
        client = KafkaAdminClient(bootstrap_servers=bootstrap)
        yield client
        client.close()

    def test_a_topic_lives_from_creation_to_deletion(
        self, python_admin: KafkaAdminClient, name: str
    ) -> None:
        def partition_count() -> int:
            (topic,) = python_admin.describe_topics([name])
            return len(topic["partitions"])

        python_admin.create_topics(
            {name: {"num_partitions": 2, "configs": {"retention.ms": "1234"}}}
        )
        wait_until(lambda: partition_count() == 2, "two partitions")
        resource = PythonConfigResource(PythonConfigResourceType.TOPIC, name)
        (described,) = python_admin.describe_configs([resource]).values()
        assert described[name]["retention.ms"]["value"] == "1234"

        python_admin.create_partitions({name: 3})
        wait_until(lambda: partition_count() == 3, "three partitions")
        python_admin.delete_topics([name])
        wait_until(lambda: name not in python_admin.list_topics(), "the topic to go")

    def test_a_group_is_listed_described_and_deleted(
        self, python_admin: KafkaAdminClient, client_named: ClientNamed, topic: str, group: str
    ) -> None:
        client = client_named("kafka-python")
        client.produce(topic, [Record(b"one")])
        with client.join(group, topic) as member:
            wait_until(lambda: len(member.records()) == 1, "everything read")
            description = python_admin.describe_groups([group])[group]
            assert description["group_state"] == "Stable"
            assert len(description["members"]) == 1

        assert group in [entry["group_id"] for entry in python_admin.list_groups()]
        offsets = python_admin.list_group_offsets([group])[group]
        assert offsets[PythonTopicPartition(topic, 0)].offset == 1
        python_admin.delete_groups([group])
        assert group not in [entry["group_id"] for entry in python_admin.list_groups()]


class TestAiokafka:
    @pytest.fixture
    async def aio_admin(self, bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        yield client
        await client.close()

    async def test_a_topic_lives_from_creation_to_deletion(
        self, aio_admin: AIOKafkaAdminClient, name: str
    ) -> None:
        await aio_admin.create_topics([AioNewTopic(name, 2, 1)])
        (described,) = await aio_admin.describe_topics([name])
        assert len(described["partitions"]) == 2

        await aio_admin.create_partitions({name: AioNewPartitions(3)})
        (described,) = await aio_admin.describe_topics([name])
        assert len(described["partitions"]) == 3

        topic_type = AioConfigResourceType.TOPIC
        change = AioConfigResource(topic_type, name, configs={"retention.ms": "4321"})
        await aio_admin.alter_configs([change])
        question = AioConfigResource(topic_type, name)
        ((*_, entries),) = (await aio_admin.describe_configs([question]))[0].resources
        assert ("retention.ms", "4321") in [entry[:2] for entry in entries]

        await aio_admin.delete_topics([name])
        assert name not in await aio_admin.list_topics()

    async def test_a_groups_offsets_are_listed(
        self,
        aio_admin: AIOKafkaAdminClient,
        client_named: ClientNamed,
        topic: str,
        group: str,
    ) -> None:
        client = client_named("confluent")
        client.produce(topic, [Record(b"one"), Record(b"two")])
        with client.join(group, topic) as member:
            wait_until(lambda: len(member.records()) == 2, "everything read")

        groups = await aio_admin.list_consumer_groups()
        offsets = await aio_admin.list_consumer_group_offsets(group)

        assert group in [entry[0] for entry in groups]
        assert offsets[AioTopicPartition(topic, 0)].offset == 2

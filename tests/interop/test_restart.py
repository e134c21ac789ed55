"""What survives a restart of the broker, and what Kafka's own tool reads in its files.

Each starts a broker of its own.
"""

import pytest
from confluent_kafka.admin import NewTopic

from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.model import Record, content
from tests.support.waiting import wait_until

TOPIC = "survivor"
RECORDS = [Record(b"%d" % number, key=b"k%d" % number) for number in range(500)]


@pytest.fixture
def topic(own_broker: ServerProcess) -> str:
    admin = admin_client(own_broker.bootstrap)
    create_topics(admin, NewTopic(TOPIC, 1, 1, config={"segment.bytes": "1048576"}))
    return TOPIC


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_records_topics_configs_and_offsets_survive_a_restart(
    own_broker: ServerProcess, topic: str, ending: str
) -> None:
    client = ConfluentClient(own_broker.bootstrap)
    client.produce(topic, RECORDS, idempotent=True)
    with client.join("readers", topic) as member:
        wait_until(lambda: len(member.records()) == len(RECORDS), "everything read")
    before = admin_client(own_broker.bootstrap).list_topics(timeout=10)

    if ending == "stop":
        assert own_broker.stop() == own_broker.clean_exit
    else:
        own_broker.kill()
    own_broker.start()

    admin = admin_client(own_broker.bootstrap)
    assert admin.list_topics(timeout=10).cluster_id == before.cluster_id
    received = client.consume(topic, len(RECORDS))
    assert [content(record) for record in received] == [content(record) for record in RECORDS]
    client.produce(topic, [Record(b"after")])
    with client.join("readers", topic) as member:
        wait_until(lambda: bool(member.records()), "the group to read on")
    assert [record.value for record in member.records()] == [b"after"]


def test_a_group_outlives_the_restart_of_its_broker(own_broker: ServerProcess, topic: str) -> None:
    client = ConfluentClient(own_broker.bootstrap)
    with client.join("steady", topic) as member:
        client.produce(topic, RECORDS[:100])
        wait_until(lambda: len(member.records()) == 100, "the first part read")

        assert own_broker.stop() == own_broker.clean_exit
        own_broker.start()
        client.produce(topic, RECORDS[100:])

        wait_until(lambda: len(member.records()) >= len(RECORDS), "the second part read")
    assert [record.value for record in member.records()] == [record.value for record in RECORDS]

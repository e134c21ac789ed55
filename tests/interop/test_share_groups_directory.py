"""A share group goes from Kohort to a real Kafka with the data directory, and back: members keep
their epochs and partitions, and no record is delivered again that was accepted.
"""

from pathlib import Path

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from confluent_kafka.admin import ResourceType as Type

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import share_group_describe as describing
from kohort.protocol.messages import share_group_heartbeat as beating
from tests.interop.test_kafka_directory import kohort
from tests.interop.test_share_consumers import (
    GROUP,
    TOPIC,
    java_consumer,
    offsets,
    polled,
    produce,
)
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import admin_client, create_topics
from tests.support.network.wire import RawClient
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

SETTINGS = {"group.share.assignment.interval.ms": "0"}
NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def prepare(broker: ServerProcess) -> None:
    """Create a topic, and let the group begin at its first record."""
    admin = admin_client(broker.bootstrap)
    create_topics(admin, NewTopic(TOPIC, 1, 1))
    begin = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(Type.GROUP, GROUP, incremental_configs=[begin])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(30)


def heartbeat(broker: ServerProcess, epoch: int, names: list[str] | None = None) -> int:
    """Send a heartbeat of the member that never polls; return its epoch."""
    request = beating.ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="silent", member_epoch=epoch, subscribed_topic_names=names
    )
    with RawClient(broker.port) as client:
        answer = client.call(request, 1, beating.ShareGroupHeartbeatResponse)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer.member_epoch


def view(broker: ServerProcess) -> object:
    """The group as the broker shows it, whatever the order."""
    found: list[describing.DescribedGroup] = []
    request = describing.ShareGroupDescribeRequest(group_ids=[GROUP])

    def is_ready() -> bool:
        with RawClient(broker.port) as client:
            found[:] = client.call(request, 1, describing.ShareGroupDescribeResponse).groups
        return found[0].error_code not in NOT_READY

    wait_until(is_ready, "the coordinator has loaded its groups")
    (group,) = found
    members = sorted(
        (
            member.member_id,
            member.member_epoch,
            tuple(member.subscribed_topic_names),
            [(t.topic_name, sorted(t.partitions)) for t in member.assignment.topic_partitions],
        )
        for member in group.members
    )
    epochs = group.group_epoch, group.assignment_epoch
    return group.error_code, group.group_state, epochs, group.assignor_name, members


def test_a_share_group_is_the_same_at_both_brokers(
    tmp_path: Path, java_clients: JavaProcess
) -> None:
    ours = KohortServer(tmp_path, overrides=SETTINGS)
    theirs = KafkaServer(tmp_path, overrides=SETTINGS)
    with ours:
        prepare(ours)
        produce(ours, [str(number) for number in range(10)])
        with java_consumer(java_clients, ours) as consumer:
            records = polled(consumer.poll, 10)
            consumer.acknowledge(records[:5])
            consumer.acknowledge(records[6:7], "reject")
            assert consumer.commit() == {f"{TOPIC}-0": ""}
        epoch = heartbeat(ours, 0, [TOPIC])
        before = view(ours)
    kohort("export-kafka", str(ours.data))
    with theirs:
        assert view(theirs) == before
        assert heartbeat(theirs, epoch) == epoch
        with java_consumer(java_clients, theirs) as consumer:
            records = polled(consumer.poll, 4)
            assert offsets(records) == [(5, 2), (7, 2), (8, 2), (9, 2)]
            consumer.acknowledge(records[:2])
            assert consumer.commit() == {f"{TOPIC}-0": ""}
        epoch = heartbeat(theirs, 0, [TOPIC])
        before = view(theirs)
    kohort("import-kafka", str(ours.data))
    with ours:
        assert view(ours) == before
        assert heartbeat(ours, epoch) == epoch
        with java_consumer(java_clients, ours) as consumer:
            assert offsets(polled(consumer.poll, 2)) == [(8, 3), (9, 3)]

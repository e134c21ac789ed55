"""A partition of __consumer_offsets that a real Kafka has written, read back by this broker."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.groups import DescribedGroup
from tests.interop.same_answers.pair import wait_ready
from tests.interop.tools import Tools
from tests.support import messages as m
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import admin_client, create_topics
from tests.support.groups.group_probe import GroupProbe
from tests.support.groups.raw_members import RawMember, bring_together, settle
from tests.support.network.wire import RawClient
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

SETTINGS = {
    # All groups in one partition.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
DIRECTORY = "__consumer_offsets-0"
TOPIC = "t"
PARTITIONS = 3
TRANSACTIONS = ("committed", "aborted", "overtaken", "open")
GROUPS = ("dynamic", "static", "emptied", "deleted", "simple", *TRANSACTIONS)

Place = tuple[int, int, str | None]
"""Offset, leader epoch and metadata."""


def create_topic(server: ServerProcess) -> None:
    admin = admin_client(server.bootstrap)
    create_topics(admin, NewTopic(TOPIC, PARTITIONS, 1))


class Writer:
    """What happens to the groups while Kafka has them."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.members: dict[str, list[RawMember]] = {}

    def write_plain(self) -> None:
        # A Kafka makes the topic when somebody asks for a coordinator, and is busy with it then.
        admin = admin_client(self.server.bootstrap)
        wait_until(
            lambda: not admin.describe_consumer_groups(["any"])["any"].exception(30), "coordinator"
        )
        self._settle("dynamic", None, None)
        self._settle("static", "left", "right")
        self._settle("emptied", None, None)
        for member in self.members.pop("emptied"):
            self._call(
                m.LeaveGroupRequest(
                    group_id="emptied", members=[m.MemberIdentity(member_id=member.member_id)]
                ),
                5,
                m.LeaveGroupResponse,
            )
        for group in ("simple", "deleted", *TRANSACTIONS):
            self.commit(group, {0: 1, 1: 2, 2: 3}, metadata=f"from {group}")
        self._call(
            m.OffsetDeleteRequest(
                group_id="simple",
                topics=[
                    m.OffsetDeleteRequestTopic(
                        name=TOPIC, partitions=[m.OffsetDeleteRequestPartition(partition_index=1)]
                    )
                ],
            ),
            0,
            m.OffsetDeleteResponse,
        )
        self._call(m.DeleteGroupsRequest(groups_names=["deleted"]), 2, m.DeleteGroupsResponse)

    def write_transactions(self) -> None:
        self._in_transaction("committed").commit_transaction(30)
        self._in_transaction("aborted").abort_transaction(30)
        # A plain commit that comes after those of a transaction, and before its end, stays.
        overtaken = self._in_transaction("overtaken")
        self.commit("overtaken", {0: 500}, metadata="later")
        overtaken.commit_transaction(30)
        self.open = self._in_transaction("open")

    def _settle(self, group: str, *instance_ids: str | None) -> None:
        members = [
            RawMember(self.server.port, group, topic=TOPIC, instance_id=instance_id)
            for instance_id in instance_ids
        ]
        bring_together(GroupProbe(self.server.port, group), *members)
        settle(*members)
        self.members[group] = members
        leader = members[0]
        self.commit(group, {0: 10}, member=leader)
        self.commit(group, {0: 11, 1: 20}, member=leader)

    def commit(
        self,
        group: str,
        offsets: Mapping[int, int],
        *,
        member: RawMember | None = None,
        metadata: str = "",
    ) -> None:
        request = m.OffsetCommitRequest(
            group_id=group,
            member_id=member.member_id if member else "",
            generation_id_or_member_epoch=member.generation if member else -1,
            group_instance_id=member.instance_id if member else None,
            topics=[
                m.OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        m.OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=0,
                            committed_metadata=metadata,
                        )
                        for partition, offset in offsets.items()
                    ],
                )
            ],
        )
        self._call(request, 8, m.OffsetCommitResponse)

    def _in_transaction(self, group: str) -> Producer:
        """Its offsets are in the log; what becomes of them is not."""
        names: dict[str, str | int] = {"bootstrap.servers": self.server.bootstrap, "log_level": 0}
        producer = Producer({**names, "transactional.id": group})
        producer.init_transactions(30)
        producer.begin_transaction()
        consumer = Consumer({**names, "group.id": group})
        places = [TopicPartition(TOPIC, 0, 100), TopicPartition(TOPIC, 1, 200)]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 30)
        consumer.close()
        return producer

    def _call(self, request: object, version: int, response: type[object]) -> None:
        with RawClient(self.server.port) as client:
            answer: object = client.call(request, version, response)
        assert not getattr(answer, "error_code", 0), answer


def descriptions(server: ServerProcess) -> dict[str, DescribedGroup]:
    with RawClient(server.port) as client:
        request = m.DescribeGroupsRequest(groups=list(GROUPS))
        return {
            group.group_id: group
            for group in client.call(request, 5, m.DescribeGroupsResponse).groups
        }


def places(server: ServerProcess) -> dict[str, dict[int, Place]]:
    """What each group's next consumer would begin with."""
    request = m.OffsetFetchRequest(
        groups=[m.OffsetFetchRequestGroup(group_id=group, topics=None) for group in GROUPS]
    )
    with RawClient(server.port) as client:
        answer = client.call(request, 8, m.OffsetFetchResponse)
    return {
        group.group_id: {
            partition.partition_index: (
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.metadata,
            )
            for topic in group.topics
            for partition in topic.partitions
        }
        for group in answer.groups
    }


def move_in(source: Path, target: Path) -> None:
    """All files but the one that says which topic's they are: both brokers gave theirs an id."""
    for path in target.iterdir():
        if not path.name.startswith("partition.metadata"):
            path.unlink()
    for path in source.iterdir():
        if path.name != "partition.metadata":
            shutil.copy(path, target)


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path / "kafka", overrides=SETTINGS) as server:
        wait_ready(server)
        create_topic(server)
        yield server


@pytest.fixture
def kohort(tmp_path: Path) -> Iterator[KohortServer]:
    """With the same topics. It has gone without a word, so that its next start checks its files."""
    server = KohortServer(tmp_path / "kohort", overrides=SETTINGS)
    with server:
        create_topic(server)
        Writer(server).commit("something", {0: 1})
        server.kill()
        yield server


@pytest.mark.long
def test_groups_and_offsets_that_a_kafka_has_written_are_restored(
    kafka: KafkaServer, kohort: KohortServer
) -> None:
    writer = Writer(kafka)
    writer.write_plain()
    writer.write_transactions()
    described, placed = descriptions(kafka), places(kafka)
    assert kafka.stop() == kafka.clean_exit

    move_in(kafka.data / DIRECTORY, kohort.data / DIRECTORY)
    kohort.start()

    assert descriptions(kohort) == described
    assert places(kohort) == placed
    assert placed["committed"][0] == (100, -1, "")
    assert placed["aborted"][0] == (1, 0, "from aborted")
    assert placed["overtaken"][0] == (500, 0, "later")
    for member in [member for members in writer.members.values() for member in members]:
        with RawClient(kohort.port) as client:
            request = m.HeartbeatRequest(
                group_id=member.group,
                generation_id=member.generation,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
            )
            assert client.call(request, 4, m.HeartbeatResponse).error_code == ErrorCode.NONE


@pytest.fixture
def members(kohort: KohortServer) -> list[RawMember]:
    """A group of static members with offsets, and one that is gone; then the broker has stopped."""
    kohort.start()
    writer = Writer(kohort)
    writer.write_plain()
    assert kohort.stop() == kohort.clean_exit
    return writer.members["static"]


@pytest.mark.long
def test_kafkas_dump_tool_decodes_groups_and_offsets_of_this_broker(
    kohort: KohortServer, members: list[RawMember], tool_process: JavaProcess
) -> None:
    (log,) = (kohort.data / DIRECTORY).glob("*.log")
    arguments = ("--files", str(log), "--offsets-decoder")

    shown = Tools("", tool_process).offline("org.apache.kafka.tools.DumpLogSegments", *arguments)

    assert shown.exit == 0, shown.err
    assert not shown.err
    for member in members:
        ids = f'"memberId":"{member.member_id}","groupInstanceId":"{member.instance_id}"'
        assert ids in shown.out
    for group, partition, offset in (("static", 1, 20), ("simple", 2, 3)):
        key = f'{{"group":"{group}","topic":"t","partition":{partition}}}'
        value = f'{{"version":"4","data":{{"offset":{offset},'
        assert f'key: {{"type":"1","data":{key}}} payload: {value}' in shown.out
    assert '"group":"simple","topic":"t","partition":1}} payload: <DELETE>' in shown.out
    assert '"group":"deleted"}} payload: <DELETE>' in shown.out

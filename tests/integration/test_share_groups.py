"""What share groups store of their members and offsets, over a network and beyond kill -9."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import share_group_describe as describing
from kohort.protocol.messages import share_group_heartbeat as beating
from kohort.protocol.messages import share_group_offsets as offsets
from tests.support import messages as m
from tests.support.brokers.kohort_server import KohortServer
from tests.support.network.wire import RawClient
from tests.support.records.storage_tools import batch_of
from tests.support.waiting import wait_until

GROUP, TOPIC = "sharing", "shared"
SETTINGS = {"group.share.assignment.interval.ms": "0", "offsets.topic.num.partitions": "1"}


class Sharing:
    """A client with what share groups need of a broker."""

    def __init__(self, client: RawClient) -> None:
        self.client = client

    def create(self, partition_count: int) -> None:
        topic = m.CreatableTopic(
            name=TOPIC,
            num_partitions=partition_count,
            replication_factor=1,
            assignments=[],
            configs=[],
        )
        request = m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)
        (created,) = self.client.call(request, 7, m.CreateTopicsResponse).topics
        assert created.error_code == ErrorCode.NONE

    def grow(self, partition_count: int) -> None:
        topic = m.CreatePartitionsTopic(name=TOPIC, count=partition_count, assignments=None)
        request = m.CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)
        (grown,) = self.client.call(request, 3, m.CreatePartitionsResponse).results
        assert grown.error_code == ErrorCode.NONE

    def delete_topic(self) -> None:
        topic = m.DeleteTopicState(name=TOPIC, topic_id=bytes(16))
        request = m.DeleteTopicsRequest(topics=[topic], timeout_ms=10_000)
        (deleted,) = self.client.call(request, 6, m.DeleteTopicsResponse).responses
        assert deleted.error_code == ErrorCode.NONE

    def produce(self, count: int) -> None:
        partition = m.PartitionProduceData(index=0, records=batch_of(*[b"value"] * count))
        topic = m.TopicProduceData(name=TOPIC, partition_data=[partition])
        request = m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
        (answer,) = self.client.call(request, 9, m.ProduceResponse).responses
        assert answer.partition_responses[0].error_code == ErrorCode.NONE

    def heartbeat(
        self, member_id: str, epoch: int, names: list[str] | None = None
    ) -> beating.ShareGroupHeartbeatResponse:
        request = beating.ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, subscribed_topic_names=names
        )
        return self.client.call(request, 1, beating.ShareGroupHeartbeatResponse)

    def assigned(self, member_id: str, epoch: int, names: list[str] | None = None) -> list[int]:
        """Send a heartbeat that is answered with partitions of the only topic."""
        answer = self.heartbeat(member_id, epoch, names)
        assert answer.error_code == ErrorCode.NONE
        assert answer.assignment is not None
        (topic,) = answer.assignment.topic_partitions
        return topic.partitions

    def described(self) -> describing.DescribedGroup:
        request = describing.ShareGroupDescribeRequest(group_ids=[GROUP])
        return self.client.call(request, 1, describing.ShareGroupDescribeResponse).groups[0]

    def positions(self) -> dict[int, tuple[int, int]]:
        """Return start offset and lag of each partition."""
        group = offsets.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
        request = offsets.DescribeShareGroupOffsetsRequest(groups=[group])
        answer = self.client.call(request, 1, offsets.DescribeShareGroupOffsetsResponse)
        return {
            partition.partition_index: (partition.start_offset, partition.lag)
            for topic in answer.groups[0].topics
            for partition in topic.partitions
        }

    def alter(self, *starts: tuple[int, int]) -> list[int]:
        """Set start offsets of partitions; return the errors, that of the group first."""
        partitions = [
            offsets.AlterShareGroupOffsetsRequestPartition(
                partition_index=number, start_offset=start
            )
            for number, start in starts
        ]
        topic = offsets.AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=partitions)
        request = offsets.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])
        answer = self.client.call(request, 0, offsets.AlterShareGroupOffsetsResponse)
        errors = [
            partition.error_code for topic in answer.responses for partition in topic.partitions
        ]
        return [answer.error_code, *errors]

    def delete_offsets(self) -> list[int]:
        """Delete the offsets of the topic; return the errors as `alter` does."""
        topic = offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)
        request = offsets.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])
        answer = self.client.call(request, 0, offsets.DeleteShareGroupOffsetsResponse)
        return [answer.error_code, *[topic.error_code for topic in answer.responses]]

    def delete_group(self) -> int:
        request = m.DeleteGroupsRequest(groups_names=[GROUP])
        return self.client.call(request, 2, m.DeleteGroupsResponse).results[0].error_code


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KohortServer]:
    with KohortServer(tmp_path, overrides=SETTINGS) as server:
        with RawClient(server.port) as client:
            Sharing(client).create(2)
            Sharing(client).produce(10)
        yield server


@contextmanager
def sharing(server: KohortServer) -> Iterator[Sharing]:
    with RawClient(server.port) as client:
        yield Sharing(client)


def restart(server: KohortServer) -> None:
    server.kill()
    server.start()


def test_members_continue_after_a_crash(server: KohortServer) -> None:
    with sharing(server) as client:
        assert client.assigned("one", 0, [TOPIC]) == [0, 1]
        assert client.assigned("two", 0, [TOPIC]) == [1]
    restart(server)
    with sharing(server) as client:
        group = client.described()
        assert (group.group_state, group.group_epoch) == ("Stable", 3)
        assert {member.member_id: member.member_epoch for member in group.members} == {
            "one": 2,
            "two": 3,
        }
        assert client.assigned("one", 2) == [0]
        assert client.heartbeat("two", 3).assignment is None
        client.grow(3)
        assert sorted(client.assigned("one", 0, [TOPIC]) + client.assigned("two", 0, [TOPIC])) == [
            0,
            1,
            2,
        ]


def test_offsets_and_groups_after_a_crash(server: KohortServer) -> None:
    with sharing(server) as client:
        assert client.alter((0, 4), (1, 7), (2, 0), (1, -2)) == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
        ]
        # The log of partition 1 is empty.
        assert client.positions() == {0: (4, 6), 1: (0, 0)}
    restart(server)
    with sharing(server) as client:
        assert client.positions() == {0: (4, 6), 1: (0, 0)}
        group = client.described()
        assert (group.group_state, group.group_epoch, group.members) == ("Empty", 1, [])
        assert client.assigned("one", 0, [TOPIC]) == [0, 1]
        assert client.alter((0, 5)) == [ErrorCode.NON_EMPTY_GROUP]
        assert client.delete_offsets() == [ErrorCode.NON_EMPTY_GROUP]
        assert client.delete_group() == ErrorCode.NON_EMPTY_GROUP
        assert client.heartbeat("one", -1).error_code == ErrorCode.NONE
        assert client.delete_offsets() == [ErrorCode.NONE, ErrorCode.NONE]
        assert client.delete_offsets() == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert client.positions() == {}
    restart(server)
    with sharing(server) as client:
        assert client.positions() == {}
        assert client.alter((0, 9)) == [ErrorCode.NONE, ErrorCode.NONE]
        assert client.positions() == {0: (9, 1)}
        assert client.delete_group() == ErrorCode.NONE
    restart(server)
    with sharing(server) as client:
        assert client.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert client.positions() == {}


def test_a_deleted_topic_is_forgotten(server: KohortServer) -> None:
    with sharing(server) as client:
        assert client.assigned("one", 0, [TOPIC]) == [0, 1]
        assert client.positions() == {0: (10, 0), 1: (0, 0)}
        client.delete_topic()
        wait_until(lambda: not client.positions(), "the group forgets the topic")
        answer = client.heartbeat("one", 2)
        assert answer.assignment is not None
        assert (answer.member_epoch, answer.assignment.topic_partitions) == (3, [])
        client.create(1)
        assert client.assigned("one", 3) == [0]
    restart(server)
    with sharing(server) as client:
        assert client.positions() == {0: (0, 0)}

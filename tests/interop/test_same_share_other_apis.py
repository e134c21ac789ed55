"""What the APIs of other kinds of groups answer about a share group, with members and without; and
what the command line shows of it.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from kohort.admin.cluster import Cluster
from kohort.admin.group_overview import overview
from kohort.admin.groups import Member, describe_group
from kohort.client.net.address import Address
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.protocol.messages.membership import MemberIdentity
from kohort.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.groups import Group, subscription
from tests.interop.same_answers.offsets import commit_topic
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import Topic, create_topic
from tests.interop.same_answers.transactions import Producer
from tests.support import messages as m

MEMBER: Final = "a-share-member"


def beat(group: Group, epoch: int, *names: str) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=group.id,
        member_id=MEMBER,
        member_epoch=epoch,
        subscribed_topic_names=list(names) or None,
    )


def share_group(pair: Pair, topic: Topic) -> Group:
    """A share group with one member."""
    group = Group(pair)
    group.wait_until(beat(group, 0, topic.name), 1, lambda answer: not answer.error_code)
    return group


def listings(group: Group) -> None:
    for version in (0, 3, 4, 5):
        group.list(version)
    for types in (["share"], ["SHARE"], ["consumer"], ["classic", "Share"], ["none"]):
        group.list(types_filter=types)
    for states in (["Stable"], ["empty"], ["STABLE", "EMPTY"], ["dead"], ["Assigning"]):
        group.list(states_filter=states)
        group.list(types_filter=["share"], states_filter=states)


def descriptions(group_id: str) -> Iterator[tuple[Value, int]]:
    for version in (0, 3, 5, 6):
        yield m.DescribeGroupsRequest(groups=[group_id]), version
    for version in (0, 1):
        yield ConsumerGroupDescribeRequest(group_ids=[group_id]), version


def requests_of_members(group_id: str, topic: Topic) -> Iterator[tuple[Value, int]]:
    protocol = m.JoinGroupRequestProtocol(name="range", metadata=subscription(topic.name))
    for member_id in ("", MEMBER, "stranger"):
        for version in (0, 5, 9):
            for protocol_type in ("consumer", "share"):
                request = m.JoinGroupRequest(
                    group_id=group_id,
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=10_000,
                    member_id=member_id,
                    protocol_type=protocol_type,
                    protocols=[protocol],
                )
                if version == 0:
                    request.rebalance_timeout_ms = -1
                yield request, version
    for member_id in (MEMBER, "stranger"):
        of_member: dict[str, Any] = {
            "group_id": group_id,
            "generation_id": 2,
            "member_id": member_id,
        }
        yield m.HeartbeatRequest(**of_member), 4
        yield m.SyncGroupRequest(**of_member, assignments=[]), 4
        yield m.LeaveGroupRequest(group_id=group_id, member_id=member_id), 2
        leaving = [MemberIdentity(member_id=member_id)]
        yield m.LeaveGroupRequest(group_id=group_id, members=leaving), 5
        for epoch in (0, 2, -1, -2):
            yield (
                ConsumerGroupHeartbeatRequest(
                    group_id=group_id,
                    member_id=member_id,
                    member_epoch=epoch,
                    rebalance_timeout_ms=10_000,
                    subscribed_topic_names=[topic.name],
                    topic_partitions=[],
                ),
                1,
            )


def requests_of_offsets(group_id: str, topic: Topic) -> Iterator[tuple[Value, int]]:
    for member_id, epoch in (("", -1), (MEMBER, 2), ("stranger", 0)):
        for version in (2, 8, 9, 10):
            yield (
                m.OffsetCommitRequest(
                    group_id=group_id,
                    generation_id_or_member_epoch=epoch,
                    member_id=member_id,
                    topics=[commit_topic(topic, 1)],
                ),
                version,
            )
        for version in (8, 9, 10):
            group = m.OffsetFetchRequestGroup(group_id=group_id, topics=None)
            if version > 8:
                group.member_id, group.member_epoch = member_id, epoch
            yield m.OffsetFetchRequest(groups=[group]), version
    of_topic = m.OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0, 1])
    for topics in (None, [of_topic]):
        yield m.OffsetFetchRequest(group_id=group_id, topics=topics), 7
    for index in (0, 5):
        deleted = m.OffsetDeleteRequestTopic(
            name=topic.name,
            partitions=[m.OffsetDeleteRequestPartition(partition_index=index)],
        )
        yield m.OffsetDeleteRequest(group_id=group_id, topics=[deleted]), 0


@pytest.mark.parametrize("is_empty", [False, True], ids=["with a member", "empty"])
def test_other_apis_on_a_share_group(pair: Pair, is_empty: bool) -> None:
    topic = create_topic(pair)
    group = share_group(pair, topic)
    if is_empty:
        left = pair.peek(beat(group, -1), 1)
        assert [answer.error_code for answer in left] == [ErrorCode.NONE] * 2
    listings(group)
    for request, version in (
        *descriptions(group.id),
        *requests_of_members(group.id, topic),
        *requests_of_offsets(group.id, topic),
    ):
        pair.ask(request, version)
    producer = Producer(pair)
    producer.wait_coordinated()
    producer.init()
    producer.add_offsets(group.id)
    for member_id, epoch in (("", -1), (MEMBER, 2)):
        producer.commit_offsets(
            group.id, topic, {0: 1}, member_id=member_id, generation_id_or_member_epoch=epoch
        )
    producer.end()
    pair.ask(m.DeleteGroupsRequest(groups_names=[group.id]), 2)
    listings(group)


def test_the_admin_client_describes_share_groups(pair: Pair) -> None:
    topic = create_topic(pair)
    group = share_group(pair, topic)
    joined = group.wait_until(
        beat(group, 0, topic.name), 1, lambda answer: answer.assignment.topic_partitions
    )
    for side, answer in zip(pair.sides, joined, strict=True):
        partitions = [(topic.name, 0)]
        member = Member(
            MEMBER, None, "test", "127.0.0.1", partitions, answer.member_epoch, partitions
        )
        with Cluster([Address("127.0.0.1", side.port)], 20) as cluster:
            described = describe_group(cluster, group.id)
            assert described is not None
            assert (described.kind, described.state) == ("share", "Stable")
            assert described.members == [member]
            assert [(one.topic, one.partition) for one in described.positions] == partitions
            (row,) = (row for row in overview(cluster) if row.listed.group_id == group.id)
            assert (row.listed.group_type, row.members) == ("share", 1)

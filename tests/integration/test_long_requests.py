"""Requests with thousands of elements get the same responses as short ones."""

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.transactions import TopicRequest
from kohort.testing import Kafka
from tests.support import messages as m
from tests.support.network.wire import RawClient

COUNT = 1_500


def create(client: RawClient, *topics: tuple[str, int]) -> None:
    request = m.CreateTopicsRequest(
        topics=[
            m.CreatableTopic(
                name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[]
            )
            for name, count in topics
        ],
        timeout_ms=60_000,
    )
    client.ask(request, 5)


def commit(client: RawClient, group_id: str, indexes: range) -> m.OffsetCommitResponse:
    request = m.OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=[
            m.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    m.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=index, committed_metadata=""
                    )
                    for index in indexes
                ],
            )
            for name in ("none", "many")
        ],
    )
    return client.call(request, 8, m.OffsetCommitResponse)


NAMES = [f"name-{number}" for number in range(COUNT)]


def repeated(name: str) -> list[str]:
    """Many names, with one of them in every part."""
    return [one for start in range(0, COUNT, 50) for one in (name, *NAMES[start : start + 50])]


def test_repetitions_are_refused_as_in_short_requests(kafka: Kafka) -> None:
    """They could make a response of gigabytes."""
    refused = ErrorCode.INVALID_REQUEST
    groups = m.DescribeGroupsRequest(groups=repeated("g"))
    ids = m.DescribeTransactionsRequest(transactional_ids=repeated("t"))
    producers = m.DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=[0]) for name in repeated("t")]
    )
    offsets = m.OffsetFetchRequest(
        groups=[m.OffsetFetchRequestGroup(group_id=name, topics=None) for name in repeated("g")]
    )
    topics = m.OffsetFetchRequest(
        group_id="g",
        topics=[m.OffsetFetchRequestTopic(name=n, partition_indexes=[0]) for n in repeated("t")],
    )
    with RawClient(kafka.port) as client:
        answer = client.call(groups, 5, m.DescribeGroupsResponse)
        assert {one.error_code for one in answer.groups} == {refused}
        states = client.call(ids, 0, m.DescribeTransactionsResponse).transaction_states
        assert {one.error_code for one in states} == {refused}
        described = client.call(producers, 0, m.DescribeProducersResponse).topics
        assert {one.partitions[0].error_code for one in described} == {refused}
        fetched = client.call(offsets, 8, m.OffsetFetchResponse)
        assert {one.error_code for one in fetched.groups} == {refused}
        assert client.call(topics, 7, m.OffsetFetchResponse).error_code == refused


def test_repetitions_are_answered_once_as_in_short_requests(kafka: Kafka) -> None:
    with RawClient(kafka.port) as client:
        create(client, ("many", 1))
        topics = [m.MetadataRequestTopic(name=name) for name in repeated("many")]
        request = m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        told = client.call(request, 9, m.MetadataResponse).topics
        assert [topic.name for topic in told] == ["many", *NAMES]
        deletion = m.DeleteGroupsRequest(groups_names=repeated("g"))
        results = client.call(deletion, 2, m.DeleteGroupsResponse).results
        assert [result.group_id for result in results] == ["g", *NAMES]


def test_a_repeated_partition_fails_and_unknown_topics_follow_the_others(kafka: Kafka) -> None:
    indexes = [*range(COUNT), 0]
    with RawClient(kafka.port) as client:
        create(client, ("many", COUNT))
        looked_up = m.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                m.ListOffsetsTopic(
                    name="many",
                    partitions=[
                        m.ListOffsetsPartition(partition_index=index, timestamp=-1)
                        for index in indexes
                    ],
                )
            ],
        )
        (topic,) = client.call(looked_up, 5, m.ListOffsetsResponse).topics
        assert [one.partition_index for one in topic.partitions] == list(range(COUNT))
        failed = [one.partition_index for one in topic.partitions if one.error_code]
        assert failed == [0]
        listed = client.call(m.MetadataRequest(topics=None), 12, m.MetadataResponse).topics
        topics = [
            m.OffsetFetchRequestTopic(topic_id=topic_id, partition_indexes=list(range(COUNT)))
            for topic_id in (bytes(15) + b"\1", listed[0].topic_id)
        ]
        request = m.OffsetFetchRequest(
            groups=[m.OffsetFetchRequestGroup(group_id="g", topics=topics)]
        )
        (group,) = client.call(request, 10, m.OffsetFetchResponse).groups
        assert [one.topic_id for one in group.topics] == [one.topic_id for one in reversed(topics)]


@pytest.mark.parametrize(("length", "error"), [(1_024, 0), (1_025, ErrorCode.INVALID_GROUP_ID)])
def test_the_length_of_a_group_id_is_limited(kafka: Kafka, length: int, error: int) -> None:
    with RawClient(kafka.port) as client:
        create(client, ("many", 1))
        _, topic = commit(client, "g" * length, range(1)).topics
        assert topic.partitions[0].error_code == error


@pytest.mark.parametrize(("length", "error"), [(1_024, 0), (1_025, ErrorCode.INVALID_REQUEST)])
def test_the_length_of_a_transactional_id_is_limited(kafka: Kafka, length: int, error: int) -> None:
    request = m.InitProducerIdRequest(
        transactional_id="t" * length,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    with RawClient(kafka.port) as client:
        assert client.call(request, 4, m.InitProducerIdResponse).error_code == error

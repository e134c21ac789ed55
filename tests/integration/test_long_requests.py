"""Requests with thousands of elements get the same responses as short ones."""

from __future__ import annotations

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kohort.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kohort.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kohort.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from kohort.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kohort.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kohort.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kohort.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kohort.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kohort.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kohort.testing import Kafka
from tests.support.network.wire import RawClient

COUNT = 1_500


def create(client: RawClient, *topics: tuple[str, int]) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[]
            )
            for name, count in topics
        ],
        timeout_ms=60_000,
    )
    client.ask(request, 5)


def commit(client: RawClient, group_id: str, indexes: range) -> OffsetCommitResponse:
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=index, committed_metadata=""
                    )
                    for index in indexes
                ],
            )
            for name in ("none", "many")
        ],
    )
    return client.call(request, 8, OffsetCommitResponse)


@pytest.mark.parametrize("version", [11, 12])
def test_a_fetch_of_many_partitions(kafka: Kafka, version: int) -> None:
    with RawClient(kafka.port) as client:
        create(client, ("many", COUNT))
        request = FetchRequest(
            max_wait_ms=200,
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic="many",
                    partitions=[
                        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1)
                        for index in range(COUNT)
                    ],
                )
            ],
        )
        (topic,) = client.call(request, version, FetchResponse).responses
        assert [one.partition_index for one in topic.partitions] == list(range(COUNT))
        assert {(one.error_code, one.high_watermark) for one in topic.partitions} == {(0, 0)}


def test_a_commit_of_many_partitions_and_a_fetch_of_their_offsets(kafka: Kafka) -> None:
    with RawClient(kafka.port) as client:
        create(client, ("many", COUNT))
        unknown, stored = commit(client, "g", range(COUNT)).topics
        for topic, error in ((unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (stored, 0)):
            assert [one.partition_index for one in topic.partitions] == list(range(COUNT))
            assert {one.error_code for one in topic.partitions} == {error}
        named = OffsetFetchRequestTopics(name="many", partition_indexes=list(range(COUNT + 1)))
        for topics in ([named], None):
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)]
            )
            (group,) = client.call(request, 8, OffsetFetchResponse).groups
            (found,) = group.topics
            offsets = {one.partition_index: one.committed_offset for one in found.partitions}
            assert offsets.pop(COUNT, -1) == -1
            assert offsets == {index: index for index in range(COUNT)}


def test_many_groups_are_described_and_deleted(kafka: Kafka) -> None:
    names = [f"group-{number}" for number in range(COUNT)]
    with RawClient(kafka.port) as client:
        create(client, ("many", 1))
        for name in names[::100]:
            commit(client, name, range(1))
        request = DescribeGroupsRequest(groups=names)
        described = client.call(request, 5, DescribeGroupsResponse).groups
        assert [group.group_id for group in described] == names
        assert [group.group_id for group in described if group.group_state == "Empty"] == names[
            ::100
        ]
        deletion = DeleteGroupsRequest(groups_names=names)
        results = client.call(deletion, 2, DeleteGroupsResponse).results
        assert [result.group_id for result in results] == names
        deleted = [result.group_id for result in results if result.error_code == 0]
        assert deleted == names[::100]


def test_many_topics_are_deleted_together(kafka: Kafka) -> None:
    names = [f"topic-{number}" for number in range(20)]
    with RawClient(kafka.port) as client:
        create(client, *((name, 2) for name in names))
        commit(client, "g", range(1))
        request = DeleteTopicsRequest(topic_names=[*names, "none"], timeout_ms=60_000)
        answered = client.call(request, 4, DeleteTopicsResponse).responses
        assert [(one.name, one.error_code) for one in answered] == [
            *((name, 0) for name in names),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        create(client, *((name, 1) for name in names))
        answered = client.call(request, 4, DeleteTopicsResponse).responses
        assert sum(one.error_code == 0 for one in answered) == len(names)


NAMES = [f"name-{number}" for number in range(COUNT)]


def repeated(name: str) -> list[str]:
    """Many names, with one of them in every part."""
    return [one for start in range(0, COUNT, 50) for one in (name, *NAMES[start : start + 50])]


def test_repetitions_are_refused_as_in_short_requests(kafka: Kafka) -> None:
    """They could make a response of gigabytes."""
    refused = ErrorCode.INVALID_REQUEST
    groups = DescribeGroupsRequest(groups=repeated("g"))
    ids = DescribeTransactionsRequest(transactional_ids=repeated("t"))
    producers = DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=[0]) for name in repeated("t")]
    )
    offsets = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in repeated("g")]
    )
    topics = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name=n, partition_indexes=[0]) for n in repeated("t")],
    )
    with RawClient(kafka.port) as client:
        answer = client.call(groups, 5, DescribeGroupsResponse)
        assert {one.error_code for one in answer.groups} == {refused}
        states = client.call(ids, 0, DescribeTransactionsResponse).transaction_states
        assert {one.error_code for one in states} == {refused}
        described = client.call(producers, 0, DescribeProducersResponse).topics
        assert {one.partitions[0].error_code for one in described} == {refused}
        fetched = client.call(offsets, 8, OffsetFetchResponse)
        assert {one.error_code for one in fetched.groups} == {refused}
        assert client.call(topics, 7, OffsetFetchResponse).error_code == refused


def test_repetitions_are_answered_once_as_in_short_requests(kafka: Kafka) -> None:
    with RawClient(kafka.port) as client:
        create(client, ("many", 1))
        topics = [MetadataRequestTopic(name=name) for name in repeated("many")]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        told = client.call(request, 9, MetadataResponse).topics
        assert [topic.name for topic in told] == ["many", *NAMES]
        deletion = DeleteGroupsRequest(groups_names=repeated("g"))
        results = client.call(deletion, 2, DeleteGroupsResponse).results
        assert [result.group_id for result in results] == ["g", *NAMES]


def test_a_repeated_partition_fails_and_unknown_topics_follow_the_others(kafka: Kafka) -> None:
    indexes = [*range(COUNT), 0]
    with RawClient(kafka.port) as client:
        create(client, ("many", COUNT))
        looked_up = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name="many",
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=-1)
                        for index in indexes
                    ],
                )
            ],
        )
        (topic,) = client.call(looked_up, 5, ListOffsetsResponse).topics
        assert [one.partition_index for one in topic.partitions] == list(range(COUNT))
        failed = [one.partition_index for one in topic.partitions if one.error_code]
        assert failed == [0]
        listed = client.call(MetadataRequest(topics=None), 12, MetadataResponse).topics
        topics = [
            OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=list(range(COUNT)))
            for topic_id in (bytes(15) + b"\1", listed[0].topic_id)
        ]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
        (group,) = client.call(request, 10, OffsetFetchResponse).groups
        assert [one.topic_id for one in group.topics] == [one.topic_id for one in reversed(topics)]


@pytest.mark.parametrize(("length", "error"), [(1_024, 0), (1_025, ErrorCode.INVALID_GROUP_ID)])
def test_the_length_of_a_group_id_is_limited(kafka: Kafka, length: int, error: int) -> None:
    with RawClient(kafka.port) as client:
        create(client, ("many", 1))
        _, topic = commit(client, "g" * length, range(1)).topics
        assert topic.partitions[0].error_code == error


@pytest.mark.parametrize(("length", "error"), [(1_024, 0), (1_025, ErrorCode.INVALID_REQUEST)])
def test_the_length_of_a_transactional_id_is_limited(kafka: Kafka, length: int, error: int) -> None:
    request = InitProducerIdRequest(
        transactional_id="t" * length,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    with RawClient(kafka.port) as client:
        assert client.call(request, 4, InitProducerIdResponse).error_code == error

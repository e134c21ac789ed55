"""Deletes groups and their offsets, and sets the offsets of groups without members."""

from collections.abc import Iterable, Mapping
from typing import Final

from kohort.admin.cluster import Cluster, check
from kohort.admin.offsets import TopicPartition, by_topic
from kohort.client.net.blocking import BlockingConnection
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.groups import DeleteGroupsRequest, DeleteGroupsResponse
from kohort.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from kohort.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
)
from kohort.protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)

_OFFSET_COMMIT_MAX: Final = 9
"""Last version with topic names; later ones have topic ids."""

_HINTS: Final = {
    int(ErrorCode.UNKNOWN_MEMBER_ID): ": it has members; stop them first",
    int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC): ": members read the topic; stop them first",
    int(ErrorCode.NON_EMPTY_GROUP): ": it has members; stop them first",
}


def delete_group(cluster: Cluster, group_id: str) -> None:
    """Delete a group that has no members, with its offsets.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP...
    """
    request = DeleteGroupsRequest(groups_names=[group_id])

    def ask(coordinator: BlockingConnection) -> None:
        answer: DeleteGroupsResponse = cluster.ask(coordinator, request)
        result = answer.results[0]
        check(result.error_code, f"group {group_id!r}", result.error_message)

    cluster.at_coordinator(group_id, ask)


def set_offsets(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for a group without members.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID if it has members; the error of the first failed partition.
    """
    topics = by_topic(
        (
            topic,
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            ),
        )
        for (topic, index), offset in sorted(offsets.items())
    )
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics
        ],
    )

    def ask(coordinator: BlockingConnection) -> None:
        answer: OffsetCommitResponse = cluster.ask(coordinator, request, at_most=_OFFSET_COMMIT_MAX)
        _check_all(group_id, answer.topics)

    cluster.at_coordinator(group_id, ask)


def delete_offsets(cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]) -> None:
    """Delete committed offsets of a group that does not read these topics (KIP-496).

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC...; the error of the first
            failed partition.
    """
    topics = by_topic(
        (topic, OffsetDeleteRequestPartition(partition_index=index))
        for topic, index in sorted(partitions)
    )
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics
        ],
    )

    def ask(coordinator: BlockingConnection) -> None:
        answer: OffsetDeleteResponse = cluster.ask(coordinator, request)
        check(answer.error_code, f"group {group_id!r}")
        _check_all(group_id, answer.topics)

    cluster.at_coordinator(group_id, ask)


def set_start_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Set start offsets of a share group without members.

    Raises:
        RefusedError: NON_EMPTY_GROUP, or the first failed partition's error.
    """
    topics = by_topic(
        (topic, AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset))
        for (topic, index), offset in sorted(offsets.items())
    )
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
            for name, partitions in topics
        ],
    )

    def ask(coordinator: BlockingConnection) -> None:
        answer: AlterShareGroupOffsetsResponse = cluster.ask(coordinator, request)
        check(answer.error_code, f"group {group_id!r}{_HINTS.get(answer.error_code, '')}")
        for topic in answer.responses:
            for partition in topic.partitions:
                what = f"group {group_id!r}, {topic.topic_name}-{partition.partition_index}"
                check(partition.error_code, what, partition.error_message)

    cluster.at_coordinator(group_id, ask)


def delete_start_offsets(cluster: Cluster, group_id: str, topics: Iterable[str]) -> None:
    """Delete the state of all partitions of these topics in a share group without members.

    Raises:
        RefusedError: NON_EMPTY_GROUP; the error of the first failed topic.
    """
    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics],
    )

    def ask(coordinator: BlockingConnection) -> None:
        answer: DeleteShareGroupOffsetsResponse = cluster.ask(coordinator, request)
        check(answer.error_code, f"group {group_id!r}{_HINTS.get(answer.error_code, '')}")
        for topic in answer.responses:
            what = f"group {group_id!r}, {topic.topic_name}"
            check(topic.error_code, what, topic.error_message)

    cluster.at_coordinator(group_id, ask)


def _check_all(
    group_id: str,
    topics: Iterable[OffsetCommitResponseTopic | OffsetDeleteResponseTopic],
) -> None:
    for topic in topics:
        for partition in topic.partitions:
            what = f"group {group_id!r}, {topic.name}-{partition.partition_index}"
            check(partition.error_code, what + _HINTS.get(partition.error_code, ""))

"""Deletes groups and their offsets, and commits offsets for groups without members."""

from collections.abc import Iterable, Mapping
from typing import Final

from kohort.admin.cluster import Cluster, CoordinatorKind, RefusedError
from kohort.admin.offsets import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.groups import DeleteGroupsRequest, DeleteGroupsResponse
from kohort.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kohort.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

_OFFSET_COMMIT_MAX: Final = 9
"""Last version with topic names; later ones have topic ids."""


def delete_group(cluster: Cluster, group_id: str) -> None:
    """Delete a group that has no members, with its offsets.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP...
        DisconnectedError
    """

    def ask() -> None:
        coordinator = cluster.coordinator(group_id, CoordinatorKind.GROUP)
        request = DeleteGroupsRequest(groups_names=[group_id])
        answer: DeleteGroupsResponse = cluster.ask(coordinator, request)
        result = answer.results[0]
        if result.error_code:
            raise RefusedError(result.error_code, f"group {group_id!r}", result.error_message)

    cluster.retrying(ask)


def set_offsets(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for a group without members.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID if it has members; the error of the first failed partition.
        DisconnectedError
    """
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        wanted = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        topics.setdefault(topic, []).append(wanted)
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )

    def ask() -> None:
        coordinator = cluster.coordinator(group_id, CoordinatorKind.GROUP)
        answer: OffsetCommitResponse = cluster.ask(coordinator, request, at_most=_OFFSET_COMMIT_MAX)
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    what = f"group {group_id!r}, {topic.name}-{partition.partition_index}"
                    if partition.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                        what += ": it has members; stop them first"
                    raise RefusedError(partition.error_code, what)

    cluster.retrying(ask)


def delete_offsets(cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]) -> None:
    """Delete committed offsets of a group that does not read these topics (KIP-496).

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC...; the error of the first
            failed partition.
        DisconnectedError
    """
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, index in sorted(partitions):
        partition = OffsetDeleteRequestPartition(partition_index=index)
        topics.setdefault(topic, []).append(partition)
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )

    def ask() -> None:
        coordinator = cluster.coordinator(group_id, CoordinatorKind.GROUP)
        answer: OffsetDeleteResponse = cluster.ask(coordinator, request)
        if answer.error_code:
            raise RefusedError(answer.error_code, f"group {group_id!r}")
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    what = f"group {group_id!r}, {topic.name}-{partition.partition_index}"
                    if partition.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
                        what += ": members read the topic; stop them first"
                    raise RefusedError(partition.error_code, what)

    cluster.retrying(ask)

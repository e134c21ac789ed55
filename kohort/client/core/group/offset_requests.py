"""Builds OffsetCommit and OffsetFetch requests and reads their responses, in all versions."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from kohort.client.core.group.identity import Identity
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.errors import ErrorCode
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
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)
from kohort.protocol.types import ZERO_UUID

NAMED_UNTIL: Final = 9
"""The last version of OffsetCommit and OffsetFetch that identifies topics by name; later ones use
ids."""


def commit_request(
    group_id: str,
    identity: Identity,
    instance_id: str | None,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topic_ids: Mapping[str, bytes],
) -> OffsetCommitRequest:
    """Build an OffsetCommit for any version; from version 10 on topic ids are needed."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            topic_id=topic_ids.get(topic, ZERO_UUID),
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offsets[partition].offset,
                    committed_leader_epoch=offsets[partition].leader_epoch,
                    committed_metadata=offsets[partition].metadata,
                )
                for partition in partitions
            ],
        )
        for topic, partitions in groupby(sorted(offsets), attrgetter("topic"))
    ]
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=instance_id,
        topics=topics,
    )


def errors_in(
    answer: OffsetCommitResponse, topic_ids: Mapping[str, bytes]
) -> dict[TopicPartition, ErrorCode]:
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    return {
        TopicPartition(
            topic.name or names.get(topic.topic_id, ""), entry.partition_index
        ): ErrorCode(entry.error_code)
        for topic in answer.topics
        for entry in topic.partitions
        if entry.error_code
    }


def fetch_request(
    group_id: str,
    identity: Identity,
    partitions: Iterable[TopicPartition],
    topic_ids: Mapping[str, bytes],
    version: int,
) -> OffsetFetchRequest:
    """Build an OffsetFetch for any version; from 7 on it demands stable offsets, without pending
    transactional ones, and from 9 on it names the member.
    """
    by_topic = {
        topic: [partition.partition for partition in group]
        for topic, group in groupby(sorted(partitions), attrgetter("topic"))
    }
    topics = [
        OffsetFetchRequestTopic(
            name=topic, topic_id=topic_ids.get(topic, ZERO_UUID), partition_indexes=indexes
        )
        for topic, indexes in by_topic.items()
    ]
    if version < 8:
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=version >= 7)
    group = OffsetFetchRequestGroup(
        group_id=group_id,
        member_id=identity.member_id or None,
        member_epoch=identity.generation,
        topics=topics,
    )
    return OffsetFetchRequest(groups=[group], require_stable=True)


def committed_in(
    answer: OffsetFetchResponse, topic_ids: Mapping[str, bytes]
) -> tuple[ErrorCode, dict[TopicPartition, OffsetAndMetadata], Mapping[TopicPartition, ErrorCode]]:
    """Return the group's error, the committed offsets, and the errors of single partitions."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    committed: dict[TopicPartition, OffsetAndMetadata] = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    group = answer.groups[0] if answer.groups else answer
    for name, partitions in _topics(answer, names):
        for entry in partitions:
            partition = TopicPartition(name, entry.partition_index)
            if entry.error_code:
                errors[partition] = ErrorCode(entry.error_code)
            elif entry.committed_offset >= 0:
                committed[partition] = OffsetAndMetadata(
                    entry.committed_offset, entry.metadata or "", entry.committed_leader_epoch
                )
    return ErrorCode(group.error_code), committed, errors


def _topics(
    answer: OffsetFetchResponse, names: Mapping[bytes, str]
) -> Iterable[tuple[str, Sequence[OffsetFetchResponsePartition]]]:
    for topic in answer.groups[0].topics if answer.groups else answer.topics:
        yield topic.name or names.get(topic.topic_id, ""), topic.partitions

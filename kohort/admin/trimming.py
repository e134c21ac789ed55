"""Deletes the oldest records of partitions (KIP-107)."""

from collections.abc import Mapping
from typing import Final

from kohort.admin.cluster import Cluster, RefusedError, check
from kohort.admin.offsets import TopicPartition, by_topic, leaders_of
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.topic_changes import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

TIMEOUT_MS: Final = 30_000
"""Time limit of the broker until all replicas have deleted the records."""


def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Delete the records below an offset of each partition; return the new log start offsets.

    Raises:
        RefusedError: the error of the first failed partition. Others may have succeeded.
    """
    starts: dict[TopicPartition, int] = {}
    for leader, partitions in leaders_of(cluster, offsets).items():
        if leader is None:
            topic, index = partitions[0]
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader")
        topics = by_topic(
            (topic, DeleteRecordsPartition(partition_index=index, offset=offsets[topic, index]))
            for topic, index in partitions
        )
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=wanted) for name, wanted in topics],
            timeout_ms=TIMEOUT_MS,
        )
        answer: DeleteRecordsResponse = cluster.ask(leader, request)
        for result in answer.topics:
            for partition in result.partitions:
                what = f"{result.name}-{partition.partition_index} was not trimmed"
                check(partition.error_code, what)
                starts[result.name, partition.partition_index] = partition.low_watermark
    return starts

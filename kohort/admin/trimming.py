"""Deletes the oldest records of partitions (KIP-107)."""

from collections.abc import Mapping
from typing import Final

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.offsets import TopicPartition, leaders_of
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.delete_records import (
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
        DisconnectedError
    """
    starts: dict[TopicPartition, int] = {}
    for leader, partitions in leaders_of(cluster, offsets).items():
        if leader is None:
            topic, index = partitions[0]
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader")
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for topic, index in partitions:
            wanted = DeleteRecordsPartition(partition_index=index, offset=offsets[topic, index])
            topics.setdefault(topic, []).append(wanted)
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name=name, partitions=wanted) for name, wanted in topics.items()
            ],
            timeout_ms=TIMEOUT_MS,
        )
        answer: DeleteRecordsResponse = cluster.ask(leader, request)
        for result in answer.topics:
            for partition in result.partitions:
                if partition.error_code:
                    what = f"{result.name}-{partition.partition_index} was not trimmed"
                    raise RefusedError(partition.error_code, what)
                starts[result.name, partition.partition_index] = partition.low_watermark
    return starts

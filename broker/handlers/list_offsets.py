"""ListOffsets (key 2): the offset that belongs to a time, or one of the ends of a log.

v1-11 as in Kafka 4.4. Nothing is tiered: the local log start is the log start, the last tiered and
the earliest pending upload offsets are -1. The timeout of v10 bounds remote lookups, which there
are none of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.handlers.context import RequestContext
from broker.handlers.leader_epoch import check_leader_epoch
from broker.handlers.registry import handles
from broker.topics.partition import LEADER_EPOCH, Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LEADER_EPOCH_SINCE: Final = 4
_NOT_FOUND: Final = (-1, -1)

_SPECIAL: Final[dict[int, tuple[int, Callable[[Partition], tuple[int, int]]]]] = {
    -1: (0, lambda partition: (partition.high_watermark, -1)),
    -2: (0, lambda partition: (partition.log.log_start_offset, -1)),
    -3: (7, lambda partition: partition.offset_of_max_timestamp() or _NOT_FOUND),
    -4: (8, lambda partition: (partition.log.log_start_offset, -1)),
    -5: (9, lambda _: _NOT_FOUND),
    -6: (11, lambda _: _NOT_FOUND),
}
"""timestamp -> (first request version, partition -> (offset, timestamp))."""


@handles(ListOffsetsRequest, versions="1-11")
def list_offsets(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """One answer per partition, though it be named twice; one that fails does so alone."""
    asked: dict[str, dict[int, list[ListOffsetsPartition]]] = {}
    for topic in request.topics:
        partitions = asked.setdefault(topic.name, {})
        for partition in topic.partitions:
            partitions.setdefault(partition.partition_index, []).append(partition)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=name,
                partitions=[
                    _look_up(ctx, name, same[0]) if len(same) == 1 else _repeated(same[0])
                    for same in partitions.values()
                ],
            )
            for name, partitions in asked.items()
        ]
    )


def _repeated(asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=ErrorCode.INVALID_REQUEST
    )


def _look_up(
    ctx: RequestContext, name: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=ErrorCode.NONE
    )
    partition = ctx.broker.topics.partition(name, asked.partition_index)
    if partition is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    answer.error_code = check_leader_epoch(asked.current_leader_epoch)
    if answer.error_code:
        return answer
    try:
        partition.check_online()
        answer.offset, answer.timestamp = _find(ctx.api_version, partition, asked.timestamp)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    if answer.offset >= 0 and ctx.api_version >= LEADER_EPOCH_SINCE:
        answer.leader_epoch = LEADER_EPOCH
    return answer


def _find(version: int, partition: Partition, timestamp: int) -> tuple[int, int]:
    """(offset, timestamp) for a time or a special value; -1 for what does not apply."""
    if timestamp >= 0:
        return partition.offset_for_timestamp(timestamp) or _NOT_FOUND
    since, find = _SPECIAL.get(timestamp, (None, None))
    if since is None or find is None or version < since:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return find(partition)

"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, for detecting truncation.

v2-4. A partition has one epoch, which ends at the high watermark; a log that was taken over from a
cluster also has its previous leaders' epochs. Later epochs have no end.
"""

from kohort.broker.core.security.acls import CLUSTER_NAME, Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError, per_partition, same
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.leaders import current_partition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@handles(
    OffsetForLeaderEpochRequest,
    versions="2-4",
    on_error=OnError(per_partition(same("topic"), same("partition"))),
    parts=(lists("topics.partitions"),),
)
def offset_for_leader_epoch(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _look_up(ctx, topic.topic, requested, is_denied=is_denied)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
            for is_denied in (_is_denied(ctx, topic.topic),)
        ]
    )


def _is_denied(ctx: RequestContext, topic: str) -> bool:
    is_broker = ctx.sees(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    return not is_broker and not ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _look_up(
    ctx: RequestContext, topic: str, requested: OffsetForLeaderPartition, *, is_denied: bool
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=requested.partition, error_code=ErrorCode.NONE)
    if is_denied:
        answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return answer
    try:
        partition = current_partition(
            ctx, topic, requested.partition, requested.current_leader_epoch
        )
        end = partition.end_of_epoch(requested.leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
    else:
        if end is not None:
            answer.leader_epoch, answer.end_offset = end
    return answer

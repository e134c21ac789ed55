"""DeleteRecords (key 21): advance the log start offset of partitions.

v0-2 as in Kafka 4.4. Records before the new start are never served again, even after a crash; whole
segments before it are deleted. Requests for internal topics, and for topics that are compacted but
not cleaned up by deletion, are rejected.
"""

from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError, per_partition, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.slices import Slice
from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.topic_changes import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK: Final = -1


@handles(
    DeleteRecordsRequest,
    versions="0-2",
    on_error=OnError(per_partition(same("name"), same("partition_index"), low_watermark=-1)),
)
async def delete_records(
    ctx: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    time_slice = Slice(ctx.broker.clock)
    response = DeleteRecordsResponse(topics=[])
    is_any_deleted = False
    for topic in request.topics:
        result = DeleteRecordsTopicResult(name=topic.name, partitions=[])
        for partition in topic.partitions:
            outcome = _delete(ctx, topic, partition)
            is_any_deleted |= not outcome.error_code
            result.partitions.append(outcome)
            await time_slice.pause()
        if topic.partitions:
            response.topics.append(result)
    if is_any_deleted:
        await ctx.broker.topics.disk.write_checkpoints()
    return response


def _delete(
    ctx: RequestContext, topic: DeleteRecordsTopic, requested: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(
        partition_index=requested.partition_index, low_watermark=-1, error_code=ErrorCode.NONE
    )
    try:
        result.low_watermark = _delete_before(ctx, topic.name, requested)
    except KafkaError as error:
        result.error_code = error.code
    return result


def _delete_before(ctx: RequestContext, name: str, requested: DeleteRecordsPartition) -> int:
    if not ctx.may(Operation.DELETE, ResourceType.TOPIC, name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = ctx.broker.topics.get(name)
    if topic is None or not 0 <= requested.partition_index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if topic.config.is_compacted and not topic.config.deletes_old_segments:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    partition: Partition = topic.partitions[requested.partition_index]
    partition.check_online()
    offset = partition.high_watermark if requested.offset == HIGH_WATERMARK else requested.offset
    if not 0 <= offset <= partition.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    ctx.broker.topics.changes.delete_records_before(partition, offset)
    return partition.log.log_start_offset

"""DescribeProducers (key 61): the producer state of partitions (KIP-664).

v0. For operators who look for the transaction that blocks a partition's readers. Internal topics
are included.
"""

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ITSELF, OnError, per_partition, same
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import check_repeats
from kohort.broker.topics.names import name_problem
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def _check(ctx: RequestContext, request: DescribeProducersRequest) -> None:
    del ctx
    check_repeats(
        (topic.name, index) for topic in request.topics for index in topic.partition_indexes
    )


@handles(
    DescribeProducersRequest,
    versions="0",
    on_error=OnError(
        per_partition(same("name"), {"partition_index": ITSELF}, requested="partition_indexes")
    ),
    parts=(lists("topics.partition_indexes", "topics.partitions"),),
    prepare=_check,
)
def describe_producers(
    ctx: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    _check(ctx, request)
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(ctx, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(ctx: RequestContext, name: str, index: int) -> PartitionResponse:
    error, message, producers = ErrorCode.NONE, None, list[ProducerState]()
    problem = name_problem(name)
    try:
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        ctx.require(Operation.READ, ResourceType.TOPIC, name)
        producers = _producers(ctx, name, index)
    except KafkaError as failure:
        error, message = failure.code, failure.message
    return PartitionResponse(
        partition_index=index,
        error_code=error,
        error_message=message,
        active_producers=producers,
    )


def _producers(ctx: RequestContext, name: str, index: int) -> list[ProducerState]:
    topics = ctx.broker.topics
    topic = topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition here")
    if not topics.is_on_disk(name, index):
        return []
    return [
        ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.current_transaction_first_offset,
        )
        for producer in topic.partitions[index].producers_seen()
    ]

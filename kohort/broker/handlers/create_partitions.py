"""CreatePartitions (key 37): increase the partition count of topics.

v0-3 as in Kafka 4.4. Nothing needs the request's timeout, but a negative one has already expired,
as in Kafka. The partition count of an internal topic is fixed, because it determines where a
group's offsets are.
"""

from collections import Counter
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ErrorTemplate, OnError, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.mutations import Mutations
from kohort.broker.runtime.slices import Slice
from kohort.broker.topics.creation import check_expansion
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_SINCE: Final = 3
"""The version from which clients know THROTTLING_QUOTA_EXCEEDED."""


@handles(
    CreatePartitionsRequest,
    versions="0-3",
    on_error=OnError(ErrorTemplate(response="results", request="topics", copied=same("name"))),
)
async def create_partitions(
    ctx: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions, or only validate the request; one result per topic."""
    times = Counter(topic.name for topic in request.topics)
    mutations = Mutations(ctx, is_strict=ctx.api_version >= STRICT_SINCE)
    results = {}
    time_slice = Slice(ctx.broker.clock)
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE)
        results[topic.name] = result
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if not ctx.may(Operation.ALTER, ResourceType.TOPIC, topic.name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if request.timeout_ms < 0:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            await _enlarge(ctx, mutations, topic, validate_only=request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        await time_slice.pause()
    return CreatePartitionsResponse(
        throttle_time_ms=mutations.throttle_ms, results=list(results.values())
    )


async def _enlarge(
    ctx: RequestContext,
    mutations: Mutations,
    requested: CreatePartitionsTopic,
    *,
    validate_only: bool,
) -> None:
    topic = ctx.broker.topics.get(requested.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} belongs to the broker itself."
        )
    assignments = requested.assignments
    check_expansion(
        topic.name,
        len(topic.partitions),
        requested.count,
        None if assignments is None else [assignment.broker_ids for assignment in assignments],
        ctx.broker.node_id,
    )
    mutations.take(requested.count - len(topic.partitions))
    await ctx.broker.topics.changes.create_partitions(
        topic, requested.count, validate_only=validate_only
    )

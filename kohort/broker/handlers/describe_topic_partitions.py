"""DescribeTopicPartitions (key 75): topics and partitions in pages, ordered by name.

v0 as in Kafka 4.4. A page has at most as many partitions as the request and
max.request.partition.size.limit allow; its cursor says where the next one begins. Without names, it
describes the same topics as Metadata.
"""

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError, elements, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import NO_LEADER
from kohort.broker.topics.names import INTERNAL_TOPICS, name_problem
from kohort.broker.topics.topic import Topic
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kohort.protocol.types import ZERO_UUID


@handles(
    DescribeTopicPartitionsRequest,
    versions="0",
    on_error=OnError(elements("topics", "topics", same("name"))),
)
def describe_topic_partitions(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    requested = list(dict.fromkeys(topic.name for topic in request.topics))
    cursor = request.cursor
    if cursor is not None and (
        cursor.partition_index < 0 or (requested and cursor.topic_name not in requested)
    ):
        invalid = DescribeTopicPartitionsResponse(topics=[])
        for topic in request.topics:
            invalid.topics.append(_missing(ErrorCode.INVALID_REQUEST, topic.name))
            yield
        return invalid
    every = (topic.name for topic in ctx.broker.topics.all() if topic.is_listed)
    names = sorted(requested or every)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    is_allowed = ctx.may if requested else ctx.sees
    allowed = []
    for name in names:
        if is_allowed(Operation.DESCRIBE, ResourceType.TOPIC, name):
            allowed.append(name)
        yield
    denied = sorted(set(names).difference(allowed)) if requested else []
    limit = ctx.broker.topics.settings.config.max_request_partition_size_limit
    page = yield from _page(
        ctx, allowed, cursor, max(1, min(request.response_partition_limit, limit))
    )
    for name in denied:
        page.topics.append(_missing(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
        yield
    return page


def _page(
    ctx: RequestContext, names: list[str], cursor: Cursor | None, left: int
) -> Steps[DescribeTopicPartitionsResponse]:
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in names:
        yield
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        operations = ctx.operations(ResourceType.TOPIC, name)
        topic = ctx.broker.topics.get(name)
        if topic is None:
            is_legal = name_problem(name) is None
            code = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if is_legal
                else ErrorCode.INVALID_TOPIC_EXCEPTION
            )
            response.topics.append(_missing(code, name))
            response.topics[-1].topic_authorized_operations = operations
            continue
        first = cursor.partition_index if cursor and cursor.topic_name == name else 0
        shown = range(len(topic.partitions))[first : first + left]
        left -= len(shown)
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.NONE,
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=[_describe(topic, index, ctx.broker.node_id) for index in shown],
                topic_authorized_operations=operations,
            )
        )
        after = first + len(shown)
        if shown and after < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=after)
            break
    return response


def _missing(code: ErrorCode, name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
    )


def _describe(topic: Topic, index: int, node_id: int) -> DescribeTopicPartitionsResponsePartition:
    is_online = topic.partitions.is_online(index)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if is_online else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=node_id if is_online else NO_LEADER,
        leader_epoch=topic.partitions.leader_epoch(index),
        replica_nodes=[node_id],
        isr_nodes=[node_id],
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[] if is_online else [node_id],
    )

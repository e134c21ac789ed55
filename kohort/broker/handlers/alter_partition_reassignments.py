"""AlterPartitionReassignments (key 45): a partition can be moved to this broker, where it is.

v0-1 as in Kafka 4.4. Other assignments are refused as Kafka refuses brokers that it does not know.
"""

from __future__ import annotations

from kohort.broker.core.security.acls import CLUSTER_NAME, Operation, ResourceType
from kohort.broker.dispatch.access import TEXTS
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)


@handles(
    AlterPartitionReassignmentsRequest,
    versions="0-1",
    parts=(lists("topics.partitions", "responses.partitions"),),
)
def alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Check each partition; they fail individually."""
    if not ctx.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return _denied(request)
    if not request.topics:
        # Kafka answers an empty request in the broker, not in the controller, and differently.
        return AlterPartitionReassignmentsResponse(
            error_code=ErrorCode.NONE, error_message="", responses=[]
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[_outcomes(ctx, topic) for topic in request.topics],
    )


def _denied(request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    """Refuse at the top level, and once more for each partition."""
    code, text = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, TEXTS[ResourceType.CLUSTER]
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=text,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=one.partition_index, error_code=code, error_message=text
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _outcomes(ctx: RequestContext, topic: ReassignableTopic) -> ReassignableTopicResponse:
    response = ReassignableTopicResponse(name=topic.name, partitions=[])
    for partition in topic.partitions:
        outcome = ReassignablePartitionResponse(
            partition_index=partition.partition_index, error_code=ErrorCode.NONE, error_message=None
        )
        try:
            _check(ctx, topic.name, partition)
        except KafkaError as error:
            outcome.error_code, outcome.error_message = error.code, error.message
        response.partitions.append(outcome)
    return response


def _check(ctx: RequestContext, name: str, partition: ReassignablePartition) -> None:
    topic = ctx.broker.topics.get(name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
        )
    if not 0 <= partition.partition_index < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {name}:{partition.partition_index}.",
        )
    if partition.replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    problem = _problem(ctx.broker.node_id, partition.replicas)
    if problem:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes {problem}.",
        )


def _problem(node_id: int, replicas: list[int]) -> str | None:
    if not replicas:
        return "an empty replica list"
    stranger = next((one for one in sorted(replicas) if one != node_id), None)
    if stranger is not None:
        return f"broker {stranger}, but no such broker is registered"
    if len(replicas) > 1:
        return f"the broker {node_id} more than once"
    return None

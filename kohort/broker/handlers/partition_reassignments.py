"""AlterPartitionReassignments (key 45) and ListPartitionReassignments (key 46).

v0-1 and v0 as in Kafka 4.4. There is one broker: a partition can be reassigned to this broker
alone, which is complete immediately, so the list is always empty. Other assignments are rejected as
Kafka rejects unknown brokers.
"""

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
    ReassignableTopicResponse,
)
from kohort.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handles(ListPartitionReassignmentsRequest, versions="0")
def list_partition_reassignments(
    ctx: RequestContext, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return nothing; Kafka ignores unknown topics and partitions."""
    ctx.require(Operation.DESCRIBE, ResourceType.CLUSTER)
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE, error_message=None, topics=[]
    )


@handles(
    AlterPartitionReassignmentsRequest,
    versions="0-1",
    parts=(lists("topics.partitions", "responses.partitions"),),
)
def alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Check each partition; they fail individually. A denied request fails at the top level as
    well.
    """
    denied = None
    if not ctx.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, TEXTS[ResourceType.CLUSTER])
    response = AlterPartitionReassignmentsResponse(
        error_code=denied.code if denied else ErrorCode.NONE,
        error_message=denied.message if denied else None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _result(partition.partition_index, denied or _error(ctx, topic.name, partition))
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
    if denied is None:
        if request.topics:
            response.allow_replication_factor_change = request.allow_replication_factor_change
        else:
            # Kafka answers an empty request in the broker, not in the controller, and differently.
            response.error_message = ""
    return response


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index,
        error_code=error.code if error else ErrorCode.NONE,
        error_message=error.message if error else None,
    )


def _error(ctx: RequestContext, name: str, partition: ReassignablePartition) -> KafkaError | None:
    index, replicas, node_id = partition.partition_index, partition.replicas, ctx.broker.node_id
    topic = ctx.broker.topics.get(name)
    if topic is None:
        text = f"Unable to find a topic named {name}."
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if not 0 <= index < len(topic.partitions):
        text = f"Unable to find partition {name}:{index}."
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if replicas is None:
        return KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    unknown = next((replica for replica in sorted(replicas) if replica != node_id), None)
    if not replicas:
        problem = "an empty replica list"
    elif unknown is not None:
        problem = f"broker {unknown}, but no such broker is registered"
    elif len(replicas) > 1:
        problem = f"the broker {node_id} more than once"
    else:
        return None
    text = f"The manual partition assignment includes {problem}."
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
